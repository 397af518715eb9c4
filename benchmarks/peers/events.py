"""From a change at the API server to the start of a reconcile: simrun, kopf and controller-runtime, the same objects at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from typing import Any

from peers import objects, programs
from peers.figures import spread
from peers.programs import Peer

from simrun.backends.kubernetes.session import KubeSession

HERE = Path(__file__).parent
PODS = 600
MOST = 2000
"""Changes at one rate: one that is too much for the server, which takes 5 ms of processor time for each, must not end in time-outs."""
SETTLE_S = 2.0

Notes = list[dict[str, Any]]


async def measure(
    kube: KubeSession, go: Path, kopf: Path, *, rates: list[float], seconds: float, least: int
) -> dict[str, Any]:
    """Change pods at each of these rates, for so long and at least so often; what came of it, by rate and program.

    `go`, `kopf`: the programs. The update handlers of kopf come afterwards and alone, since they write to the pods; at high rates they would
    only measure the server.
    """
    counts = {rate: max(least, min(round(rate * seconds), MOST)) for rate in rates}
    async with objects.namespace(kube) as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"
        made = [objects.pod(f"bench-{n}", f"run-{n}", "t") for n in range(PODS)]
        await objects.at_once(lambda pod: kube.create(path, pod), made)
        beside = {
            "simrun": (sys.executable, HERE / "simrun_peer.py", namespace),
            "kopf": (kopf, HERE / "kopf_peer.py", namespace, "event"),
            "controller_runtime": (go, "watch", namespace),
        }
        alone = {"kopf_update": (kopf, HERE / "kopf_peer.py", namespace, "update")}
        async with programs.started(go, "change", namespace) as source:
            found = await _round(source, beside, counts)
            slow = {rate: count for rate, count in counts.items() if rate <= 100}
            apart = await _round(source, alone, slow)
    return {
        f"{rate:g}_per_s": {**found[rate], **_compared(found[rate]), **apart.get(rate, {})}
        for rate in rates
    }


async def _round(
    source: Peer, commands: dict[str, tuple[str | Path, ...]], counts: dict[float, int]
) -> dict[float, dict[str, Any]]:
    async with contextlib.AsyncExitStack() as stack:
        peers = {}
        for name, command in commands.items():
            peers[name] = await stack.enter_async_context(programs.started(*command))
        await _warm_up(source, peers)
        return {rate: await _rate(source, peers, rate, count) for rate, count in counts.items()}


async def _warm_up(source: Peer, peers: dict[str, Peer]) -> None:
    """Change them until everybody tells of every pod: caches are filled, handlers are there."""
    missing = {name: set(_names()) for name in peers}
    async with asyncio.timeout(120):
        while any(missing.values()):
            await source.ask(f"go 100 {PODS} {PODS}")
            await asyncio.sleep(SETTLE_S)
            for name, peer in peers.items():
                missing[name] -= {note["pod"] for note in await peer.ask("seen")}


async def _rate(source: Peer, peers: dict[str, Peer], rate: float, count: int) -> dict[str, Any]:
    print(
        f"  {count} changes at {rate:g} a second: {', '.join(peers)}", file=sys.stderr, flush=True
    )
    before = {name: await peer.ask("mark") for name, peer in peers.items()}
    sent: Notes = await source.ask(f"go {rate:g} {count} {PODS}")
    await asyncio.sleep(SETTLE_S)
    results: dict[str, Any] = {}
    for name, peer in peers.items():
        after = await peer.ask("mark")
        cpu_ms = (after["cpu_s"] - before[name]["cpu_s"]) * 1000 / count
        results[name] = {
            **_latencies(sent, await peer.ask("seen")),
            "cpu_ms_per_event": round(cpu_ms, 3),
            "rss_mb": round(after["rss_mb"], 1),
        }
    answered = [note for note in sent if "done" in note]
    took_s = (max(note["at"] for note in sent) - min(note["at"] for note in sent)) / 1e9
    results["request_ms"] = spread([(note["done"] - note["at"]) / 1e6 for note in answered])
    results["not_answered"] = len(sent) - len(answered)
    results["sent_per_s"] = round((count - 1) / took_s, 1)
    return results


def _latencies(sent: Notes, seen: Notes) -> dict[str, Any]:
    """From before a change was sent until a reconcile began that saw it, or a later one of the same pod."""
    by_pod: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for note in seen:
        by_pod[note["pod"]].append((note["number"], note["at"]))
    took, merged, lost = [], 0, 0
    for notes in by_pod.values():
        notes.sort()
    for note in sent:
        notes = by_pod[note["pod"]]
        place = bisect_left(notes, (note["number"], 0))
        if place == len(notes):
            lost += 1
            continue
        merged += notes[place][0] != note["number"]
        took.append((notes[place][1] - note["at"]) / 1e6)
    return {"ms": spread(took), "merged": merged, "lost": lost}


def _compared(results: dict[str, Any]) -> dict[str, Any]:
    mine, kopf, runtime = (results[name] for name in ("simrun", "kopf", "controller_runtime"))
    return {
        "p50_to_kopf": round(mine["ms"]["p50"] / kopf["ms"]["p50"], 2),
        "p99_to_controller_runtime": round(mine["ms"]["p99"] / runtime["ms"]["p99"], 2),
        "cpu_to_kopf": round(mine["cpu_ms_per_event"] / kopf["cpu_ms_per_event"], 2),
    }


def _names() -> list[str]:
    return [f"bench-{n}" for n in range(PODS)]
