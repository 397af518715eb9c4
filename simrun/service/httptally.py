"""What was asked over HTTP: by the pattern of the route, never by the path, so that nobody can make series by asking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from simrun.base.histogram import Histogram

OTHER_METHOD, UNKNOWN_ROUTE = "OTHER", "unknown"
"""Of requests that no operation answers, whatever their method and path."""
CLASSES = ("2xx", "4xx", "5xx")


class HttpTally:
    """Counts of requests. All routes are there from the start; belongs to one event loop."""

    def __init__(self, routes: Iterable[tuple[str, str]] = (), streams: Iterable[str] = ()) -> None:
        self.seconds: dict[tuple[str, str], Histogram] = {}
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.streams: Counter[str] = Counter(dict.fromkeys(streams, 0))
        """Streams of events that are open, by route."""
        for method, route in (*routes, (OTHER_METHOD, UNKNOWN_ROUTE)):
            self._add(method, route)

    def _add(self, method: str, route: str) -> None:
        self.seconds[method, route] = Histogram()
        self.answers.update({(method, route, status): 0 for status in CLASSES})

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer; 1xx and 3xx count as good ones."""
        key = (method, route)
        if key not in self.seconds:
            key = (OTHER_METHOD, UNKNOWN_ROUTE)
        self.seconds[key].observe(seconds)
        self.answers[*key, f"{status // 100}xx" if status >= 400 else "2xx"] += 1
