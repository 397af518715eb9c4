"""simrun over HTTP, for programs: `AsyncClient`."""

from simrun.client.client import AsyncClient

__all__ = ["AsyncClient"]
