"""Which ready worker starts next on a machine that cannot run all of them. Pure.

Coordinators, merges and unsplit tasks come before extra workers. Among workflows, those of higher priority are next, and of one
priority who uses the fewest processors, so a big run does not starve a small one. A worker that does not fit may be passed, so that
small ones fill the machine, but not for ever: one that was passed often enough keeps all others back until there is room for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from simrun.backends.local.dag import Priority, Worker, Workflow

PASSES = 32
"""How often a worker is passed before it holds back all others."""
DEPTH = 64
"""How far down a queue one that fits is looked for; workers of one queue mostly have one size."""
_ORDER: tuple[Priority, ...] = ("base", "extra")
_SLACK = 1e-9


class Capacity:
    """Processors and bytes of memory that running attempts may have together."""

    def __init__(self, cpus: float, memory: int) -> None:
        self.cpus, self.memory = cpus, memory
        self.used_cpus, self.used_memory, self.holders = 0.0, 0, 0

    def fits(self, cpus: float, memory: int) -> bool:
        """Whether an attempt of that size may start. Alone, any may: it would wait for ever otherwise."""
        return self.holders == 0 or (
            self.used_cpus + cpus <= self.cpus + _SLACK and self.used_memory + memory <= self.memory
        )

    @property
    def full(self) -> bool:
        """Whether nothing fits, of whatever size; the quick answer while all processors are taken."""
        return self.holders > 0 and self.used_cpus > self.cpus - _SLACK

    def take(self, cpus: float, memory: int) -> None:
        """Count an attempt in."""
        self.used_cpus += cpus
        self.used_memory += memory
        self.holders += 1

    def give(self, cpus: float, memory: int) -> None:
        """Count an attempt out."""
        self.holders -= 1
        self.used_memory -= memory
        # Sums of fractions drift; nothing running is nothing used
        self.used_cpus = self.used_cpus - cpus if self.holders else 0.0


class Pick(NamedTuple):
    """The worker that starts next."""

    workflow: Workflow
    worker: Worker


def next_pick(
    workflows: Collection[Workflow], capacity: Capacity, reserved: str | None = None
) -> Pick | None:
    """Give the worker that starts next, None when none may now. It is taken from nothing: the caller begins it.

    `reserved` is the run that has the machine for itself: no other starts anything, and it starts only when no other has
    anything running.
    """
    if capacity.full:
        return None
    if reserved is not None:
        if any(one.running for one in workflows if one.run != reserved):
            return None
        workflows = [one for one in workflows if one.run == reserved]
    passed: list[Worker] = []
    for pick in _candidates(workflows):
        worker = pick.worker
        if capacity.fits(worker.pod.cpus, worker.next_memory):
            for other in passed:
                other.passed += 1
            return pick
        if worker.passed >= PASSES:
            return None
        passed.append(worker)
    return None


def _candidates(workflows: Collection[Workflow]) -> Iterator[Pick]:
    """Give ready workers in the order in which they are asked, the first few of each queue."""
    by_use = sorted(workflows, key=lambda one: (-one.rank, _cpus_in_use(one)))  # stable: by age
    for priority in _ORDER:
        for workflow in by_use:
            for _, name in zip(range(DEPTH), workflow.ready[priority], strict=False):
                yield Pick(workflow, workflow.workers[name])


def _cpus_in_use(workflow: Workflow) -> float:
    return sum(workflow.workers[name].pod.cpus for name in workflow.running)
