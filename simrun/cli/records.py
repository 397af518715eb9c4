"""Finding a run in a store by what a person typed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simrun.base.errors import DamagedRecord, InvalidInput, NotFound
from simrun.model.faults import Nearest, listed
from simrun.model.record import RunRecord
from simrun.store.runs import RunStore

LATEST = "@latest"


def store_at(root: Path) -> RunStore:
    """Give the store in a directory, for reading. Raises NotFound where there is none."""
    store = RunStore(root)
    if not store.layout.runs.is_dir():
        raise NotFound(f"no run store in {root}; --store or $SIMRUN_STORE names another directory")
    return store


def find_run(store: RunStore, text: str) -> RunRecord:
    """Give the record of a run by its id, by a beginning of it that no other has, @latest, or @latest:NAME.

    Raises NotFound, InvalidInput when several ids begin so, DamagedRecord.
    """
    known = store.run_ids()
    if text in known:
        return store.read(text)
    if (name := latest_of(text)) is not None:
        for found in newest_first(store):
            if not isinstance(found, DamagedRecord) and name in ("", found.name):
                return found
        raise NotFound(f"no run{f' named {name!r}' if name else ''} in {store.layout.root}")
    begin = [run_id for run_id in known if text and run_id.startswith(text)]
    if len(begin) == 1:
        return store.read(begin[0])
    if begin:
        raise InvalidInput.one(
            "run", f"{len(begin)} runs begin so", value=text, remedy=listed(begin, 5)
        )
    near = Nearest(known).remedy(text)
    raise NotFound(f"no run {text!r} in {store.layout.root}" + (f"; {near}" if near else ""))


def newest_first(store: RunStore) -> Iterator[RunRecord | DamagedRecord]:
    """Give the records in the order of their creation, the last one first; what can't be read comes as its error.

    Not in the order of ids: those of schedules, of keys and of --id don't follow the time.
    """
    for run_id in sorted(store.run_ids(), key=lambda run_id: _created(store, run_id), reverse=True):
        try:
            yield store.read(run_id)
        except NotFound:
            continue  # a creation that has not come to its end
        except DamagedRecord as error:
            yield error


def latest_of(text: str) -> str | None:
    """Give the name after @latest: , "" where the newest of all is meant; None for what is no @latest."""
    head, colon, name = text.partition(":")
    return name if head == LATEST and (name or not colon) else None


def _created(store: RunStore, run_id: str) -> tuple[int, str]:
    """Give what puts runs in the order of their creation: their submissions are written once, their records again and again."""
    try:
        return store.layout.run(run_id).submission.stat().st_mtime_ns, run_id
    except OSError:
        return 0, run_id


def find_task(record: RunRecord, text: str) -> str:
    """Give a task of a run. Raises NotFound, with the name that was probably meant."""
    if text in record.tasks:
        return text
    hint = Nearest(record.tasks).remedy(text) or f"its tasks are {listed(record.tasks)}"
    raise NotFound(f"run {record.id} has no task {text!r}; {hint}")
