"""What an end means: the exit code and the reason that count, from all that a supervisor saw. Pure, standard library only."""

from __future__ import annotations

import signal
from typing import Literal, NamedTuple

from simrun.backends.local.records import DEADLINE_EXIT, KILLED_EXIT, TERMINATED_EXIT, Order

Cause = Literal["asked", "deadline", "orphaned", "memory"]
"""Why a supervisor ended an attempt: it was asked to, its time was up, no engine was there, it was over its memory."""


class Verdict(NamedTuple):
    """How an attempt ended. `code` as the contract has it, which need not be what the command returned."""

    reason: str
    code: int
    oom: bool = False
    message: str = ""


def verdict(order: Order, status: int, cause: Cause | None, *, killed: bool) -> Verdict:
    """Judge an end by the first rule that holds.

    `status` is the exit code of the command, or minus the signal that ended it; `killed` says that its limit killed something
    for memory. An exit with 0 is a success, whatever was counted; a kill in an attempt that was told to end is no evidence
    against its memory.
    """
    code = 128 - status if status < 0 else status
    if cause == "deadline":
        text = f"not done within {order.deadline_s:g} s"
        return Verdict("deadline", DEADLINE_EXIT, message=text)
    if code == 0:
        return Verdict("completed", 0)
    if cause == "orphaned":
        text = f"no engine was there for {order.orphan_s:g} s"
        return Verdict("evicted", TERMINATED_EXIT, message=text)
    if cause == "asked":
        return Verdict("cancelled", code)
    if killed:
        return Verdict("oom", KILLED_EXIT, oom=True)
    if status in (-signal.SIGKILL, -signal.SIGTERM) or code == TERMINATED_EXIT:
        return Verdict("evicted", code)
    if order.harness and status == KILLED_EXIT:
        # A harness that lost its simulation to the kernel has a kill counted in its cgroup; without one it only asks
        return Verdict("asked", code)
    return Verdict("error", code)
