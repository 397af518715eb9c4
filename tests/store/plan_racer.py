"""A process that does things to a launch plan at the same moment as others: python -m tests.store.plan_racer STORE WHAT VERSION.

It waits for a byte on its input, then creates or activates the version, or deactivates the plan, and prints what came of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from simrun.base.errors import Conflict
from simrun.store.launch_plans import LaunchPlanStore
from tests.store.plans import version


def main(root: str, what: str, name: str) -> None:
    plans = LaunchPlanStore(Path(root))
    print("ready", flush=True)
    sys.stdin.read(1)
    try:
        if what == "create":
            _, new = plans.create(version("1", description=name))
            print("new" if new else "there")
        elif what == "activate":
            print(plans.activate("lab", "nightly", name, by=name, now=float(name)).version)
        else:
            print(plans.deactivate("lab", "nightly", by=name, now=float(name)).version)
    except Conflict:
        print("conflict")


if __name__ == "__main__":
    main(*sys.argv[1:])
