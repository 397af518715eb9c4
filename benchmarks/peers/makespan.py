"""simrun's own share of the time that a run takes on a cluster: what lies before its workflow exists, and after Argo calls that ended.

In between Argo and Kueue drive the pods, and simrun only looks on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from simrun.aio.threads import Pool
from simrun.argo import workflow_name
from simrun.backends.base import Backend
from simrun.backends.kubernetes.backend import open_backend
from simrun.backends.kubernetes.session import METADATA, KubeSession
from simrun.backends.kubernetes.watching import workflows_path
from simrun.model import labels
from simrun.model.cluster import ClusterConfig
from simrun.model.workflow import Submission
from simrun.service.opening import open_session
from simrun.service.session import Session
from simrun.store.runs import RunStore

UID = int(os.environ.get("SIMRUN_TEST_UID", "64000"))
NAMESPACE = os.environ.get("SIMRUN_TEST_NAMESPACE", "sims")
IMAGE = os.environ.get("SIMRUN_TEST_IMAGE", "registry.test/simrun-worker:1")
_SMALL = {"image": IMAGE, "resources": {"cpu": 0.2, "memory": "96Mi"}, "grace": 2}

RUN = Submission.model_validate(
    {
        "workflow": {
            "tasks": {
                "sweep": {"type": "sweep"},
                "check": {"type": "step", "after": ["sweep"]},
                "plot": {"type": "step", "after": ["check"]},
            }
        },
        "types": {
            "sweep": {
                **_SMALL,
                "command": "sleep 2",
                "split": {"workers": 2, "units": {"list": [1, 2, 3, 4, 5, 6]}},
            },
            "step": {**_SMALL, "command": ["sleep", "5"]},
        },
    }
)


def store_directory() -> Path:
    """Give what the claim `simrun-store` of the cluster is on this machine."""
    if named := os.environ.get("SIMRUN_TEST_STORE"):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SIMRUN_CLUSTER_DIR") or cache / "simrun-cluster") / "run" / "store"


async def measure(kube: KubeSession, times: int) -> dict[str, Any]:
    """Run a small campaign so often: an array over two workers, and two steps after it."""
    shares, spans, starts, ends = [], [], [], []
    async with _place(kube) as (config, root):

        def backend(
            _store: RunStore, _pool: Pool
        ) -> contextlib.AbstractAsyncContextManager[Backend]:
            return open_backend(config)

        async with open_session(root, backend, owner=(UID, UID)) as session:
            for number in range(times):
                made = await _run(kube, session, f"bench{number}-{secrets.token_hex(3)}")
                span, before, after = made
                spans.append(span)
                starts.append(before)
                ends.append(after)
                shares.append((before + after) / span * 100)
                text = f"{span:.1f} s, of which {before * 1000:.0f} ms before and {after * 1000:.0f} ms after"
                print(f"  a run took {text}", file=sys.stderr, flush=True)
    return {
        "runs": times,
        "makespan_s": round(statistics.median(spans), 2),
        "before_workflow_ms": round(statistics.median(starts) * 1000, 1),
        "after_end_ms": round(statistics.median(ends) * 1000, 1),
        "share_percent": round(statistics.median(shares), 2),
    }


async def _run(kube: KubeSession, session: Session, run: str) -> tuple[float, float, float]:
    """Seconds of a run as a whole, until its workflow was seen, and from the end that Argo wrote to the one in the record."""
    seen: dict[str, float] = {}
    watching, ready = asyncio.Event(), asyncio.Event()
    async with asyncio.timeout(180), asyncio.TaskGroup() as group:
        watch = group.create_task(_watch(kube, workflow_name(run), seen, watching, ready))
        await watching.wait()
        await session.submit(RUN, [], run)
        async for _ in session.updates(run):
            pass  # until it has ended, with nothing pending
        await ready.wait()
        watch.cancel()
    record = await session.record(run)
    if record.message or record.times.ended is None:
        raise RuntimeError(f"run {run}: {record.message}")
    times = record.times
    before = seen["made"] - times.created
    after = max(0.0, record.times.ended - seen["ended"])
    await kube.delete(f"{workflows_path(NAMESPACE)}/{workflow_name(run)}")
    return record.times.ended - times.created, before, after


async def _watch(
    kube: KubeSession,
    name: str,
    seen: dict[str, float],
    watching: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """Note when a workflow is made and when Argo calls it ended, as whoever watches hears of it."""
    path = workflows_path(NAMESPACE)
    version = (await kube.get(path, {"limit": "1"}))["metadata"]["resourceVersion"]
    query = {"watch": "1", "resourceVersion": version, "fieldSelector": f"metadata.name={name}"}
    stream = kube.stream(path, query, accept=METADATA, silence_s=600, on_open=watching.set)
    buffer = b""
    async with aclosing(stream):
        async for chunk in stream:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in filter(None, lines):
                metadata = json.loads(line)["object"]["metadata"]
                seen.setdefault("made", time.time())
                if metadata.get("labels", {}).get(labels.ARGO_COMPLETED) == "true":
                    seen.setdefault("ended", time.time())
                    ready.set()


@contextlib.asynccontextmanager
async def _place(kube: KubeSession) -> AsyncIterator[tuple[ClusterConfig, Path]]:
    """Make a queue and a store of one's own."""
    name = f"bench-{secrets.token_hex(4)}"
    root = store_directory() / name
    root.mkdir()
    os.chown(root, UID, UID)
    kueue = "/apis/kueue.x-k8s.io/v1beta2"
    quota = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "2Gi"}]
    flavors = [{"name": name, "resources": quota}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    made = {
        f"{kueue}/resourceflavors": ("ResourceFlavor", {}),
        f"{kueue}/clusterqueues": (
            "ClusterQueue",
            {"namespaceSelector": {}, "resourceGroups": groups},
        ),
        f"{kueue}/namespaces/{NAMESPACE}/localqueues": ("LocalQueue", {"clusterQueue": name}),
    }
    claim = {"claimName": "simrun-snapshots", "readOnly": True}
    config = ClusterConfig(
        namespace=NAMESPACE,
        local_queue=name,
        topology=None,
        run_as_user=UID,
        run_as_group=UID,
        store_path=name,
        snapshots={"persistentVolumeClaim": claim},
        snapshots_path="",
    )
    try:
        for path, (kind, spec) in made.items():
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "spec": spec}
            await kube.create(path, {**body, "metadata": {"name": name}})
        yield config, root
    finally:
        for path in reversed(made):
            await kube.delete(f"{path}/{name}")
        shutil.rmtree(root, ignore_errors=True)
