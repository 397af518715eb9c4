"""What the harness in a pod and the rest of simrun agree on: names, exit codes, forms of files.

docs/contract.md says the same in prose. Both sides import this module, and it imports the standard library only.
An older harness must go on working under a newer service and the other way round: names are added, never reused.
"""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

HARNESS_PROTOCOL: Final = 1
"""Stands in every report. 1: knows rounds (SIMRUN_ATTEMPT_BASE) and merges in the coordinator."""

SCHEMA: Final = 1
"""Schema of the files that the harness writes. A reader of N reads N-1."""

GIB: Final = 2**30

# --- environment ---------------------------------------------------------------------------------------------------
ENV_RUN: Final = "SIMRUN_RUN"
ENV_TASK: Final = "SIMRUN_TASK"
ENV_WORKER: Final = "SIMRUN_WORKER"
ENV_ATTEMPT: Final = "SIMRUN_ATTEMPT"
ENV_ATTEMPT_BASE: Final = "SIMRUN_ATTEMPT_BASE"
ENV_ROLE: Final = "SIMRUN_ROLE"
ENV_MERGE: Final = "SIMRUN_MERGE"
ENV_TASK_DIR: Final = "SIMRUN_TASK_DIR"
ENV_SCRATCH: Final = "SIMRUN_SCRATCH"
ENV_SNAPSHOTS: Final = "SIMRUN_SNAPSHOTS"
ENV_STALE_S: Final = "SIMRUN_STALE_S"
ENV_GRACE_S: Final = "SIMRUN_GRACE_S"
ENV_TIMEOUT_S: Final = "SIMRUN_TIMEOUT_S"
ENV_MEMORY_GB: Final = "SIMRUN_MEMORY_PER_WORKER_GB"
ENV_RETRY_MEMORY_GB: Final = "SIMRUN_RETRY_MEMORY_GB"
ENV_CPUS: Final = "SIMRUN_CPUS"
ENV_POD_UID: Final = "SIMRUN_POD_UID"
ENV_NODE: Final = "SIMRUN_NODE"

ROLE_BASE: Final = "base"
ROLE_EXTRA: Final = "extra"
ROLE_MERGE: Final = "merge"
ROLE_EXEC: Final = "exec"

DEFAULT_GRACE_S: Final = 30.0
STALE_MARGIN_S: Final = 60.0
"""SIMRUN_STALE_S is the grace plus this: a pod that is asked to end may still beat during its grace."""

HEARTBEAT_S: Final = 10.0
UNIT_TRIES: Final = 2
"""Faults of its own after which a unit is given up."""


class Exit(IntEnum):
    """Exit codes of the harness. 64 and 65 belong to Argo's executor."""

    DONE = 0
    BAD_SETTINGS = 2
    FAILED = 3
    STORE = 6
    MEMORY = 137
    TERMINATED = 143


ARGO_RETRIES: Final = ("-1", "137", "143", "6")
"""Exit codes after which an attempt is made again; "-1" is a pod without an exit code."""


def retry_limit(max_evictions: int) -> int:
    """Give the highest number of retries of a worker: each eviction may be followed by one attempt that only asks for memory."""
    return 2 * max_evictions + 2


# --- reasons of an attempt -------------------------------------------------------------------------------------------
REASONS: Final = (
    "completed",
    "error",
    "oom",
    "evicted",
    "preempted",
    "lost",
    "deadline",
    "start_error",
    "asked",
    "cancelled",
)

# --- files of a task -------------------------------------------------------------------------------------------------
MERGE_MARKER: Final = ".simrun-merged"
UNIT_RECORD: Final = ".simrun-record.json"
RESULT: Final = "result.json"


