"""simrun over HTTP, for programs: `Client`, and `AsyncClient` for those with a loop."""

from simrun.client.client import AsyncClient
from simrun.client.sync import Client

__all__ = ["AsyncClient", "Client"]
