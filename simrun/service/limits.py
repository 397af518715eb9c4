"""What a group may have at once: looked at before a run exists, by whoever makes one, a person or a schedule.

What the live runs have is counted in memory, from the submissions: the store is read for it once, when the first limit has to be known, and
every record that is written keeps it right. A run that is about to be made is counted before it is, so that ten submissions at the same moment
are not let through by the one place that is left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import Exhausted, InvalidInput, SimrunError
from simrun.model.serving import GroupLimits, LimitsFile
from simrun.model.tasktype import Split
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment
from simrun.service.auth import Principal
from simrun.store.runs import RunStore
from simrun.worker import designs, units

N = TypeVar("N", int, float)

WAIT_S = 30.0
"""When to ask again after a limit that the end of a run makes room in."""
NAMES = ("live_runs", "pods", "units", "body", "requests")
BUCKETS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run has: its group, its workers, its units as far as they are known."""

    group: str
    pods: int
    units: int


def demand_of(submission: Submission, tables: Mapping[str, Path] | None = None) -> Demand:
    """Say what a submission asks for (blocking: tables of units are read). `tables`: files by the name that the submission gives them."""
    pods = count = 0
    for task in submission.workflow.tasks.values():
        split = submission.types[task.type].split
        pods += 1 if split is None else split.workers
        if split is not None:
            count += _units(split, tables or {})
    return Demand(submission.request.group, pods, count)


def _units(split: Split, tables: Mapping[str, Path]) -> int:
    """Count the units of a task; 0 where that is not known before it runs, or what is wrong is told when it is planned."""
    if split.units.plugin is not None or (split.units.table or "") not in {"", *tables}:
        return 0
    design = split.units.model_dump(mode="json", exclude_none=True)
    try:
        if split.units.table is not None:
            design = {"table": units.read_table(tables[split.units.table])}
        return designs.size(design, replicates=split.replicates)
    except (ValueError, OSError):
        return 0


def tables_of(attachments: Iterable[Attachment]) -> dict[str, Path]:
    """Give the files that came with a submission by their names in it, as far as they may be tables."""
    return {item.target.removeprefix("code/"): item.source for item in attachments}


def demand_in(store: RunStore, run_id: str) -> Demand:
    """Say what a run in the store has (blocking). Raises NotFound, DamagedRecord."""
    submission = store.submission(run_id)
    code = store.layout.run(run_id).code
    named = (submission.types[task.type].split for task in submission.workflow.tasks.values())
    tables = {split.units.table for split in named if split is not None and split.units.table}
    return demand_of(submission, {name: code / name for name in tables})


def demands_in(store: RunStore) -> dict[str, Demand]:
    """Say what every live run in the store has (blocking); what can't be read has nothing."""
    found = {}
    for run_id in store.live_ids():
        with contextlib.suppress(SimrunError, OSError):
            if not store.read(run_id).state.terminal:
                found[run_id] = demand_in(store, run_id)
    return found


class Limits:
    """The limits of a server, and what counts against them. Belongs to one event loop.

    `load` gives what the live runs of the store have, by run.
    """

    def __init__(
        self,
        settings: LimitsFile | None = None,
        *,
        load: Callable[[], Awaitable[Mapping[str, Demand]]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings or LimitsFile()
        self.load = load
        self.bounded = any(
            getattr(limits, name) is not None
            for limits in (self._settings.default, *self._settings.groups.values())
            for name in ("live_runs", "pods", "units")
        )
        """Whether any group has a limit that runs count against."""
        self._clock = clock or SystemClock()
        self._live: dict[str, Demand] = {}
        self._ended: set[str] = set()
        """Runs that ended while the store was being read."""
        self._loaded = False
        self._loading = asyncio.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        self.refusals: Counter[str] = Counter(dict.fromkeys(NAMES, 0))

    def of(self, group: str) -> GroupLimits:
        """Give the limits of a group."""
        return self._settings.of(group)

    # --- runs --------------------------------------------------------------------------------------------------------------

    async def admit(self, run_id: str, wanted: Demand) -> bool:
        """Count a run that is about to be made; whether it was not counted before.

        Raises Exhausted when its group has too much now, InvalidInput for a run that asks for more than its group may ever have.
        """
        limits = self.of(wanted.group)
        await self._know()
        if run_id in self._live:
            return False
        group = repr(wanted.group)
        self._fit("pods", wanted.pods, limits.pods, group)
        self._fit("units", wanted.units, limits.units, group)
        own = [demand for demand in self._live.values() if demand.group == wanted.group]
        has = {
            "live_runs": (len(own), 1, limits.live_runs, "live runs"),
            "pods": (sum(item.pods for item in own), wanted.pods, limits.pods, "pods"),
            "units": (sum(item.units for item in own), wanted.units, limits.units, "units"),
        }
        for name, (there, more, most, words) in has.items():
            if most is not None and there + more > most:
                self.refusals[name] += 1
                raise Exhausted(
                    f"group {group} has {there} {words}, and with this run's {more} it would have more than the {most} it may have at once; "
                    "wait for a run to end, or cancel one",
                    retry_after_s=WAIT_S,
                )
        self._live[run_id] = wanted
        return True

    def _fit(self, name: str, wanted: int, most: int | None, group: str) -> None:
        if most is not None and wanted > most:
            self.refusals[name] += 1
            raise InvalidInput.one(
                "workflow",
                f"asks for {wanted} {name}, more than the {most} that group {group} may have at once",
                value=wanted,
                remedy="ask for fewer, or have the limit raised (simrun serve --limits)",
            )

    def ended(self, run_id: str) -> None:
        """Count a run no more: it has ended, or could not be made."""
        self._live.pop(run_id, None)
        if not self._loaded and self._loading.locked():
            self._ended.add(run_id)

    async def _know(self) -> None:
        """Read what the live runs have, once."""
        async with self._loading:
            if self._loaded or self.load is None:
                return
            found = await self.load()
            self._live = {**found, **self._live}
            for run_id in self._ended:
                self._live.pop(run_id, None)
            self._ended.clear()
            self._loaded = True

    # --- requests ----------------------------------------------------------------------------------------------------------

    def body_of(self, principal: Principal) -> int | None:
        """Give how many bytes a request may have: of the groups of whoever asks, the most generous."""
        return _most([limits.body for limits in self._of(principal)])

    def request(self, principal: Principal) -> None:
        """Count a request. Raises Exhausted when whoever asks has asked too often."""
        limits = self._of(principal)
        rate = _most([item.requests_per_s for item in limits])
        if rate is None:
            return
        burst = max(item.burst for item in limits)
        now = self._clock.monotonic()
        left, at = self._buckets.get(principal.name, (float(burst), now))
        left = min(float(burst), left + (now - at) * rate)
        if left < 1:
            self.refusals["requests"] += 1
            raise Exhausted(
                f"{principal.name or 'this client'} has asked more often than {rate:g} times a second; ask less often",
                retry_after_s=(1 - left) / rate,
            )
        if len(self._buckets) >= BUCKETS_MAX:
            self._buckets.clear()  # of many names at once none has asked much
        self._buckets[principal.name] = (left - 1, now)

    def _of(self, principal: Principal) -> list[GroupLimits]:
        named = principal.groups or ()
        return [self.of(group) for group in named] or [self._settings.default]


def _most(values: Sequence[N | None]) -> N | None:
    """Give the highest; None, no limit, is higher than all."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
