"""The logs of pods: kept in the run store, live and after the end from one source.

The harness tees its own output to logs/<worker>-<attempt>.log in the task's directory, and so does the supervisor of a local bare command. Only
for pods without such a file the service fetches the log from the backend, while there is a pod to ask.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from simrun.aio.files import opened
from simrun.aio.threads import Pool
from simrun.backends.base import Backend, Phase
from simrun.model.record import RunRecord
from simrun.service.verdicts import task_of
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.protocol import attempt_name


async def keep_logs(store: RunStore, pool: Pool, backend: Backend, record: RunRecord) -> None:
    """Keep the logs of all attempts that left no file of their own. Raises what the backend raises."""
    if record.workflow_name is None:
        return
    status = await backend.status(record.workflow_name)
    if status is None:
        return  # no workflow any more, no logs to keep
    for worker, node in status.nodes.items():
        task = task_of(worker, record.plans)
        if task is None:
            continue
        directory = store.layout.run(record.id).task(task).logs
        there = await pool.run(files.listing, directory)
        for attempt in node.attempts:
            name = f"{attempt_name(worker, attempt.n)}.log"
            if name not in there and attempt.phase is not Phase.PENDING:
                chunks = backend.logs(record.workflow_name, worker, attempt.n)
                await _fetch(pool, chunks, directory / name)


async def _fetch(pool: Pool, chunks: AsyncIterator[bytes], target: Path) -> None:
    """Copy one log from the backend into the store: under a temporary name, so that a cut one never looks whole."""
    await pool.run(target.parent.mkdir, exist_ok=True)
    part = files.temporary_name(target.parent)
    size = 0
    try:
        async with opened(pool, lambda: part.open("xb")) as file:
            async for chunk in chunks:
                await file.write(chunk)
                size += len(chunk)
        if size:
            await pool.run(files.link, part, target)
    finally:
        await pool.run(part.unlink, missing_ok=True)
