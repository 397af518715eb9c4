"""A workflow as the engine follows it: what may start, what is tried again, how it stands. Pure: no clock, no files.

The rules are those that the same pods have under Argo, so that a run ends alike on both: a worker starts when those it needs
have succeeded; an attempt is made again after the exit codes and losses that the contract names, with the retry memory
after a 137; the first worker that fails for good keeps new ones from starting, and those that run are let finish.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.backends.local.records import KILLED_EXIT, Exit
from simrun.model.priorities import rank
from simrun.model.quantities import format_memory
from simrun.model.report import Reason
from simrun.pods import Pod
from simrun.worker import protocol

Priority = Literal["base", "extra"]

_STORE_WAIT_S = 0.25
_STORE_WAIT_MAX_S = 15.0


@dataclass(slots=True)
class Try:
    """One attempt of a worker. `started` and `exit` come later."""

    index: int
    uid: str
    memory: int
    created: float
    started: float | None = None
    exit: Exit | None = None

    @property
    def code(self) -> str:
        """The exit code as a retry rule compares it: text, "-1" when there is none."""
        return "-1" if self.exit is None or self.exit.code is None else str(self.exit.code)

    @property
    def phase(self) -> Phase:
        """The phase of the attempt alone."""
        if self.exit is None:
            return Phase.PENDING if self.started is None else Phase.RUNNING
        if self.exit.code is None:
            return Phase.ERROR
        return Phase.FAILED if self.exit.code else Phase.SUCCEEDED


@dataclass(slots=True)
class Worker:
    """A pod with its attempts. `verdict` is final; `missing` counts the workers it still needs."""

    pod: Pod
    missing: int
    tries: list[Try]
    verdict: Phase | None = None
    passed: int = 0
    """How often another was started although this one was its turn; see capacity.py."""

    @property
    def running(self) -> bool:
        """Whether an attempt was ordered and has not ended."""
        return bool(self.tries) and self.tries[-1].exit is None

    @property
    def next_memory(self) -> int:
        """Bytes that the next attempt gets: the retry memory after an exit with 137."""
        pod = self.pod
        if self.tries and self.tries[-1].code == str(KILLED_EXIT) and pod.retry_memory is not None:
            return pod.retry_memory
        return pod.memory


def tried_again(pod: Pod, tries: Sequence[Try]) -> bool:
    """Whether an attempt follows the last of `tries`, which has ended.

    A kill for memory without a retry memory, or a second one with it, would only be repeated: there the worker fails.
    """
    last = tries[-1]
    if last.exit is None or last.code not in protocol.ARGO_RETRIES or len(tries) > pod.retry_limit:
        return False
    if not last.exit.oom:
        return True
    if pod.retry_memory is None:
        return False
    killed_before = any(one.exit is not None and one.exit.oom for one in tries[:-1])
    return not (killed_before and last.memory >= pod.retry_memory)


def wait_before_retry(tries: Sequence[Try]) -> float:
    """Give the seconds before the next attempt. Only a store that failed is given time, more each time."""
    if tries[-1].code != str(int(protocol.Exit.STORE)):
        return 0.0
    failures = sum(one.code == tries[-1].code for one in tries)
    return min(_STORE_WAIT_S * 2.0 ** (failures - 1), _STORE_WAIT_MAX_S)


class Workflow:
    """The state of one workflow; changed only by the engine, on its loop."""

    def __init__(
        self,
        name: str,
        run: str,
        uid: str,
        pods: Iterable[Pod],
        *,
        host: str = "",
        fingerprint: str = "",
        priority: str | None = None,
    ) -> None:
        self.name, self.run, self.uid, self.host = name, run, uid, host
        self.fingerprint = fingerprint
        """Of the submission that it runs."""
        self.rank = rank(priority)
        """Workflows of a higher one come first."""
        self.workers = {
            pod.worker: Worker(pod=pod, missing=len(set(pod.needs)), tries=[]) for pod in pods
        }
        self.ready: dict[Priority, deque[str]] = {"base": deque(), "extra": deque()}
        self.running: set[str] = set()
        self.stopped = False
        self.failed: str | None = None
        """The first worker whose failure fails the workflow."""
        self._dependents: dict[str, list[str]] = {}
        self._waiting: set[str] = set()
        """Workers that were tried and will be again."""
        self._undecided = len(self.workers)
        self._required = sum(not worker.pod.may_fail for worker in self.workers.values())
        """Workers that must succeed and have not."""
        self._nodes: dict[str, Node] = {}
        for worker in self.workers.values():
            for need in set(worker.pod.needs):
                self._dependents.setdefault(need, []).append(worker.pod.worker)
            if not worker.missing:
                self._make_ready(worker)

    # --- what happens --------------------------------------------------------------------------------------------------

    def begin(self, name: str, uid: str, memory: int, now: float) -> Try:
        """Order the next attempt of a worker, which is taken from the ready ones."""
        worker = self.workers[name]
        queue = self.ready[worker.pod.priority]
        if name in queue:
            queue.remove(name)
        attempt = Try(index=len(worker.tries), uid=uid, memory=memory, created=now)
        worker.tries.append(attempt)
        worker.passed = 0
        self.running.add(name)
        self._waiting.discard(name)
        self._refresh(worker)
        return attempt

    def started(self, name: str, uid: str, at: float) -> None:
        """Note that the command of the last attempt runs; `uid` is that of the start that won."""
        worker = self.workers[name]
        worker.tries[-1].uid, worker.tries[-1].started = uid, at
        self._refresh(worker)

    def end(self, name: str, exit_: Exit) -> float | None:
        """Note how the last attempt of a worker ended; the seconds until it is tried again, None when it is not.

        The caller hands it back with `again` then.
        """
        worker = self.workers[name]
        worker.tries[-1].exit = exit_
        self.running.discard(name)
        if exit_.code == 0:
            self._decide(worker, Phase.SUCCEEDED)
        elif not self.stopped and tried_again(worker.pod, worker.tries):
            self._waiting.add(name)
            self._refresh(worker)
            return wait_before_retry(worker.tries)
        else:
            self._decide(worker, worker.tries[-1].phase)
        return None

    def again(self, name: str) -> None:
        """Let a worker be tried again, before those that have not run yet."""
        worker = self.workers[name]
        if worker.verdict is None and not worker.running and not self.stopped:
            self.ready[worker.pod.priority].appendleft(name)

    def stop(self) -> None:
        """Start nothing any more; what waits to be tried again has ended as it ended."""
        self.stopped = True
        for queue in self.ready.values():
            queue.clear()
        for name in sorted(self._waiting):
            self._decide(self.workers[name], self.workers[name].tries[-1].phase)
        for name in list(self._nodes):
            if not self.workers[name].tries:
                del self._nodes[name]

    # --- how it stands -------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        if self.running or self._waiting:
            return False
        return self.stopped or self.failed is not None or self._undecided == 0

    @property
    def phase(self) -> Phase:
        """The phase of the whole."""
        if self.ended:
            return Phase.FAILED if self._required else Phase.SUCCEEDED
        started = self.running or self._waiting or self._undecided < len(self.workers)
        return Phase.RUNNING if started else Phase.PENDING

    def status(self) -> BackendStatus:
        """Give the state as the protocol of backends has it."""
        message = ""
        if self.failed is not None:
            message = f"{self.failed}: {self._nodes[self.failed].message}"
        elif self.stopped and self.ended and self._required:
            message = "stopped"
        return BackendStatus(
            phase=self.phase, message=message, nodes=dict(self._nodes), uid=self.uid
        )

    # --- inside --------------------------------------------------------------------------------------------------------

    def _make_ready(self, worker: Worker) -> None:
        if not self.stopped and self.failed is None:
            self.ready[worker.pod.priority].append(worker.pod.worker)
            self._refresh(worker)

    def _decide(self, worker: Worker, phase: Phase) -> None:
        """Settle a worker, and what follows for those that need it."""
        name = worker.pod.worker
        self._settle(worker, phase)
        if phase is Phase.SUCCEEDED:
            self._required -= not worker.pod.may_fail
            for dependent in self._of_dependents(name):
                dependent.missing -= 1
                if not dependent.missing:
                    self._make_ready(dependent)
            return
        below = list(self._of_dependents(name))
        while below:
            dependent = below.pop()
            if dependent.verdict is None:
                self._settle(dependent, Phase.OMITTED)
                below += self._of_dependents(dependent.pod.worker)
        if not worker.pod.may_fail and self.failed is None and not self.stopped:
            self._fail(name)

    def _settle(self, worker: Worker, phase: Phase) -> None:
        worker.verdict = phase
        self._waiting.discard(worker.pod.worker)
        self._undecided -= 1
        self._refresh(worker)

    def _of_dependents(self, name: str) -> Iterator[Worker]:
        return (self.workers[dependent] for dependent in self._dependents.get(name, ()))

    def _fail(self, name: str) -> None:
        """Keep what has never run from starting; what was tried goes on to its end, retries included."""
        self.failed = name
        for queue in self.ready.values():
            for other in [one for one in queue if not self.workers[one].tries]:
                queue.remove(other)
                del self._nodes[other]

    def _refresh(self, worker: Worker) -> None:
        attempts = tuple(as_attempt(worker.pod, one, self.host) for one in worker.tries)
        phase = worker.verdict
        if phase is None:
            phase = Phase.RUNNING if worker.tries else Phase.PENDING
        message = attempts[-1].message if attempts else ""
        self._nodes[worker.pod.worker] = Node(phase=phase, attempts=attempts, message=message)


# --- words ---------------------------------------------------------------------------------------------------------------


def as_attempt(pod: Pod, one: Try, host: str) -> Attempt:
    """Give an attempt as the protocol of backends has it."""
    end = one.exit
    if end is None:
        return Attempt(
            n=pod.attempt_base + one.index,
            phase=one.phase,
            pod_uid=one.uid,
            node=host,
            created=one.created,
            started=one.started,
            memory=one.memory or None,
        )
    return Attempt(
        n=pod.attempt_base + one.index,
        phase=one.phase,
        reason=cast("Reason", end.reason),
        exit_code=end.code,
        oom=end.oom,
        message=describe(end),
        pod_uid=one.uid,
        node=host,
        created=one.created,
        started=end.started if end.started is not None else one.started,
        ended=end.ended,
        memory=one.memory or None,
        enforced=end.enforced,
        peak=end.peak,
        peak_unreclaimable=end.peak_unreclaimable,
        cpu_s=end.cpu_s,
    )


def describe(end: Exit) -> str:
    """Say how an attempt ended, for people; empty for one that went well."""
    if end.reason == "oom":
        how = ", seen by polling" if end.enforced == "polled" else ""
        return f"killed for memory at {format_memory(end.memory)}{how}"
    if end.message:
        return end.message
    if end.reason == "lost":
        return "its supervisor is gone and left no record"
    if end.reason == "cancelled":
        return "stopped"
    if end.reason == "asked":
        return "asks for the retry memory, after an earlier kill"
    if end.signal is not None:
        return f"killed by signal {end.signal} ({_signal_name(end.signal)})"
    return "the command failed" if end.code else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
