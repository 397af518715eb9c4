"""A simulated year in full size: 500 schedules in 20 zones, crashes, lost snapshots, clocks that are set by an hour and by 30 days; prints JSON.

    python -m benchmarks year

The set of runs has to be that of a walk through all quarters of an hour (tests/scheduler/year.py says how); it ends with 1 where it is not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.scheduler.year import Shape, live

SEED = 2026


def main() -> int:
    logging.disable(logging.CRITICAL)  # every lost snapshot and clock is told, thousands of times
    shape, began = Shape(), time.perf_counter()
    result = asyncio.run(live(SEED, shape))
    took = time.perf_counter() - began
    same = result.made == result.expected and result.runs == len(result.expected)
    print(
        json.dumps(
            {
                **asdict(shape),
                "instants": len(result.expected),
                "runs": result.runs,
                "missing": len(result.expected - result.made),
                "too_many": len(result.made - result.expected),
                "starts": result.starts,
                "asked": result.tries,
                "seconds": round(took, 1),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "within": same,
            },
            indent=2,
        )
    )
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
