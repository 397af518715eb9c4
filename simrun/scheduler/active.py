"""Which plans are active, read from the run store: the scheduler's source.

Each fire asks for its plan anew, so active.json has the last word whoever wrote it. To find plans that another process activated,
active.json of every plan is looked at (by its inode and times, not opened) when the hint of the store says that something changed, once more when
no cache can have hidden it any longer, and each ten minutes in any case.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from simrun.aio.threads import Pool
from simrun.base.clock import Clock
from simrun.base.errors import DamagedRecord, NotFound
from simrun.base.labeltext import label_value
from simrun.model.launchplan import Active, PlanHead, Schedule
from simrun.scheduler.cron import CronError, check_activation
from simrun.scheduler.launch_plans import schedule_timetable
from simrun.scheduler.ports import ActiveSchedule
from simrun.store.launch_plans import LaunchPlanStore, PlanPlace, Signature
from simrun.store.layout import StoreLayout
from simrun.store.pauses import ALL, Pause, Pauses

LOOK_AT_ALL_S: Final = 600.0
CACHED_S: Final = 65.0
"""A client of a file server may answer for a minute what it knew before."""
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN: Final = Schedule(cron="@yearly")
"""Stands for a schedule that can't be read; there is no timetable with it."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of a plan, without pauses, and the active.json it was read from."""

    signature: Signature | None
    active: Active | None
    schedule: ActiveSchedule | None


