"""simrun runs simulation campaigns: DAGs of tasks, split over workers, on this machine or on Kubernetes."""

__version__ = "0.1.0"
