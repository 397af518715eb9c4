"""Calls about what is known beside runs: queues, and what task types used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrun.client.transport import Transport, api
from simrun.model.report import Observation

if TYPE_CHECKING:  # the server's side of HTTP takes half a second to import
    from simrun.backends.base import QueueState
    from simrun.service.api.resources import TypeUse


class ResourceCalls(Transport):
    """/api/v1/queues, /types, /observations."""

    async def queues(self) -> list[QueueState]:
        """Give the queues that pods are admitted through, their quota and what is in use of it."""
        from simrun.service.api.resources import QueueList

        return self._model(QueueList, await self._call("GET", api("queues"))).queues

    async def types(self) -> list[TypeUse]:
        """Give what attempts of each task type used, over the newest observations."""
        from simrun.service.api.resources import TypeList

        return self._model(TypeList, await self._call("GET", api("types"))).types

    async def observations(self, type_name: str) -> list[Observation]:
        """List what single attempts of a task type used against what they were given, oldest first."""
        from simrun.service.api.resources import ObservationList

        found = await self._call("GET", api("observations"), params={"type": type_name})
        return self._model(ObservationList, found).observations
