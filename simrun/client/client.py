"""AsyncClient: all calls of the API in one place."""

from __future__ import annotations

from simrun.client.artifacts import ArtifactCalls
from simrun.client.events import EventCalls
from simrun.client.logs import LogCalls
from simrun.client.plans import PlanCalls
from simrun.client.resources import ResourceCalls
from simrun.client.runs import RunCalls
from simrun.client.snapshots import SnapshotCalls
from simrun.client.tasks import TaskCalls


class AsyncClient(
    RunCalls,
    TaskCalls,
    LogCalls,
    ArtifactCalls,
    EventCalls,
    ResourceCalls,
    SnapshotCalls,
    PlanCalls,
):
    """Talks to a `simrun serve`. Use as an async context manager.

    The calls of each resource are in a module of their own, as a class over Transport that is a base of this one.
    """
