# Made from simrun/client/events.py by `python -m tests.client.generate`; a test holds it to that
"""EventCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simrun.client.sync.blocking import Blocking


class EventCalls(Blocking):
    """Streams."""

    def events(self, run_id: str) -> Iterator[dict[str, Any]]:
        """Yield how far a run is at each change until it has ended; a connection that is cut is made again."""
        return self._each(self._client.events(run_id))
