"""What simrun itself does with an event up to the start of a reconcile: its watches, its tables, its queue, its workers.

    python simrun_peer.py NAMESPACE

Everything is what `simrun serve` has, but for the reconcile, which only notes that it began. Answers "mark" and "seen" on standard input
as main.go does.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from simrun.backends.kubernetes.backend import KubernetesBackend
from simrun.backends.kubernetes.session import KubeSession
from simrun.model.cluster import ClusterConfig
from simrun.service.controller import Controller
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore


class Noted(Controller):
    """A controller that notes when it would look at a run, and which change of its pod it would see."""

    def watch(self, backend: KubernetesBackend) -> None:
        """Look at the pods that this backend knows."""
        self.notes: list[dict[str, object]] = []
        self._pods = backend._watches.pods  # noqa: SLF001 - to see what a reconcile would

    async def reconcile_run(self, run_id: str) -> None:
        """Note that it begins."""
        at = time.time_ns()
        for pod in self._pods.of(run_id):
            if pod.message.isdecimal():
                self.notes.append({"pod": pod.name, "number": int(pod.message), "at": at})


async def commands(controller: Noted) -> None:
    """Answer until standard input ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    print('"ready"', flush=True)
    while line := await reader.readline():
        if line.strip() == b"mark":
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu = used.ru_utime + used.ru_stime
            print(json.dumps({"cpu_s": cpu, "rss_mb": used.ru_maxrss / 1024}), flush=True)
        else:
            print(json.dumps(controller.notes), flush=True)
            controller.notes.clear()


async def main(namespace: str) -> None:
    """Watch until standard input ends."""
    config = ClusterConfig(namespace=namespace)
    with tempfile.TemporaryDirectory() as directory:
        store = RunStore(Path(directory))
        store.open()
        async with (
            await KubeSession.open() as kube,
            KubernetesBackend(config, kube) as backend,
            asyncio.TaskGroup() as group,
        ):
            controller = Noted(store, ResourceStore(store.layout.root), backend)
            controller.watch(backend)
            following = group.create_task(controller.run())
            await backend.synced()
            await commands(controller)
            following.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
