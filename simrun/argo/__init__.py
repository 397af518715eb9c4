"""Runs as Argo workflows: one DAG, and for each split task a scatter of workers over one template.

`to_argo` renders what `simrun.pods` says of a run; it decides nothing about a run. Pure.
"""

from simrun.argo.manifest import to_argo
from simrun.argo.names import label_value, run_workflow_name, workflow_name

__all__ = ["label_value", "run_workflow_name", "to_argo", "workflow_name"]
