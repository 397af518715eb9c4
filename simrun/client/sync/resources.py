# Made from simrun/client/resources.py by `python -m tests.client.generate`; a test holds it to that
"""ResourceCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrun.client.sync.blocking import Blocking
from simrun.model.report import Observation

if TYPE_CHECKING:
    from simrun.backends.base import QueueState
    from simrun.service.api.resources import TypeUse


class ResourceCalls(Blocking):
    """/api/v1/queues, /types, /observations."""

    def queues(self) -> list[QueueState]:
        """Give the queues that pods are admitted through, their quota and what is in use of it."""
        return self._wait(self._client.queues())

    def types(self) -> list[TypeUse]:
        """Give what attempts of each task type used, over the newest observations."""
        return self._wait(self._client.types())

    def observations(self, type_name: str) -> list[Observation]:
        """List what single attempts of a task type used against what they were given, oldest first."""
        return self._wait(self._client.observations(type_name))
