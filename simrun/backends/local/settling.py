"""Finding out what became of attempts: whose supervisor lives, whose has left a record, whose is lost. Blocking.

A supervisor that was killed leaves its command behind. Before such an attempt counts as lost, so that another may start, what
it left is found and killed: two attempts of one worker never run side by side.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simrun.backends.local import groups, processes, records
from simrun.backends.local.processes import Identity
from simrun.backends.local.records import AttemptFiles, Exit, Start
from simrun.backends.local.state import StoredWorkflow

_KILL_TRIES = 500
_KILL_WAIT_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt that is over, and how."""

    exit: Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """An attempt that a living supervisor runs. `pidfd` refers to it, and is the receiver's to close."""

    start: Start
    pidfd: int


Outcome = Ended | Alive


@dataclass(slots=True, kw_only=True)
class Job:
    """An attempt to find out about.

    `known` is its supervisor, as far as the asker knows; another may run it. `given` is how it ended before anything of it
    was started.
    """

    place: AttemptFiles
    uid: str
    memory: int = 0
    known: Identity | None = None
    given: Exit | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A workflow from disk, and by worker what became of its attempts, in order of their index."""

    workflow: StoredWorkflow
    outcomes: Mapping[str, Sequence[Outcome]]


def restore(workflow: StoredWorkflow, place: Callable[[str, str, int], AttemptFiles]) -> Restored:
    """Find out what became of all attempts of a workflow that another engine started."""
    outcomes: dict[str, list[Outcome]] = {}
    for worker, attempts in workflow.attempts.items():
        outcomes[worker] = []
        for index, attempt in enumerate(attempts):
            if attempt.exit is not None:
                outcomes[worker].append(Ended(exit=attempt.exit))
            else:
                job = Job(place=place(workflow.name, worker, index), uid="")
                outcomes[worker].append(settle(job))
    return Restored(workflow, outcomes)


def settle_all(jobs: Iterable[Job]) -> list[Outcome | OSError]:
    """Settle many; where the disk fails its error is given, since the attempt must not count as lost for that."""
    outcomes: list[Outcome | OSError] = []
    for job in jobs:
        try:
            outcomes.append(settle(job))
        except OSError as error:
            outcomes.append(error)
    return outcomes


def settle(job: Job) -> Outcome:
    """Say what became of an attempt, and make it final when it is lost.

    Called when the supervisor that is known has ended, or none is known.
    """
    place = job.place
    if job.given is not None:
        return Ended(exit=conclude(place, job.given))
    exit_ = records.read_exit(place.exit)
    if exit_ is not None:
        return Ended(exit=exit_)
    start = records.read_start(place.start)
    if start is not None:
        identity = Identity(start.boot, start.pid, start.start)
        pidfd = None if identity == job.known else watch(identity)
        if pidfd is not None:
            return Alive(start=start, pidfd=pidfd)
        # It may have ended between the two looks
        if (exit_ := records.read_exit(place.exit)) is not None:
            return Ended(exit=exit_)
        kill_leftovers(start)
    lost = Exit(
        uid=start.uid if start is not None else job.uid,
        code=None,
        reason="lost",
        enforced=start.enforced if start is not None else None,
        started=start.started if start is not None else None,
        ended=time.time(),
        memory=start.memory if start is not None else job.memory,
    )
    return Ended(exit=conclude(place, lost))


def conclude(place: AttemptFiles, exit_: Exit) -> Exit:
    """Put an end on disk; the one that counts, which is another when there was one."""
    if records.write(place.exit, exit_):
        return exit_
    return records.read_exit(place.exit) or exit_


def watch(identity: Identity) -> int | None:
    """Give a pidfd of a process, None when it is gone."""
    if not identity.is_alive():
        return None
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    if (
        identity.is_alive()
    ):  # still, so the descriptor is of this process and of none that got its number
        return pidfd
    os.close(pidfd)
    return None


def kill_leftovers(start: Start) -> None:
    """Kill everything that an attempt without its supervisor left, and wait until it is gone."""
    group = groups.group_of(Path(start.cgroup), start.uid) if start.cgroup is not None else None
    for _ in range(_KILL_TRIES):
        left = (
            processes.leftovers(start.uid, start.pid) if start.boot == processes.boot_id() else []
        )
        if group is not None:
            left += groups.members(group)
        if not left:
            break
        processes.kill(left, signal.SIGKILL)
        time.sleep(_KILL_WAIT_S)
    if group is not None:
        groups.remove(group)
