"""What is there after a run during which the service was killed, without times and random parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore
from simrun.store.sweep import sweep
from simrun.worker import files
from simrun.worker.protocol import attempt_name
from tests.scenario.crash_runs import RUN, Place, Scenario


def summary(scenario: Scenario, place: Place) -> dict[str, Any]:
    """Tell what is there in the end, without times and random parts: two ends that are the same are equal."""
    store = RunStore(place.store)
    layout = store.layout
    # What a kill leaves half-written is what a later start sweeps, once it is old
    sweep(layout, files.listing(layout.runs), left_s=0)
    told: dict[str, Any] = {
        "runs": sorted(os_listing(layout.runs)),
        "live": sorted(os_listing(layout.live)),
        "deleted": sorted(files.listing(layout.deleted)),
        "damaged": sorted(files.listing(layout.damaged)),
        "temporary": sorted(
            str(path.relative_to(place.store))
            for path in place.store.rglob(f"{files.TEMPORARY_PREFIX}*")
            if not path.is_relative_to(place.store / "engine")
        ),
        "outside": {
            path.name: path.read_text()
            if path.name != "units"
            else sorted(path.read_text().split())
            for path in sorted(place.outside.iterdir())
        },
        "reserved": (place.store / "engine" / "reservation.json").exists(),
        "engine": sorted(
            _plain_attempt("/".join(path.relative_to(place.store).parts[2:]))
            for kept in ("workflows", "ended")
            for path in (place.store / "engine" / kept).rglob("*")
            # Whether an extra worker was still there to be stopped depends on time
            if not path.name.startswith(files.TEMPORARY_PREFIX) and path.name != "stopped"
        ),
    }
    if RUN in told["runs"]:
        record = store.read(RUN)
        told["record"] = record.model_dump(
            mode="json", exclude={"times", "revision", "workflow_uid", "epoch"}
        )
        if record.message is not None:
            told["record"]["message"] = record.message.replace(str(place.root), "")
        told["times"] = sorted(name for name, at in record.times if at is not None)
        told["run files"] = sorted(files.listing(layout.run(RUN).root))
        for task in record.tasks:
            told |= {f"{task} {part}": value for part, value in _task(store, task).items()}
    return {part: value for part, value in told.items() if part not in scenario.open_parts}


def _task(store: RunStore, task: str) -> dict[str, Any]:
    place = store.layout.run(RUN).task(task)
    evidence = store.evidence(RUN, task)
    reports = store.reports(RUN, task)
    # A bare command is observed if it lived long enough to be measured
    measured = {
        attempt_name(seen.worker, seen.attempt)
        for seen in evidence
        if seen.peak_memory is not None and seen.reason is not None and not seen.oom
    } - set(reports)
    observed = {
        attempt_name(seen.worker, seen.attempt)
        for seen in ResourceStore(store.layout.root).of_type(task)
    }
    recorded = store.recorded(RUN, task)
    return {
        "observed": sorted(observed - measured),
        "recorded": sorted(recorded - measured),
        "observed as measured": measured <= observed == recorded,
        "files": sorted(files.listing(place.root) - {place.recorded.name}),
        "done": sorted(files.listing(place.done)),
        "failed": sorted(files.listing(place.failed)),
        "faults": sorted(files.listing(place.faults)),
        "claims": sorted(n for n in files.listing(place.claims) if not n.startswith(".")),
        "out": sorted(files.listing(place.out)),
        "logs": sorted(files.listing(place.logs)),
        "attempts": {
            f"{seen.worker}-{seen.attempt}": (
                "an extra worker" if seen.worker.endswith("-w1") else [seen.reason, seen.exit_code]
            )
            for seen in evidence
        },
        "reports": {name: [report.reason, report.exit_code] for name, report in reports.items()},
        "memory": sorted(files.listing(place.memory)),
        "dead": sorted(
            name.rpartition(".")[0] for name in files.listing(place.dead) if "-w1-" not in name
        ),
    }


def os_listing(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()] if directory.exists() else []


def _plain_attempt(text: str) -> str:
    return re.sub(r"[0-9a-f]{32}", "UID", text)


def differences(calm: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Say in which parts two ends differ."""
    return [
        f"{part}: {other.get(part)!r}, undisturbed: {calm.get(part)!r}"
        for part in {**calm, **other}
        if calm.get(part) != other.get(part)
    ]
