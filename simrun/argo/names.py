"""Names of workflows, which keep the id of their run as long as it is fit for one."""

from __future__ import annotations

import re

from simrun.base.labeltext import LABEL_MAX, label_value, shortened

__all__ = ["LABEL_MAX", "label_value", "run_workflow_name", "workflow_name"]

_PREFIX = "simrun-"
_FIT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def workflow_name(run_id: str) -> str:
    """Give the name of the workflow of a run, a DNS label; later rounds of a run ask with `<run>-r<round>`."""
    longest = LABEL_MAX - len(_PREFIX)
    if len(run_id) <= longest and _FIT_NAME.fullmatch(run_id):
        return _PREFIX + run_id
    return _PREFIX + shortened(re.sub(r"[^a-z0-9-]", "-", run_id.lower()), run_id, longest)


def run_workflow_name(run_id: str, round_: int) -> str:
    """Give the name of the workflow of one round of a run."""
    return workflow_name(f"{run_id}-r{round_}" if round_ else run_id)
