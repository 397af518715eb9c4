"""All figures as one JSON document: `python -m benchmarks [NAME …]`.

Each bench_NAME.py prints JSON of its own and runs in a process of its own, one after the other; a figure that compares does so within one
process, since machines drift.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run the benches that are named, or all; the exit status says whether all ran."""
    there = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    wanted = sys.argv[1:] or list(there)
    if unknown := [name for name in wanted if name not in there]:
        print(f"no benchmark {unknown[0]!r}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    results: dict[str, object] = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "kernel": platform.release(),
        }
    }
    failed = False
    # Where bytecode is not kept every start compiles simrun anew: no user's machine does that
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    for name in wanted:
        print(f"{name} …", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, there[name]],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
        if done.returncode:
            failed = True
            results[name] = {"failed": done.returncode}
        else:
            results[name] = json.loads(done.stdout)
    print(json.dumps(results, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
