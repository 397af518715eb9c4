"""Plans of the tasks of a run: from their types and from what earlier attempts used. Pure.

The first memory of a task follows what its type used before, not what its type declares: declarations are guesses, mostly
far too high, now and then too low. With fewer than three peaks there is nothing to follow and the declaration holds. A peak counts
among these when its attempt completed: one that was evicted, cancelled or failed half-way might have used more, so it can only raise
what the others say. The margin is added, not multiplied: a fixed 128 MiB protects small tasks well and doesn't waste much on large ones.

The declared memory is no cap. A type whose runs grew beyond its declaration would otherwise be killed first every time,
although the store knows better; what a pod may have at most is the business of quotas, which say why they refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simrun.model.plan import TaskPlan
from simrun.model.quantities import MIB
from simrun.model.report import Observation
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Workflow

MIN_PEAKS = 3
"""Peaks that are needed before observations replace the declared memory."""
MARGIN = 128 * MIB
MARGIN_SHARE = 0.02
"""Of large peaks the margin is this share of them."""
STEP = 16 * MIB
"""Memory is given in multiples of this, so that plans don't differ for a few bytes."""
KILL_GROWTH = 1.2
KILL_STEP = 100 * MIB
"""A kill for memory says that more than the limit was needed; how much more is unknown. At least this much is tried."""


def plan_task(
    task_type: TaskType,
    observations: Sequence[Observation] = (),
    *,
    units: int | None,
    image: str | None,
    kills: Sequence[int] = (),
) -> TaskPlan:
    """Plan one task of a round.

    `observations` are those of the type. `units` is the number of units of a split task, None when they are not known
    before the run: then all workers that the type asks for are planned. `kills` are the limits, in bytes, at which
    attempts of this task were killed for memory in earlier rounds of the run: the new round starts above them.
    """
    memory = max(first_memory(task_type, observations), after_kills(kills))
    pods = 1
    if task_type.split is not None:
        wanted = task_type.split.workers
        pods = max(1, wanted if units is None else min(wanted, units))
    return TaskPlan(
        pods=pods,
        split=task_type.split is not None,
        cpus=task_type.resources.cpu,
        memory=memory,
        retry_memory=retry_memory(task_type, observations, memory),
        coordinator_merges=task_type.split is not None,
        image=image,
    )


def plan_run(
    workflow: Workflow,
    types: Mapping[str, TaskType],
    observations: Mapping[str, Sequence[Observation]],
    unit_counts: Mapping[str, int | None],
    *,
    images: Mapping[str, str | None] | None = None,
    kills: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, TaskPlan]:
    """Plan every task of a run.

    `observations` and `images` (those that were built or found) go by the name of the type; `unit_counts` and `kills`
    by task. A plan holds an image only where it is not the one that its type names: records stay small.
    """
    plans = {}
    for name, task in workflow.tasks.items():
        task_type = types[task.type]
        plans[name] = plan_task(
            task_type,
            observations.get(task.type, ()),
            units=unit_counts.get(name),
            image=(images or {}).get(task.type),
            kills=(kills or {}).get(name, ()),
        )
    return plans


def first_memory(task_type: TaskType, observations: Sequence[Observation]) -> int:
    """Give the memory of a first attempt in bytes: above the highest known peak, or as declared.

    The peak of an attempt that did not complete is only a lower bound, so it does not count towards the three that are needed;
    but it raises the result, since an attempt of this type is known to have needed that much.
    """
    if sum(_is_whole(seen) for seen in observations) < MIN_PEAKS:
        return task_type.resources.memory
    highest = max(_peaks(observations))
    margin = max(MARGIN, int(highest * MARGIN_SHARE))
    return max(_rounded_up(highest + margin), after_kills(_kill_limits(observations)))


def retry_memory(task_type: TaskType, observations: Sequence[Observation], memory: int) -> int:
    """Give the memory of the one attempt that follows a kill: twice the first, or more where more is known to be needed."""
    highest = max(_peaks(observations), default=0)
    declared = task_type.resources.retry_memory or 0
    wanted = max(2 * memory, highest + MARGIN, declared, task_type.resources.memory)
    return _rounded_up(max(wanted, after_kills(_kill_limits(observations))))


def after_kills(limits: Sequence[int]) -> int:
    """Give the least memory in bytes that is worth trying after kills at these limits; 0 when there were none."""
    if not limits:
        return 0
    highest = max(limits)
    return _rounded_up(max(int(highest * KILL_GROWTH), highest + KILL_STEP))


def _is_whole(seen: Observation) -> bool:
    """Whether a peak was measured to the end of an attempt that did all it had to do."""
    return seen.peak_memory is not None and seen.reason == "completed" and not seen.oom


def _peaks(observations: Sequence[Observation]) -> list[int]:
    """Give what attempts are known to have used at least, in bytes; kills are counted by their limits."""
    return [
        seen.peak_memory for seen in observations if seen.peak_memory is not None and not seen.oom
    ]


def _kill_limits(observations: Sequence[Observation]) -> list[int]:
    return [seen.given_memory for seen in observations if seen.oom]


def _rounded_up(size: int) -> int:
    return -(-size // STEP) * STEP
