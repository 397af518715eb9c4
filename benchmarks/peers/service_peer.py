"""`simrun serve` on a cluster, in a process that also tells what it has done.

    python service_peer.py STORE NAMESPACE RUNS STARTED

STARTED is when it was started, in seconds since 1970. Says "ready" once it has looked at so many runs, then where it listens and how long that
took. Answers "mark" on standard input with what it used so far.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp

from simrun.aio.threads import Pool
from simrun.backends.base import Backend
from simrun.backends.kubernetes.backend import KubernetesBackend, open_backend
from simrun.backends.kubernetes.lease import open_elector
from simrun.backends.kubernetes.session import KubeSession
from simrun.model.cluster import ClusterConfig
from simrun.service.controller import Controller
from simrun.service.main import ServeOptions, serve
from simrun.store.runs import RunStore


class Counts:
    """What has happened in this process."""

    def __init__(self, runs: int, started: float) -> None:
        self.runs, self.started = runs, started
        self.requests = self.looks = 0
        self.seen: set[str] = set()
        self.synced_s = self.looked_s = 0.0
        self.backend: KubernetesBackend | None = None
        self.controller: Controller | None = None
        self.url = ""
        self.ready = asyncio.Event()

    def watch_requests(self) -> None:
        """Count the requests of every session of this process."""
        send = KubeSession._send_once  # noqa: SLF001 - the one place that all requests pass

        async def counted(kube: KubeSession, *args: Any, **kwargs: Any) -> aiohttp.ClientResponse:
            self.requests += 1
            return await send(kube, *args, **kwargs)

        KubeSession._send_once = counted  # type: ignore[method-assign]  # noqa: SLF001

    def watch_looks(self) -> None:
        """Count the reconciles."""
        reconcile = Controller.reconcile_run

        async def counted(controller: Controller, run_id: str) -> None:
            await reconcile(controller, run_id)
            self.controller = controller
            self.looks += 1
            if len(self.seen) < self.runs:
                self.seen.add(run_id)
                if len(self.seen) == self.runs:
                    self.looked_s = time.time() - self.started
                    self.ready.set()

        Controller.reconcile_run = counted  # type: ignore[method-assign]

    def now(self) -> dict[str, Any]:
        """Give it all."""
        assert self.backend is not None
        used = resource.getrusage(resource.RUSAGE_SELF)
        watches = {name: asdict(one) for name, one in self.backend.statistics().items()}
        drift = sum(one["drift"] for one in watches.values())
        return {
            "cpu_s": used.ru_utime + used.ru_stime,
            "rss_mb": _rss_mb(),
            "rss_max_mb": used.ru_maxrss / 1024,
            "requests": self.requests,
            "looks": self.looks,
            "drift": drift + (self.controller.statistics().drift if self.controller else 0),
            "watches": watches,
        }


def _rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


async def main(store: Path, namespace: str, counts: Counts) -> None:
    """Serve until standard input ends."""
    config = ClusterConfig(namespace=namespace)
    counts.watch_requests()
    counts.watch_looks()

    @asynccontextmanager
    async def backend(_store: RunStore, _pool: Pool) -> AsyncIterator[Backend]:
        async with open_backend(config) as opened:
            assert isinstance(opened, KubernetesBackend)
            counts.backend = opened
            await opened.synced()
            counts.synced_s = time.time() - counts.started
            yield opened

    def listening(url: str) -> None:
        counts.url = url

    options = ServeOptions(store=store, index=store / "index.sqlite", port=0)
    async with asyncio.TaskGroup() as group:
        election = lambda: open_elector(config)  # noqa: E731 - no more than a name for it
        serving = group.create_task(serve(options, backend, election=election, on_ready=listening))
        await counts.ready.wait()
        _say("ready")
        _say({"url": counts.url, "synced_s": counts.synced_s, "looked_s": counts.looked_s})
        await _commands(counts)
        serving.cancel()


async def _commands(counts: Counts) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while await reader.readline():
        _say(counts.now())


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


async def _main() -> None:
    store, namespace, runs, started = sys.argv[1:]
    await main(Path(store), namespace, Counts(int(runs), float(started)))


if __name__ == "__main__":
    asyncio.run(_main())
