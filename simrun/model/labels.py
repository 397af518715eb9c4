"""Every label, annotation and taint key of simrun, and those of others that it uses."""

from __future__ import annotations

from typing import Final

RUN: Final = "simrun/run"
"""On workflows and pods; immutable, so that a watch may select by it."""
TASK: Final = "simrun/task"
WORKER: Final = "simrun/worker"
ROLE: Final = "simrun/role"
GROUP: Final = "simrun/group"
"""As a label the group made a valid value; as an annotation the group as given."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "simrun"
RESERVED: Final = "simrun/reserved"
"""Label and taint key of a node that one run has for itself; the value is the run id."""

QUEUE: Final = "kueue.x-k8s.io/queue-name"
WORKLOAD_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
HOSTNAME: Final = "kubernetes.io/hostname"

ARGO_NODE_NAME: Final = "workflows.argoproj.io/node-name"
ARGO_WORKFLOW: Final = "workflows.argoproj.io/workflow"
ARGO_PHASE: Final = "workflows.argoproj.io/phase"
ARGO_COMPLETED: Final = "workflows.argoproj.io/completed"
ARGO_NODE_ID: Final = "workflows.argoproj.io/node-id"

FINGERPRINT: Final = "simrun/fingerprint"
"""Annotation of a workflow: the submission it was made from. Tells two runs apart that were given one id."""
ATTEMPT_BASE: Final = "simrun/attempt-base"
"""Annotation of a workflow: {task: number added to its attempts} as JSON, what Argo itself does not know."""
