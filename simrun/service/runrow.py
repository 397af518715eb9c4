"""A run in a line: what lists show, what the index keeps, and what the stream of all runs tells at each change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from simrun.base.errors import DamagedRecord
from simrun.model.record import RunRecord
from simrun.store import codec

DAMAGED = "damaged"
"""The state of a run whose record can't be read."""
_TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run. Times are wall seconds.

    live: it has not ended, or something of it is pending. tasks: how many are in each state. damaged: why its record can't be read.
    """

    id: str
    group: str
    owner: str
    name: str
    state: str
    live: bool
    created: float
    ended: float | None
    revision: int
    labels: dict[str, str] = field(default_factory=dict)
    damaged: str | None = None
    started: float | None = None
    round: int = 0
    tasks: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Give the row as a JSON object in one line."""
        # Not by asdict, which copies the dicts: this is made at each change, and for each of 100,000 at a start
        return json.dumps({name: getattr(self, name) for name in _FIELDS}, separators=(",", ":"))


_FIELDS = tuple(field.name for field in fields(RunRow))


def parsed(text: str) -> RunRow:
    """Give the row that a text says."""
    return RunRow(**json.loads(text))


def row_of(record: RunRecord) -> RunRow:
    """Give the row of a record."""
    return RunRow(
        record.id,
        record.group,
        record.owner,
        record.name,
        str(record.state),
        not record.state.terminal or record.pending,
        record.times.created,
        record.times.ended,
        record.revision,
        record.labels,
        None,
        record.times.started,
        record.round,
        _counted(record.tasks),
    )


def row_of_data(run_id: str, data: bytes, path: Path) -> RunRow:
    """Give the row of a record from its bytes, looking at what a row needs; a model of each of 100,000 would take a minute.

    Raises DamagedRecord.
    """
    try:
        value = json.loads(data)
        state = value.get("state", "submitting")
        pending = any(
            value.get(name) for name in ("pending_logs", "pending_release", "pending_cancel")
        )
        times = value["times"]
        if value["id"] != run_id or value.get("schema", 0) > codec.SCHEMA:
            raise ValueError("is another run's, or of a newer simrun")
        return RunRow(
            run_id,
            str(value.get("group", "default")),
            str(value.get("owner", "")),
            str(value.get("name", "")),
            str(state),
            state not in _TERMINAL or pending,
            float(times["created"]),
            _seconds(times.get("ended")),
            int(value.get("revision", 0)),
            {str(key): str(item) for key, item in value.get("labels", {}).items()},
            None,
            _seconds(times.get("started")),
            int(value.get("round", 0)),
            _counted(value.get("tasks", {})),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedRecord(f"{path}: can't be read: {type(error).__name__} {error}") from error


def damaged_row(run_id: str, why: str) -> RunRow:
    """Give the row of a run whose record can't be read."""
    return RunRow(run_id, "", "", "", DAMAGED, False, 0.0, None, 0, {}, why)


def _counted(tasks: Mapping[str, Any]) -> dict[str, int]:
    return dict(Counter(map(str, tasks.values())))


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)
