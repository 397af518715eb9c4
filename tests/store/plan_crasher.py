"""Kills -9 a process at every change it makes while it makes, activates, changes and deletes versions: python -m tests.store.plan_crasher STORE.

Each life does the same from the beginning, in a store of its own, and dies before its n-th change. After each death the store is looked at, and
then the same is done once more to its end. Prints JSON: how many changes there are, and what was wrong after which.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simrun.base.errors import Conflict, NotFound
from simrun.model.launchplan import version_problem
from simrun.store.launch_plans import LaunchPlanStore
from tests.store.plans import version

CHANGES = ("link", "rename", "unlink", "mkdir", "open", "rmdir")


def work(root: Path) -> None:
    """Make, activate, change and delete; whatever was done before is done already."""
    plans = LaunchPlanStore(root)

    def prepare(directory: Path) -> None:
        (directory / "code").mkdir(exist_ok=True)
        (directory / "code" / "plugin.py").write_text("whole")

    plans.create(version("1"), prepare)
    plans.create(version("2", description="2"), prepare)
    plans.activate("lab", "nightly", "1", by="ana", now=1.0)
    plans.activate("lab", "nightly", "2", by="ana", now=2.0)
    plans.deactivate("lab", "nightly", by="ana", now=3.0)
    try:
        plans.delete("lab", "nightly", "1")
    except NotFound:
        pass
    plans.activate("lab", "nightly", "2", by="ana", now=4.0)


def dying(root: Path, number: int) -> bool:
    """Do it in a fork that dies before its n-th change; whether it came to its end."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    left = number
    for name in CHANGES:
        real = getattr(os, name)

        def call(
            *args: Any, _real: Callable[..., Any] = real, _name: str = name, **how: Any
        ) -> Any:
            nonlocal left
            if _name != "open" or args[1] & os.O_CREAT:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return _real(*args, **how)

        setattr(os, name, call)
    work(root)
    os._exit(0)


def look(root: Path) -> list[str]:
    """Say what is wrong with a store after a death."""
    plans, problems = LaunchPlanStore(root), []
    active = plans.active("lab", "nightly")  # raises for half a file
    known = plans.versions("lab", "nightly")
    if active is not None and active.version is not None and active.version not in known:
        problems.append(f"version {active.version} is active, and there are {known}")
    for name in known:
        if version_problem(name):
            problems.append(f"{name!r} is no version")
        plan = plans.read("lab", "nightly", name)
        if (plans.files_of(plan) / "code" / "plugin.py").read_text() != "whole":
            problems.append(f"version {name} has half a file")
    return problems


def again(root: Path) -> list[str]:
    """Do it once more after a death, and say what is wrong then."""
    try:
        work(root)
    except Conflict as error:
        # The one that was deleted stays so
        if "version 1 of launch plan nightly was deleted" not in str(error):
            return [f"again: {error}"]
        plans = LaunchPlanStore(root)
        plans.activate("lab", "nightly", "2", by="ana", now=4.0)
    active = LaunchPlanStore(root).active("lab", "nightly")
    return [] if active is not None and active.version == "2" else [f"again: {active}"]


def main(top: str) -> None:
    found: dict[int, list[str]] = {}
    number, over = 0, False
    while not over:
        number += 1
        root = Path(top) / str(number)
        root.mkdir(parents=True)
        over = dying(root, number)
        problems = [*look(root), *again(root), *look(root)]
        if problems:
            found[number] = problems
    print(json.dumps({"changes": number - 1, "problems": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
