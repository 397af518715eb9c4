"""Client: the calls of AsyncClient for programs without a loop."""

# Made from simrun/client/client.py by `python -m tests.client.generate`; a test holds it to that
from __future__ import annotations

from simrun.client.sync.events import EventCalls
from simrun.client.sync.logs import LogCalls
from simrun.client.sync.runs import RunCalls


class Client(RunCalls, LogCalls, EventCalls):
    """Talks to a `simrun serve`. Use as a context manager; it may be used from several threads."""
