"""The engine's state: its etcd, as files on a local disk.

    engine.lock                          held by the engine that is
    presence                             a counter that changes while an engine lives
    reservation.json                     the run that has the machine for itself
    workflows/<name>/workflow.json       run and pods; the workflow exists when this does
    workflows/<name>/stopped             it was asked to end; nothing of it is started any more
    workflows/<name>/<attempt>.start.json, .exit.json, .err      of each attempt, written by its supervisor
    ended/<name>/                        a workflow that had ended when an engine was opened: read only when asked for

Everything that decides is made once, by link, so two engines or a repeated call cannot both succeed. All of it blocks: the
engine calls it in a thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from simrun.backends.local import records
from simrun.backends.local.records import AttemptFiles, Exit, Start
from simrun.base.errors import Conflict, InvalidInput, Locked
from simrun.model.record import RunRecord
from simrun.model.tasktype import SecretRef
from simrun.pods import Pod
from simrun.store.mounts import network_file_system
from simrun.worker import files
from simrun.worker.protocol import attempt_name, parse_attempt_name

logger = logging.getLogger(__name__)

SCHEMA = 1
PRESENCE_BYTES = 32
KEEP_S = 7 * 24 * 3600.0
"""How long what was set aside is kept. A guard only: the service deletes workflows sooner, a lone `run` never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    """What the disk says of an attempt; both None: a number that was passed over."""

    start: Start | None = None
    exit: Exit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWorkflow:
    """What the disk says of a workflow. `attempts` by worker, in order of their index."""

    name: str
    run: str
    fingerprint: str
    priority: str | None = None
    uid: str
    pods: Sequence[Pod]
    stopped: bool = False
    attempts: Mapping[str, Sequence[StoredAttempt]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that was found: workflows, and by name what is wrong with those that cannot be read."""

    workflows: Sequence[StoredWorkflow]
    damaged: Mapping[str, str]


class EngineState:
    """The files of one engine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.presence = root / "presence"
        self._workflows = root / "workflows"
        self._ended = root / "ended"
        self._set_aside: set[str] = set()
        self._reservation = root / "reservation.json"
        self._lock: int | None = None
        self._beats = 0

    # --- the engine itself ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the directories and take the lock. Raises InvalidInput for a network file system, Locked."""
        if kind := network_file_system(self.root):
            raise InvalidInput.one(
                "state_dir",
                f"is on a network file system ({kind})",
                value=str(self.root),
                remedy="name a directory on a disk of this machine",
            )
        files.make_directory(self.root)
        files.make_directory(self._workflows)
        files.make_directory(self._ended)
        fd = os.open(self.root / "engine.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 100).decode(errors="replace").strip()
            os.close(fd)
            raise Locked(
                f"the local engine in {self.root} is run by process {holder or '(unknown)'}; "
                "end it, or wait for its end"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock = fd
        self.beat()

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def beat(self) -> None:
        """Change the presence file. Not made durable: after a crash there is nobody left to read it."""
        self._beats += 1
        text = f"{os.getpid()} {time.monotonic_ns()} {self._beats}"
        fd = os.open(self.presence, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, text.ljust(PRESENCE_BYTES)[:PRESENCE_BYTES].encode(), 0)
        finally:
            os.close(fd)

    # --- workflows -----------------------------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        """Give the directory of a workflow."""
        return (self._ended if name in self._set_aside else self._workflows) / name

    def create(self, name: str, record: RunRecord, uid: str, pods: Iterable[Pod]) -> str:
        """Make a workflow exist; the uid of the one that is there then. Raises Conflict when that is another submission's."""
        directory = self.directory(name)
        files.make_directory(directory)
        text = {
            "schema": SCHEMA,
            "run": record.id,
            "fingerprint": record.fingerprint,
            "priority": record.priority,
            "uid": uid,
            "pods": [_pod_to_json(pod) for pod in pods],
        }
        if files.create(directory / "workflow.json", files.encode(text)):
            return uid
        there = files.read_json(directory / "workflow.json")
        if (there["run"], there.get("fingerprint", "")) != (record.id, record.fingerprint):
            raise Conflict(
                f"workflow {name} exists and belongs to run {there['run']}, not {record.id} as it was submitted"
            )
        return str(there["uid"])

    def read(self, name: str) -> StoredWorkflow | None:
        """Read one workflow, None when it does not exist. Raises ValueError, KeyError, TypeError when it is damaged."""
        directory = self.directory(name)
        value = files.read_json(directory / "workflow.json")
        if value is None:
            return None
        if value["schema"] > SCHEMA:
            raise ValueError(f"schema {value['schema']} is newer than this simrun knows")
        pods = [_pod_from_json(item) for item in value["pods"]]
        names = files.listing(directory)
        return StoredWorkflow(
            name=name,
            run=value["run"],
            fingerprint=value.get("fingerprint", ""),
            priority=value.get("priority"),
            uid=value["uid"],
            pods=pods,
            stopped="stopped" in names,
            attempts=_attempts(directory, names),
        )

    def load(self, now: float) -> Loaded:
        """Read all workflows but those set aside; one that cannot be read is named and does not hide the others.

        What was set aside longer than KEEP_S before `now` (wall time) is removed.
        """
        found, damaged = [], {}
        self._set_aside = set(self._names(self._ended))
        for name in list(self._set_aside):
            if now - os.stat(self._ended / name).st_mtime > KEEP_S:
                self.remove(name)
        for name in sorted(self._names(self._workflows)):
            try:
                workflow = self.read(name)
            except (ValueError, KeyError, TypeError, OSError) as error:
                logger.warning("Workflow %s cannot be read: %s", self.directory(name), error)
                damaged[name] = str(error)
                continue
            if workflow is not None:
                found.append(workflow)
        return Loaded(found, damaged)

    def _names(self, directory: Path) -> list[str]:
        """Give the names of workflows in a directory, and finish removals that were cut."""
        names = files.listing(directory)
        for name in names:
            if name.startswith("."):
                shutil.rmtree(directory / name, ignore_errors=True)
        return [name for name in names if not name.startswith(".")]

    def set_aside(self, names: Iterable[str]) -> None:
        """Move workflows that have ended to where they cost the next engine nothing."""
        for name in names:
            os.utime(self._workflows / name)  # from now on KEEP_S counts
            os.rename(self._workflows / name, self._ended / name)
            self._set_aside.add(name)
        files.sync_directory(self._workflows)
        files.sync_directory(self._ended)

    def is_set_aside(self, name: str) -> bool:
        """Whether a workflow was set aside."""
        return name in self._set_aside

    def mark_stopped(self, name: str) -> None:
        """Remember that a workflow was asked to end."""
        files.create(self.directory(name) / "stopped", b"")

    def remove(self, name: str) -> None:
        """Remove a workflow: in one step for who looks, then its files."""
        directory = self.directory(name)
        trash = directory.with_name(f".{name}.{os.getpid()}")
        try:
            os.rename(directory, trash)
        except FileNotFoundError:
            return
        files.sync_directory(directory.parent)
        self._set_aside.discard(name)
        shutil.rmtree(trash, ignore_errors=True)

    # --- reservation ---------------------------------------------------------------------------------------------------

    def reserve(self, run: str) -> str:
        """Reserve the machine for a run unless it is; the run that has it then."""
        if files.create(self._reservation, files.encode({"schema": SCHEMA, "run": run})):
            return run
        return self.reserved() or run

    def reserved(self) -> str | None:
        """Give the run that has the machine for itself."""
        value = files.read_json(self._reservation)
        return None if value is None else str(value["run"])

    def release(self, run: str) -> None:
        """Give the machine back, if this run has it."""
        if self.reserved() == run:
            os.unlink(self._reservation)
            files.sync_directory(self.root)


def _attempts(directory: Path, names: Iterable[str]) -> dict[str, list[StoredAttempt]]:
    """Read the records of all attempts. A number without records below one that has some was passed over."""
    known: dict[str, set[int]] = {}
    for name in names:
        stem, _, rest = name.partition(".")
        parsed = parse_attempt_name(stem) if rest in ("start.json", "exit.json") else None
        if parsed is not None:
            known.setdefault(parsed[0], set()).add(parsed[1])
    return {
        worker: [_attempt(directory, worker, index) for index in range(max(indices) + 1)]
        for worker, indices in known.items()
    }


def _attempt(directory: Path, worker: str, index: int) -> StoredAttempt:
    place = AttemptFiles(directory, attempt_name(worker, index))
    return StoredAttempt(start=records.read_start(place.start), exit=records.read_exit(place.exit))


# --- pods as JSON --------------------------------------------------------------------------------------------------------

_POD_FIELDS = {item.name for item in fields(Pod)}


def _pod_to_json(pod: Pod) -> dict[str, Any]:
    value = {name: getattr(pod, name) for name in _POD_FIELDS}
    value["secret_env"] = {
        name: [reference.secret, reference.key] for name, reference in pod.secret_env.items()
    }
    return value


def _pod_from_json(value: Mapping[str, Any]) -> Pod:
    known = {name: item for name, item in value.items() if name in _POD_FIELDS}
    known["command"] = tuple(known["command"])
    known["needs"] = tuple(known["needs"])
    known["secret_env"] = {
        name: SecretRef(secret=secret, key=key)
        for name, (secret, key) in known["secret_env"].items()
    }
    return Pod(**known)
