"""Signs of life: each holder rewrites a small record; others judge by whether its bytes change, on their own clock.

No time stamp of another machine is ever compared, so no clock has to be right. The record carries the memory journal as well,
so that a kill which takes the harness with it leaves what was measured up to the last beat.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from simrun.worker import files
from simrun.worker.protocol import HEARTBEAT_S, TaskDir

RECORD_BYTES = 512
"""Length of every record, so that one write replaces all of the one before."""

LONGEST_GAP_S = 3 * HEARTBEAT_S
"""What counts at most between two looks of a watcher."""


def boottime() -> float:
    """Give seconds since the start of this machine, including time it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Journal:
    """What a beat says. Bytes; None where nothing could be measured."""

    seq: int
    unix: float
    boottime: float
    limit: int | None = None
    current: int | None = None
    peak: int | None = None
    unreclaimable: int | None = None
    peak_unreclaimable: int | None = None
    cpu_usec: int | None = None
    """CPU time since the attempt began."""
    oom_kills: int | None = None
    """Rise of the kernel's oom_kill counter since the attempt began."""

    def encode(self) -> bytes:
        """Give the record: checksum, fields, and blanks up to RECORD_BYTES."""
        body = json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode()
        return b"%08x %s" % (zlib.crc32(body), body.ljust(RECORD_BYTES - 10)) + b"\n"


_FIELDS = frozenset(field.name for field in dataclasses.fields(Journal))


def read_journal(data: bytes | None) -> Journal | None:
    """Take a heartbeat's bytes apart; None when there are none, or when they are torn or of another make.

    Fields that a newer harness added are left out.
    """
    if data is None or len(data) != RECORD_BYTES:
        return None
    checksum, _, body = data.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body.rstrip()):
            return None
        fields = json.loads(body)
        return Journal(**{name: value for name, value in fields.items() if name in _FIELDS})
    except (ValueError, TypeError, AttributeError):
        return None


def heartbeat_path(task_dir: TaskDir, holder_name: str) -> Path:
    """Give where the heartbeat of a holder is."""
    return task_dir.heartbeats / holder_name


class Ticker:
    """Calls a function at once and then every `interval` seconds, from a thread of its own, until stopped.

    An exception of the function doesn't end the thread: it is kept in `error` until a later call succeeds.
    """

    def __init__(
        self, name: str, action: Callable[[], object], interval: float, *, at_once: bool = True
    ) -> None:
        self._action = action
        self._interval = interval
        self._at_once = at_once
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._error: Exception | None = None

    @property
    def error(self) -> Exception | None:
        """What the last call raised; None when it succeeded."""
        return self._error

    def start(self) -> None:
        """Start the thread; the first call is made in it."""
        self._thread.start()

    def stop(self, timeout: float | None = 5.0) -> bool:
        """Let no further call begin, and wait for the one under way at most `timeout` seconds; whether none is left."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._at_once:
            self._call()
        while not self._stopping.wait(self._interval):
            self._call()

    def _call(self) -> None:
        try:
            self._action()
            self._error = None
        except Exception as error:  # noqa: BLE001 - the next call may succeed; a dead thread would look like a dead worker
            self._error = error


class Heartbeat:
    """The record of one holder under heartbeats/. `measure` gives fields of Journal from `limit` on, by name.

    The first beat is made by `start` itself, so that a holder is seen alive before it claims; the rest by a thread, which
    waits for nothing but the store.
    """

    def __init__(
        self,
        task_dir: TaskDir,
        holder_name: str,
        measure: Callable[[], dict[str, int | None]],
        *,
        interval: float = HEARTBEAT_S,
    ) -> None:
        self._path = heartbeat_path(task_dir, holder_name)
        self._measure = measure
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._seq = 0
        self._last = boottime()
        self._ticker = Ticker("heartbeat", self.beat, interval, at_once=False)

    def start(self) -> None:
        """Make the first beat, durably (OSError when the store fails), and start the thread."""
        files.make_directory(self._path.parent)
        self.beat()
        files.sync_directory(self._path.parent)
        self._ticker.start()

    def beat(self) -> None:
        """Make one beat now, for instance before ending with news that must not be lost."""
        with self._lock:
            self._seq += 1
            record = Journal(self._seq, time.time(), boottime(), **self._measured()).encode()
            try:
                self._write(record)
            except OSError:
                # The held file may be the trouble (ESTALE); so the next beat opens it anew
                self._close()
                raise
            self._last = boottime()

    def silent_for(self) -> float:
        """Give the seconds since the last beat that reached the store."""
        return boottime() - self._last

    def stop(self) -> None:
        """End the thread, and make a last beat if the store lets it."""
        if not self._ticker.stop():
            return  # the store hangs, and so would this
        try:
            self.beat()
        except OSError:
            pass  # nobody is hurt: the worker ends anyway
        with self._lock:
            self._close()

    def _measured(self) -> dict[str, int | None]:
        try:
            return self._measure()
        except Exception:  # noqa: BLE001 - a beat without figures is a beat; without a beat the worker's units are taken
            return {}

    def _write(self, record: bytes) -> None:
        if self._fd is None:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._fd, record, 0)
        os.fsync(self._fd)

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                os.close(fd)
            except OSError:
                pass  # a late error of an earlier write, which fsync has told already


@dataclass(slots=True)
class _Seen:
    data: bytes | None
    unchanged_s: float = 0.0


class Watcher:
    """Judges the heartbeats of others: a holder is stale when its bytes did not change for `stale_s` seconds.

    A holder without a heartbeat is judged like one that never changes. A long pause between two looks of this watcher itself
    (it was suspended, the store hung) counts as a short one, since whoever was paused with it could not beat.
    """

    def __init__(
        self, task_dir: TaskDir, stale_s: float, *, clock: Callable[[], float] = boottime
    ) -> None:
        self._dir = task_dir
        self._stale_s = stale_s
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._looked: float | None = None

    def look(self, holder_names: Iterable[str]) -> set[str]:
        """Read the heartbeats of these holders and give the stale ones; forgets those that are not asked for any more."""
        names = set(holder_names)
        # Opening a name that isn't there would leave a cached "no such file", which hides the first beats
        present = files.listing(self._dir.heartbeats) & names
        contents = {
            name: files.read(heartbeat_path(self._dir, name)) if name in present else None
            for name in names
        }
        now = self._clock()
        gap = min(now - self._looked, LONGEST_GAP_S) if self._looked is not None else 0.0
        self._looked = now
        seen, self._seen = self._seen, {}
        for name, data in contents.items():
            before = seen.get(name)
            changed = before is None or before.data != data
            self._seen[name] = _Seen(
                data, 0.0 if changed or before is None else before.unchanged_s + gap
            )
        return {name for name, one in self._seen.items() if one.unchanged_s >= self._stale_s}
