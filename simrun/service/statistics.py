"""How the parts of a session do: snapshots that metrics are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simrun.aio.threads import PoolStatistics
from simrun.backends.base import WatchHealth
from simrun.base.histogram import Histogram
from simrun.service.queue import QueueStatistics
from simrun.service.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatistics:
    """Of the controller. submissions: jobs under way, held_up: those of them that wait to be tried again."""

    queue: QueueStatistics
    waits: Histogram
    looks: Histogram
    drift: int
    submissions: int
    held_up: int
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatistics:
    """Of everything that serves runs.

    store: seconds of calls by kind. watches: by resource; age_s: of what is known of the backend. events: changes told to the stream of all.
    """

    controller: ControllerStatistics
    pools: Sequence[PoolStatistics]
    store: Mapping[str, Histogram]
    watches: Mapping[str, WatchHealth]
    age_s: float | None
    events: int
