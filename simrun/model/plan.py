"""What was decided for one task of one run."""

from __future__ import annotations

from simrun.model.base import StoredModel
from simrun.model.quantities import Cpus


class TaskPlan(StoredModel):
    """How a task runs in this round.

    pods: workers of a split task, 1 for an unsplit one. memory, retry_memory: bytes of the first attempt and of the one
    that follows a kill for memory; retry_memory None means that a kill fails the task. coordinator_merges: the
    coordinator merges itself; a plan written before that existed reads as False and has a node `<task>-merge`. image: the
    one that was built or found for the type; None is the one that the type names.
    """

    pods: int = 1
    split: bool = False
    cpus: Cpus = 1.0
    memory: int
    retry_memory: int | None = None
    coordinator_merges: bool = False
    image: str | None = None
