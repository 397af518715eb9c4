"""Kubernetes as a backend: Argo Workflows runs the DAG, Kueue admits the pods."""
