"""Which schedules are paused: a file for each that ever was, since the end of a pause counts too, and one for all at once.

    scheduler/pauses/<group>.<plan>.json, scheduler/pauses/all.json

What falls into a pause was not missed, so nobody catches up on it. A file that can't be read counts as a pause: somebody wanted nothing to fire.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from simrun.base.errors import DamagedRecord
from simrun.model.base import StoredModel
from simrun.model.launchplan import instant_of, instant_text
from simrun.store import codec
from simrun.store.layout import StoreLayout
from simrun.worker import files

ALL: Final = "all"
"""Stands for every schedule; the key of a single one has a dot."""
_END: Final = ".json"


class Pause(StoredModel):
    """A pause that lasts, or the last one that has ended."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    paused: bool = True
    at: float
    """When it began, in seconds since 1970."""
    by: str = ""
    resumed_at: float | None = None
    resumed_by: str = ""

    @property
    def resumed(self) -> datetime | None:
        """The instant at which it ended."""
        return None if self.resumed_at is None else instant_of(self.resumed_at)

    def __str__(self) -> str:
        """Say it in words."""
        return f"paused{f' by {self.by}' if self.by else ''} at {instant_text(instant_of(self.at))}"


class Pauses:
    """The pauses in a run store. Blocking."""

    def __init__(self, root: Path) -> None:
        self._layout = StoreLayout(root)

    @property
    def _root(self) -> Path:
        return self._layout.scheduler / "pauses"

    def all(self) -> dict[str, Pause]:
        """Give every pause by the key of its schedule."""
        names = [name for name in files.listing(self._root) if name.endswith(_END)]
        found = {name.removesuffix(_END): self.get(name.removesuffix(_END)) for name in names}
        return {key: pause for key, pause in found.items() if pause is not None}

    def get(self, key: str) -> Pause | None:
        """Give the pause of one; None when it never was paused."""
        try:
            # A pause that another host has just made counts: most schedules have none, and were looked up in vain
            return codec.find(Pause, self._root / f"{key}{_END}")
        except DamagedRecord:
            return Pause(at=0.0, by="a record that can't be read")

    def pause(self, key: str, *, by: str, now: float) -> Pause:
        """Pause a schedule, or ALL; one that is paused stays as it is."""
        there = self.get(key)
        if there is not None and there.paused:
            return there
        return self._write(key, Pause(at=now, by=by))

    def resume(self, key: str, *, by: str, now: float) -> Pause | None:
        """End a pause; one that has ended stays as it is. None when there never was one."""
        there = self.get(key)
        if there is None or not there.paused:
            return there
        update = {"paused": False, "resumed_at": now, "resumed_by": by}
        return self._write(key, there.model_copy(update=update))

    def _write(self, key: str, pause: Pause) -> Pause:
        files.make_directory(self._root)
        files.replace(self._root / f"{key}{_END}", codec.encode(pause))
        note_change(self._layout)
        return pause


def note_change(layout: StoreLayout) -> None:
    """Tell the schedulers of other processes to look at plans and pauses again. A hint: each looks at all of them now and then."""
    files.make_directory(layout.scheduler)
    files.replace(layout.schedules_changed, b"", durable=False)
