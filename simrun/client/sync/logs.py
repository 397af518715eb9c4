# Made from simrun/client/logs.py by `python -m tests.client.generate`; a test holds it to that
"""LogCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator

from simrun.client.sync.blocking import Blocking


class LogCalls(Blocking):
    """/api/v1/runs/{run}/logs."""

    def logs(
        self,
        run_id: str,
        task: str,
        *,
        worker: str | None = None,
        attempt: str | None = None,
        follow: bool = False,
        lines: int | None = None,
        tail: int | None = None,
    ) -> Iterator[bytes]:
        """Yield the log of a task in chunks; with `follow` until the task has ended.

        attempt: a number, last or all. lines, tail: only so many last lines or bytes of each. Raises NotFound, Unreachable.
        """
        return self._each(
            self._client.logs(
                run_id, task, worker=worker, attempt=attempt, follow=follow, lines=lines, tail=tail
            )
        )