class ActivePlans:
    """See above. Its files are read in threads of `pool`."""

    def __init__(
        self, store: LaunchPlanStore, pauses: Pauses, layout: StoreLayout, pool: Pool, clock: Clock
    ) -> None:
        self._store, self._pauses, self._layout = store, pauses, layout
        self._pool, self._clock = pool, clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._given: dict[str, ActiveSchedule] = {}
        self._hint: tuple[int, int] | None = None
        self._all_at = 0.0
        """When all plans are looked at, whatever the hint says."""

    async def load(self) -> Mapping[str, ActiveSchedule]:
        """Give the schedules of all active plans, read anew. Raises OSError."""
        return await self._pool.run(self._load)

    async def changes(self) -> Mapping[str, ActiveSchedule | None]:
        """Give what has changed since the last look; None for what is active no more. Raises OSError."""
        return await self._pool.run(self._changes)

    async def look(self, key: str) -> ActiveSchedule | None:
        """Give one, by what active.json says now. Raises OSError."""
        return await self._pool.run(self._look, key)

    async def peek(self, key: str) -> ActiveSchedule | None:
        """Give one as `look` does, for people: the next `changes` tells what it would have told. Raises OSError."""
        return await self._pool.run(self._peek, key)

    # --- in threads ------------------------------------------------------------------------------------------------------

    def _load(self) -> dict[str, ActiveSchedule]:
        with self._lock:
            self._known.clear()
            self._given.clear()
            self._hint = self._read_hint()
            self._look_at_all()
            return dict(self._given)

    def _changes(self) -> dict[str, ActiveSchedule | None]:
        with self._lock:
            hint, now = self._read_hint(), self._clock.monotonic()
            told = hint != self._hint
            if not told and now < self._all_at:
                return {}
            self._hint = hint
            changed = self._look_at_all()
            if told:
                self._all_at = now + CACHED_S
            return changed

    def _look_at_all(self) -> dict[str, ActiveSchedule | None]:
        """Look at every plan; what is not as it was given out last."""
        self._all_at = self._clock.monotonic() + LOOK_AT_ALL_S
        pauses = self._pauses.all()
        changed: dict[str, ActiveSchedule | None] = {}
        for place in self._store.places():
            key = key_of(place)
            signature = self._store.signature(place)
            known = self._known.get(key)
            if known is None or known.signature != signature:
                known = self._known[key] = self._read(place, signature)
            now = _with_pauses(known.schedule, pauses.get(key), pauses.get(ALL))
            if now != self._given.get(key):
                changed[key] = now
                self._give(key, now)
        return changed

    def _look(self, key: str) -> ActiveSchedule | None:
        place = place_of(key)
        with self._lock:
            known = self._known.get(key)
            same = False
            if known is not None and known.schedule is not None and not known.schedule.trouble:
                try:
                    same = self._store.active_at(place) == known.active
                except DamagedRecord:
                    pass  # told below
            if known is None or not same:
                known = self._known[key] = self._read(place, self._store.signature(place))
            now = _with_pauses(known.schedule, self._pauses.get(key), self._pauses.get(ALL))
            self._give(key, now)
            return now

    def _peek(self, key: str) -> ActiveSchedule | None:
        known = self._read(place_of(key), None)
        return _with_pauses(known.schedule, self._pauses.get(key), self._pauses.get(ALL))

    def _give(self, key: str, now: ActiveSchedule | None) -> None:
        if now is None:
            self._given.pop(key, None)
        else:
            self._given[key] = now

    def _read(self, place: PlanPlace, signature: Signature | None) -> _Known:
        """Read a plan. The signature was taken before, so that a change in between is seen as one the next time."""
        try:
            active = self._store.active_at(place)
        except DamagedRecord as error:
            text = f"which version is active can't be read: {error}; activate one again"
            return _Known(signature, None, _unreadable(place, Active(activated_at=0.0), text))
        if active is None or active.version is None:
            return _Known(signature, active, None)
        try:
            head = self._store.head_at(place, active.version)
        except (NotFound, DamagedRecord) as error:
            text = f"the active version can't be read: {error}; activate another"
            return _Known(signature, active, _unreadable(place, active, text))
        if head.name != place.name or label_value(head.group) != place.group_dir:
            text = f"its file is that of plan {head.name!r} of group {head.group!r}; activate another version"
            return _Known(signature, active, _unreadable(place, active, text))
        return _Known(signature, active, _schedule_of(key_of(place), head, active))

    def _read_hint(self) -> tuple[int, int] | None:
        # Opened, since what stat says may come from a cache
        try:
            fd = os.open(self._layout.schedules_changed, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            seen = os.fstat(fd)
        finally:
            os.close(fd)
        return seen.st_ino, seen.st_mtime_ns


def key_of(place: PlanPlace) -> str:
    """Give the key of the schedule of a plan."""
    return f"{place.group_dir}.{place.name}"


def place_of(key: str) -> PlanPlace:
    """Give where the plan of a key is."""
    group_dir, _, name = key.rpartition(".")
    return PlanPlace(group_dir, name)


def _schedule_of(key: str, head: PlanHead, active: Active) -> ActiveSchedule | None:
    """Give the schedule of an active version; None for a plan without one."""
    if head.schedule is None:
        return None
    made = ActiveSchedule(
        key=key,
        group=head.group,
        name=head.name,
        version=head.version,
        activated=active.since,
        schedule=head.schedule,
        since=active.since,
    )
    try:
        timetable = schedule_timetable(head.schedule, active.since)
        check_activation(timetable)
    except CronError as error:
        return replace(made, trouble=f"its schedule can't be used: {error}; activate a good one")
    return replace(made, timetable=timetable)


def _unreadable(place: PlanPlace, active: Active, trouble: str) -> ActiveSchedule:
    return ActiveSchedule(
        key=key_of(place),
        group=place.group_dir,
        name=place.name,
        version=active.version or "",
        activated=active.since,
        schedule=_UNKNOWN,
        since=active.since,
        trouble=trouble,
    )


def _with_pauses(
    schedule: ActiveSchedule | None, own: Pause | None, of_all: Pause | None
) -> ActiveSchedule | None:
    if schedule is None or (own is None and of_all is None):
        return schedule
    pauses = [pause for pause in (own, of_all) if pause is not None]
    ends = [pause.resumed for pause in pauses if pause.resumed is not None]
    lasting = [str(pause) for pause in pauses if pause.paused]
    return replace(schedule, since=max([schedule.since, *ends]), paused="; ".join(lasting))
