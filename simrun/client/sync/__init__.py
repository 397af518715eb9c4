"""Client: the calls of AsyncClient for programs without a loop."""

# Made from simrun/client/client.py by `python -m tests.client.generate`; a test holds it to that
from __future__ import annotations

from simrun.client.sync.artifacts import ArtifactCalls
from simrun.client.sync.events import EventCalls
from simrun.client.sync.logs import LogCalls
from simrun.client.sync.plans import PlanCalls
from simrun.client.sync.resources import ResourceCalls
from simrun.client.sync.runs import RunCalls
from simrun.client.sync.snapshots import SnapshotCalls
from simrun.client.sync.tasks import TaskCalls


class Client(
    RunCalls,
    TaskCalls,
    LogCalls,
    ArtifactCalls,
    EventCalls,
    ResourceCalls,
    SnapshotCalls,
    PlanCalls,
):
    """Talks to a `simrun serve`. Use as a context manager; it may be used from several threads."""
