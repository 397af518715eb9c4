# Made from simrun/client/events.py by `python -m tests.client.generate`; a test holds it to that
"""EventCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simrun.client.sync.blocking import Blocking
from simrun.service.progress import RunProgress


class EventCalls(Blocking):
    """Streams."""

    def events(self, run_id: str) -> Iterator[RunProgress]:
        """Yield how far a run is at each change until it has ended; a connection that is cut is made again."""
        return self._each(self._client.events(run_id))

    def all_events(self, *, group: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (kind, data) of the changes of all runs, without an end; a connection that is cut is made again.

        snapshot: {at, runs} with the rows of what is live or ended in the last 5 minutes, first of all and whenever changes were missed.
        run: one row. deleted: {id, group}. `group`: only its runs.
        """
        return self._each(self._client.all_events(group=group))
