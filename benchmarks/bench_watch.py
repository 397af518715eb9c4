"""How quickly and how cheaply simrun follows a cluster, beside kopf and controller-runtime; prints JSON.

    python benchmarks/bench_watch.py [--quick] [events] [stream] [campaign] [makespan]

Needs a cluster: tests/cluster/up, then eval "$(tests/cluster/env)". Gets kopf and controller-runtime with pip and go, which keep them. All that it
makes on the cluster is in namespaces and queues of its own and goes with them. The figures, and what stands beside them:

    events     a change at the API server until a reconcile starts; kopf and controller-runtime watch the same pods at the same time
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from peers import campaign, events, programs

from simrun.backends.kubernetes.session import KubeSession

LIMITS = {
    "events": {"p50_to_kopf": 1.0, "p99_to_controller_runtime": 2.0, "cpu_to_kopf": 0.5},
}


async def measure(wanted: list[str], *, quick: bool) -> dict[str, Any]:
    """Measure what is wanted, or everything."""
    results: dict[str, Any] = {"limits": LIMITS, "load_before": round(os.getloadavg()[0], 2)}
    async with await KubeSession.open() as kube:
        if "events" in wanted:
            seconds, least = (3.0, 60) if quick else (20.0, 300)
            go, kopf = programs.go_program(), programs.kopf_python()
            rates = [10.0, 100.0, 300.0]
            results["events"] = await events.measure(
                kube, go, kopf, rates=rates, seconds=seconds, least=least
            )
        if "campaign" in wanted:
            results["campaign"] = await campaign.measure(
                kube, *((50, 10.0) if quick else (1000, 60.0))
            )
    return results


def main() -> None:
    """Measure and print."""
    quick = "--quick" in sys.argv
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")] or ["events"]
    print(json.dumps(asyncio.run(measure(wanted, quick=quick))))


if __name__ == "__main__":
    main()
