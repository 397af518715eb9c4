"""Who may do what: words that the service and whoever makes tokens share."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """What a token allows; `run` includes `read`, `admin` both."""

    READ = "read"
    """See runs, logs, artifacts, plans."""
    RUN = "run"
    """Submit, cancel, retry and delete runs; make snapshots and launch plans."""
    ADMIN = "admin"
    """What concerns everybody: all groups, pausing all schedules."""

    def allows(self, wanted: Scope) -> bool:
        """Whether this scope is enough where `wanted` is asked for."""
        order = list(Scope)
        return order.index(self) >= order.index(wanted)