class TaskDir(NamedTuple):
    """The directory of a task in the run store, and the names of what is in it."""

    root: Path

    @property
    def run_dir(self) -> Path:
        """The directory of the run."""
        return self.root.parent.parent

    @property
    def settings(self) -> Path:
        """settings.json, written by the service before submission."""
        return self.root / "settings.json"

    @property
    def units(self) -> Path:
        """The unit table: chunks <sha>.jsonl and index.json, which alone says that the table exists."""
        return self.root / "units"

    @property
    def claims(self) -> Path:
        """Tokens (.<holder>.<n>) and claims (<unit>.<generation>), hard links of tokens."""
        return self.root / "claims"

    @property
    def heartbeats(self) -> Path:
        """One file per holder: counter and memory journal."""
        return self.root / "heartbeats"

    @property
    def dead(self) -> Path:
        """One file per holder that the service saw end."""
        return self.root / "dead"

    @property
    def done(self) -> Path:
        """<unit>: link of the committed record of a unit."""
        return self.root / "done"

    @property
    def faults(self) -> Path:
        """<unit>.<generation>: this generation ended through the unit's own fault."""
        return self.root / "faults"

    @property
    def failed(self) -> Path:
        """<unit>.<generation>: link of the record of a unit given up."""
        return self.root / "failed"

    @property
    def work(self) -> Path:
        """<unit>.<generation>/: output of a unit under the generation that computed it."""
        return self.root / "work"

    @property
    def inputs(self) -> Path:
        """Local files that came with the submission, by port."""
        return self.root / "in"

    @property
    def out(self) -> Path:
        """The output of the task. Of a split task it is complete when it holds the merge marker."""
        return self.root / "out"

    @property
    def attempts(self) -> Path:
        """<worker>-<attempt>.json: evidence that the service keeps."""
        return self.root / "attempts"

    @property
    def reports(self) -> Path:
        """<worker>-<attempt>.json: the harness's reports."""
        return self.root / "reports"

    @property
    def recorded(self) -> Path:
        """<worker>-<attempt>.json: the observation of this attempt was stored."""
        return self.root / "recorded"

    @property
    def memory(self) -> Path:
        """<worker>-<attempt>: the service stored a kill for memory."""
        return self.root / "memory"

    @property
    def logs(self) -> Path:
        """<worker>-<attempt>.log."""
        return self.root / "logs"


# --- names -------------------------------------------------------------------------------------------------------------
_ATTEMPT_FILE = re.compile(r"(?P<worker>.+)-(?P<attempt>[0-9]+)")
_CLAIM = re.compile(r"(?P<unit>[0-9]+)\.(?P<generation>[0-9]+)")


def worker_name(task: str, index: int) -> str:
    """Give the name of worker `index` of a split task; 0 is the coordinator."""
    return f"{task}-w{index}"


def merge_name(task: str) -> str:
    """Give the name of the merge of a task whose coordinator doesn't merge."""
    return f"{task}-merge"


def attempt_name(worker: str, attempt: int) -> str:
    """Give the stem of every file about one attempt."""
    return f"{worker}-{attempt}"


def parse_attempt_name(stem: str) -> tuple[str, int] | None:
    """Take `<worker>-<attempt>` apart; None when it is no such name."""
    match = _ATTEMPT_FILE.fullmatch(stem)
    return (match["worker"], int(match["attempt"])) if match else None


def holder_name(worker: str, attempt: int, pod_uid: str) -> str:
    """Give the name under which one pod holds claims: `<worker>-<attempt>.<first 8 of the pod uid>`.

    The uid tells apart two pods that were made under the same attempt number.
    """
    return f"{attempt_name(worker, attempt)}.{pod_uid[:8]}"


def claim_name(unit: int, generation: int) -> str:
    """Give the name of a claim, a fault or a failure: `<unit>.<generation>`; generations count from 1."""
    return f"{unit}.{generation}"


def parse_claim_name(name: str) -> tuple[int, int] | None:
    """Take `<unit>.<generation>` apart; None for tokens and anything else."""
    match = _CLAIM.fullmatch(name)
    return (int(match["unit"]), int(match["generation"])) if match else None
