"""Logs of tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp

from simrun.base.errors import Unreachable
from simrun.client.problems import check, text_of
from simrun.client.transport import CALL_S, CONNECT_S, Transport, api


class LogCalls(Transport):
    """/api/v1/runs/{run}/logs."""

    async def logs(
        self,
        run_id: str,
        task: str,
        *,
        worker: str | None = None,
        attempt: str | None = None,
        follow: bool = False,
        lines: int | None = None,
        tail: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the log of a task in chunks; with `follow` until the task has ended.

        attempt: a number, last or all. lines, tail: only so many last lines or bytes of each. Raises NotFound, Unreachable.
        """
        query = {
            "worker": worker,
            "attempt": attempt,
            "follow": "1" if follow else None,
            "lines": lines,
            "tail": tail,
        }
        params = {key: str(value) for key, value in query.items() if value is not None}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_S, sock_read=None if follow else CALL_S
        )
        path = api("runs", run_id, "logs", task)
        try:
            async with self._session.get(self.url + path, params=params, timeout=timeout) as answer:
                await check(answer)
                async for chunk in answer.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {text_of(error)}") from error
