"""What the ledger costs beside the work of a unit; prints JSON.

    python benchmarks/bench_ledger.py [DIRECTORY]

DIRECTORY is on the file system to be measured (default: a temporary one). A claim is timed as a worker sees it, listings
included, while other workers of the task claim and commit as well. A commit is everything that makes a unit's result durable: its
record written and fsynced, the link, the directory fsynced. It is compared, turn by turn, with the least that keeps any file
through a crash: write to a temporary name, fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

from simrun.worker import files
from simrun.worker.ledger import Holder, Ledger
from simrun.worker.protocol import TaskDir

UNITS = 10_000
COMMITS = 400
WORKERS = 4
CLAIM_MS = 1.0
COMMIT_RATIO = 1.5


def claims_of_one(root: Path, number: int) -> list[float]:
    """Claim until nothing is free; give the milliseconds of each claim."""
    holder = Holder(f"bench-w{number}", 0, f"{number:08}", "node")
    ledger = Ledger(TaskDir(root), holder, UNITS)
    took = []
    while True:
        began = time.perf_counter()
        claim = ledger.claim_next()
        ended = time.perf_counter()
        if claim is None:
            return took
        took.append((ended - began) * 1e3)


def commits(root: Path) -> dict[str, list[float]]:
    """Take turns between commits and bare durable writes of the same length; give milliseconds."""
    ledger = Ledger(TaskDir(root), Holder("bench-w0", 0, "00000000", "node"), UNITS)
    records, bare = root / "work", root / "bare"
    files.make_directory(records)
    files.make_directory(bare)
    took: dict[str, list[float]] = {"commit": [], "bare": []}
    for number in range(COMMITS):
        claim = ledger.claim_next()
        if claim is None:
            raise AssertionError("nothing is free")
        record = files.encode({"unit": claim.unit, "params": {"x": 0.5}, "result": {"y": 1.5}})
        began = time.perf_counter()
        files.write_synced(records / f"{claim.name}.json", record)
        if not ledger.commit(claim, records / f"{claim.name}.json"):
            raise AssertionError("a commit without a rival was lost")
        between = time.perf_counter()
        files.replace(bare / str(number), record)
        took["commit"].append((between - began) * 1e3)
        took["bare"].append((time.perf_counter() - between) * 1e3)
    return took


def figures(values: list[float]) -> dict[str, float]:
    """Give median, mean, 99th percentile and maximum, rounded to a microsecond."""
    values = sorted(values)
    return {
        "median": round(statistics.median(values), 3),
        "mean": round(statistics.fmean(values), 3),
        "p99": round(values[int(len(values) * 0.99)], 3),
        "max": round(values[-1], 3),
    }


def main() -> None:
    """Measure on one file system and print."""
    where = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=where) as directory:
        alone, race, commit = (Path(directory) / name for name in ("alone", "race", "commit"))
        one = claims_of_one(alone, 0)
        with multiprocessing.Pool(WORKERS) as pool:
            raced = pool.starmap(claims_of_one, [(race, number) for number in range(WORKERS)])
        took = commits(commit)
    won = [value for values in raced for value in values]
    if len(won) != UNITS:
        raise AssertionError(f"{len(won)} claims of {UNITS} units")
    ratio = statistics.median(took["commit"]) / statistics.median(took["bare"])
    result = {
        "benchmark": "ledger",
        "units": UNITS,
        "claim_ms": figures(one),
        f"claim_ms_{WORKERS}_workers": figures(won),
        "commit_ms": figures(took["commit"]),
        "bare_durable_write_ms": figures(took["bare"]),
        "commit_ratio": round(ratio, 2),
        "limits": {"claim_ms": CLAIM_MS, "commit_ratio": COMMIT_RATIO},
        "ok": figures(won)["mean"] <= CLAIM_MS and ratio <= COMMIT_RATIO,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
