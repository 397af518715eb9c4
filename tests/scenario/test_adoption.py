"""kill -9 of `simrun serve` while workers run: they go on, and the next one takes them up."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.campaign import harness_pids
from tests.scenario.crash_runs import submission
from tests.scenario.serving import Service, service, wait

pytestmark = pytest.mark.timeout(120)

RUN = f"adopted-{os.getpid()}"
"""Not the id of a run of another test on this machine: processes are found by it."""
UNITS = 9
SWEEP = submission(
    {"sweep": {"type": "sweep"}, "sum": {"type": "sum", "inputs": {"table": "sweep.table"}}},
    {
        # Each unit needs leave to end: a file of its number
        "sweep": {
            "command": "echo {unit.index} >> $HOME/units; "
            "while [ ! -e $HOME/gate-{unit.index} ]; do sleep 0.05; done",
            "split": {"workers": 3, "units": {"list": list(range(UNITS))}},
            "outputs": {"table": "table.csv"},
        },
        "sum": {
            "command": "wc -l < {inputs.table} > {outputs.lines}; echo summed >> $HOME/sums",
            "inputs": ["table"],
            "outputs": {"lines": "lines"},
        },
    },
)
WORKERS = [f"sweep-w{number}" for number in range(3)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path / "store") as made:
        made.start()
        yield made


def done(served: Service) -> set[int]:
    directory = served.store / "runs" / RUN / "tasks" / "sweep" / "done"
    return {int(path.name) for path in directory.glob("[0-9]*")} if directory.is_dir() else set()


def let_go(served: Service, *units: int) -> None:
    for unit in units:
        served.open_gate(f"gate-{unit}")


def one_more(served: Service) -> None:
    """Let one of the units that are being computed end, and wait until it is committed."""
    before = done(served)
    let_go(served, min(set(computed(served)) - before))
    wait("a unit to be done", lambda: len(done(served)) == len(before) + 1)


def harnesses() -> dict[str, list[int]]:
    return {worker: harness_pids(RUN, worker) for worker in WORKERS}


def computed(served: Service) -> list[int]:
    """The units whose command was started, once for each start."""
    path = served.home / "units"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def attempts(served: Service, task: str) -> dict[str, str]:
    directory = served.store / "runs" / RUN / "tasks" / task / "attempts"
    return {path.stem: json.loads(path.read_text())["reason"] for path in directory.iterdir()}


def start_sweep(served: Service) -> None:
    """Submit, and wait until all three workers compute and one unit is done."""
    served.submitted(RUN, SWEEP)
    wait("three units to be begun", lambda: len(computed(served)) == 3)
    one_more(served)
    wait("a fourth to be begun", lambda: len(computed(served)) == 4)


def test_workers_go_on_without_a_service_and_no_unit_is_computed_twice(served: Service) -> None:
    start_sweep(served)
    before = harnesses()
    assert all(len(pids) == 1 for pids in before.values())

    served.kill()
    one_more(served)
    assert harnesses() == before

    served.start()
    assert served.run(RUN)["state"] == "running"
    assert harnesses() == before
    one_more(served)

    served.kill()
    served.start()
    let_go(served, *range(UNITS))
    assert served.ended(RUN)["state"] == "succeeded"
    assert computed(served) == list(range(UNITS))
    out = served.store / "runs" / RUN / "tasks" / "sum" / "out" / "lines"
    assert out.read_text().strip() == str(UNITS + 1)
    assert attempts(served, "sweep").keys() == {f"{worker}-0" for worker in WORKERS}
    assert attempts(served, "sum") == {"sum-0": "completed"}
    assert (served.home / "sums").read_text() == "summed\n"


def test_what_ended_while_no_service_was_there_is_found_and_the_run_goes_on(
    served: Service,
) -> None:
    start_sweep(served)
    served.kill()
    let_go(served, *range(UNITS))
    wait("all workers to end", lambda: not any(harnesses().values()))
    assert len(done(served)) == UNITS
    assert not (served.home / "sums").exists()

    served.start()
    assert served.ended(RUN)["state"] == "succeeded"
    assert computed(served) == list(range(UNITS))
    assert attempts(served, "sweep") == {f"{worker}-0": "completed" for worker in WORKERS}
    assert (served.home / "sums").read_text() == "summed\n"


def test_a_worker_that_died_with_its_supervisor_is_lost_and_only_its_open_unit_is_done_again(
    served: Service,
) -> None:
    start_sweep(served)
    (harness,) = harness_pids(RUN, "sweep-w0")
    (begun,) = {unit for unit, worker in _holders(served).items() if worker == "sweep-w0"}
    served.kill()
    supervisor = int(Path(f"/proc/{harness}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in (supervisor, harness):
        os.kill(pid, signal.SIGKILL)

    served.start()
    let_go(served, *range(UNITS))
    record = served.ended(RUN)
    assert record["state"] == "succeeded"
    assert record["evictions"] == {"sweep-w0": 1}
    assert computed(served) == sorted([*range(UNITS), begun])
    found = attempts(served, "sweep")
    assert (found["sweep-w0-0"], found["sweep-w0-1"]) == ("lost", "completed")


def _holders(served: Service) -> dict[int, str]:
    """Who computes the units that are claimed and not done, by the worker's name."""
    claims = served.store / "runs" / RUN / "tasks" / "sweep" / "claims"
    held = {int(path.name.partition(".")[0]): path for path in claims.glob("[0-9]*")}
    return {
        unit: json.loads(path.read_text())["worker"]
        for unit, path in held.items()
        if unit not in done(served)
    }
