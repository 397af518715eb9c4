"""Models to bytes and back, with a schema version in each file.

A reader of schema N reads N-1 (through a step in `_FROM_PREVIOUS`) and refuses N+1 by name: guessing at a newer file
could lose what it says. What can't be read is a DamagedRecord, which nobody overwrites.
"""

from __future__ import annotations

import errno
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from simrun.base.errors import DamagedRecord, UnknownSchema
from simrun.model.record import RunRecord
from simrun.worker import files

M = TypeVar("M", bound=BaseModel)

SCHEMA = 1

_NO_RECORD = frozenset(
    {errno.EINVAL, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO}
)
"""What opening something says that stands in the place of a record and is none; trying again would not help."""


def _record_0(data: dict[str, Any]) -> dict[str, Any]:
    """Schema 0 counted memory in GiB and knew neither revisions nor rounds."""
    plans = {}
    for task, plan in data.get("plans", {}).items():
        new = {key: value for key, value in plan.items() if not key.endswith("_gb")}
        for name in ("memory", "retry_memory"):
            if (old := plan.get(name + "_gb")) is not None:
                new[name] = int(float(old) * 2**30)  # float: a text would be repeated, not refused
        plans[task] = new
    return {**data, "plans": plans}


_FROM_PREVIOUS: dict[type[BaseModel], Callable[[dict[str, Any]], dict[str, Any]]] = {
    RunRecord: _record_0,
}


def encode(model: BaseModel) -> bytes:
    """Give a model as JSON; values that are the default are left out, the schema never is."""
    # One dump and one encode: a record is written many times a second
    data = model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return files.encode({"schema": SCHEMA, **data})


def decode(kind: type[M], data: bytes, path: Path) -> M:
    """Read a model; `path` is for the error. Raises DamagedRecord, UnknownSchema."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedRecord(f"{path}: is no JSON ({error}); {len(data)} bytes") from error
    if not isinstance(value, dict):
        raise DamagedRecord(f"{path}: holds a {type(value).__name__}, not an object")
    schema = value.pop("schema", 0)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 0:
        raise DamagedRecord(f"{path}: its schema is {schema!r}, not a number")
    if schema > SCHEMA:
        raise UnknownSchema(
            f"{path}: has schema {schema}, this simrun knows up to {SCHEMA}; use a newer simrun"
        )
    if schema == SCHEMA - 1 and (step := _FROM_PREVIOUS.get(kind)):
        try:
            value = step(value)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise DamagedRecord(f"{path}: has schema {schema} and can't be brought up") from error
    try:
        return kind.model_validate({"schema": SCHEMA, **value})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise DamagedRecord(
            f"{path}: {field}: {first['msg']} ({error.error_count()} problems)"
        ) from error


class Decoded(Generic[M]):
    """What files were decoded to: a file that still holds the same bytes need not be decoded again.

    Holds the files that were used last, up to `most` bytes of JSON and so many `files`, and one in any case; the models of that take
    ten to thirty times as much.
    """

    def __init__(self, most: int = 4 * 2**20, files: int | None = None) -> None:
        self._most, self._files, self._size = most, files, 0
        self._known: OrderedDict[Path, tuple[bytes, M]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, path: Path, data: bytes, model: M) -> None:
        """Remember what a file holds."""
        with self._lock:
            self._drop(path)
            self._known[path] = data, model
            self._size += len(data)
            while len(self._known) > 1 and self._is_full():
                self._drop(next(iter(self._known)))

    def get(self, path: Path, data: bytes) -> M | None:
        """Give what these bytes of this file are, if that is known."""
        with self._lock:
            known = self._known.get(path)
            if known is None or known[0] != data:
                return None
            self._known.move_to_end(path)
            return known[1]

    def last(self, path: Path) -> M | None:
        """Give what a file held when it was last read or written here, which may not be what it holds now."""
        with self._lock:
            known = self._known.get(path)
            if known is None:
                return None
            self._known.move_to_end(path)
            return known[1]

    def forget(self, path: Path) -> None:
        """Forget a file: it is gone, or can't be read."""
        with self._lock:
            self._drop(path)

    def _is_full(self) -> bool:
        too_many = self._files is not None and len(self._known) > self._files
        return too_many or self._size > self._most

    def _drop(self, path: Path) -> None:
        if (known := self._known.pop(path, None)) is not None:
            self._size -= len(known[0])


def read(
    kind: type[M], path: Path, *, listed: bool = False, decoded: Decoded[M] | None = None
) -> M | None:
    """Read a model from a file; None when there is none. `listed`: a listing has shown it.

    Raises DamagedRecord, UnknownSchema; OSError if the store fails.
    """
    if decoded is None:
        data = _bytes(path, listed)
        return None if data is None else decode(kind, data, path)
    try:
        data = _bytes(path, listed)
        if data is None:
            decoded.forget(path)
            return None
        if (known := decoded.get(path, data)) is not None:
            return known
        model = decode(kind, data, path)
    except DamagedRecord:
        decoded.forget(path)
        raise
    decoded.put(path, data, model)
    return model


def find(kind: type[M], path: Path, *, decoded: Decoded[M] | None = None) -> M | None:
    """As `read`, but a denial counts only when a listing of the directory agrees: that of a lookup may come from a cache."""
    found = read(kind, path, decoded=decoded)
    if found is None and path.name in files.listing(path.parent):
        found = read(kind, path, listed=True, decoded=decoded)
    return found


def _bytes(path: Path, listed: bool) -> bytes | None:
    try:
        return files.read(path, listed=listed)
    except OSError as error:
        if error.errno in _NO_RECORD:
            raise DamagedRecord(f"{path}: can't be read: {error.strerror}") from error
        raise
