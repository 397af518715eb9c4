"""How quickly and how cheaply simrun follows a cluster, beside kopf and controller-runtime; prints JSON.

    python benchmarks/bench_watch.py [--quick] [events] [campaign] [makespan]

Needs a cluster: tests/cluster/up, then eval "$(tests/cluster/env)". Gets kopf and controller-runtime with pip and go, once. All that it makes
on the cluster is in a namespace or a queue of its own and goes with it.

    events     a change at the API server until a reconcile starts; kopf and controller-runtime watch the same pods at the same time
    campaign   1,000 live runs of 5 pods, which are only objects: coming up, a minute in which nothing happens, and 50 pods a second that
               start, until the stream of all runs tells it
    makespan   what simrun itself adds to the time of a run of real pods
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from peers import campaign, events, makespan, programs

from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendError

PARTS = ("events", "campaign", "makespan")
LIMITS = {
    "events": {"p50_to_kopf": 1.0, "p99_to_controller_runtime": 2.0, "cpu_to_kopf": 0.5},
    "campaign": {
        "cold_sync_s": 10.0,
        "rss_mb": 250.0,
        "steady_requests": 40,
        "steady_cpu_percent": 3.0,
        "drift": 0,
        "out_ms": {"p99": 250.0},
    },
    "makespan": {"share_percent": 5.0},
}


async def measure(wanted: list[str], *, quick: bool) -> dict[str, Any]:
    """Measure what is wanted."""
    results: dict[str, Any] = {"limits": LIMITS, "load": {}}
    go = programs.go_program() if {"events", "campaign"} & set(wanted) else None
    kopf = programs.kopf_python() if "events" in wanted else None
    async with await KubeSession.open() as kube:
        for part in wanted:
            results["load"][part] = round(os.getloadavg()[0], 2)
            if part == "events" and go and kopf:
                seconds, least = (3.0, 60) if quick else (20.0, 300)
                rates = [10.0, 100.0, 150.0, 300.0]
                results[part] = await events.measure(
                    kube, go, kopf, rates=rates, seconds=seconds, least=least
                )
            elif part == "campaign" and go:
                size = (50, 10.0, 200) if quick else (1000, 60.0, 2000)
                runs, seconds, count = size
                results[part] = await campaign.measure(
                    kube, go, runs=runs, seconds=seconds, events=count
                )
            elif part == "makespan":
                results[part] = await makespan.measure(kube, 1 if quick else 5)
    return results


def main() -> int:
    """Measure and print."""
    quick = "--quick" in sys.argv
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        print(f"no part {min(unknown)!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        print(json.dumps(asyncio.run(measure(wanted, quick=quick))))
    except BackendError as error:
        print(f"{error}\nstart a cluster: tests/cluster/up", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
