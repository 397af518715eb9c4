"""The programs of the harness from start to exit code, on a real task directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.campaign import TASK, Campaign, ref, wait_for

ADD = """
def compute(unit):
    (unit.out / "value.txt").write_text(str(unit.params["x"]))
    return {"y": unit.params["x"] * 10}
"""


def rows(count: int) -> list[dict[str, int]]:
    return [{"x": number} for number in range(count)]


def fifo(path: Path) -> Path:
    """A pipe in the file system: opening it to read waits until a unit opens it to write."""
    os.mkfifo(path)
    return path


def test_a_coordinator_computes_every_unit_and_merges(campaign: Campaign) -> None:
    campaign.split(rows(3), ADD)
    ended = campaign.run()
    assert ended.code == 0
    assert {i: record["result"] for i, record in campaign.done().items()} == {
        0: {"y": 0},
        1: {"y": 10},
        2: {"y": 20},
    }
    assert (campaign.dir.work / "2.1" / "value.txt").read_text() == "2"
    assert campaign.marker() is not None
    report = ended.report
    assert (report.reason, report.exit_code, report.merged, report.units.done) == (
        "completed",
        0,
        True,
        3,
    )
    assert report.protocol == 1
    assert report.started <= report.ended
    assert report.memory.peak_unreclaimable


def test_a_worker_that_does_not_merge_leaves_no_output(campaign: Campaign) -> None:
    campaign.split(rows(1), ADD)
    assert campaign.run(MERGE="0").code == 0
    assert not campaign.dir.out.exists()
    merged = campaign.run(f"{TASK}-merge", program="merge")
    assert (merged.code, merged.report.role, merged.report.merged) == (0, "merge", True)
    assert campaign.marker() is not None


def test_a_merge_refuses_a_ledger_that_is_not_complete(campaign: Campaign) -> None:
    campaign.split(rows(1), ADD)
    ended = campaign.run(f"{TASK}-merge", program="merge")
    assert ended.code == 6
    assert "missing" in ended.report.message
    assert campaign.marker() is None


def test_an_extra_worker_leaves_when_nothing_is_free(campaign: Campaign) -> None:
    campaign.split(rows(2), ADD)
    first = campaign.run(f"{TASK}-w1", ROLE="extra")
    again = campaign.run(f"{TASK}-w2", ROLE="extra")
    assert (first.code, first.report.units.done) == (0, 2)
    assert (again.code, again.report.units.done) == (0, 0)
    assert campaign.marker() is None


def test_two_workers_share_the_units(campaign: Campaign) -> None:
    pause = "import time\ndef compute(unit):\n    time.sleep(0.05)\n"
    campaign.split(rows(8), pause)
    workers = [campaign.start(), campaign.start(f"{TASK}-w1", ROLE="extra")]
    ended = [worker.wait() for worker in workers]
    assert [worker.code for worker in ended] == [0, 0]
    assert sum(worker.report.units.done for worker in ended) == 8
    assert set(campaign.done()) == set(range(8))


def test_an_empty_table_gives_an_empty_output_and_the_marker(campaign: Campaign) -> None:
    merge = {"plugin": ref("merge")}
    campaign.split([], ADD, merge=merge, outputs={"map": "map.npy"})
    assert campaign.run().code == 0
    marker = campaign.marker()
    assert marker is not None
    assert (marker["units"], marker["done"]) == (0, [])
    assert (campaign.dir.out / "table.csv").read_text() == "unit,key,state,reason\n"


def test_units_of_a_plugin_are_published_by_whoever_comes_first(campaign: Campaign) -> None:
    source = ADD + "def units(params, inputs):\n    return [{'x': n} for n in range(params['n'])]\n"
    campaign.make(source, params={"n": 4}, units={"kind": "plugin", "plugin": ref("units")})
    workers = [campaign.start(f"{TASK}-w1", ROLE="extra"), campaign.start()]
    assert [worker.wait().code for worker in workers] == [0, 0]
    assert len(campaign.done()) == 4


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("def units(params, inputs):\n    return {'x': 1}\n", "must return a list of dicts"),
        ("def units(params, inputs):\n    return None\n", "not None"),
        ("def units(params, inputs):\n    return [3]\n", "row"),
        ("def units(params, inputs):\n    raise KeyError('size')\n", "KeyError: 'size'"),
    ],
)
def test_a_units_plugin_that_fails_is_the_simulation_s_fault(
    campaign: Campaign, function: str, problem: str
) -> None:
    campaign.make(ADD + function, units={"kind": "plugin", "plugin": ref("units")})
    ended = campaign.run()
    assert ended.code == 3
    assert "units plugin code/plugin.py:units" in ended.report.message
    assert problem in ended.report.message


# --- settings, store ---------------------------------------------------------------------------------------------------


def test_a_missing_variable_is_named_and_ends_with_2() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "simrun.worker", "worker"],
        env={**os.environ, "SIMRUN_RUN": "r"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "SIMRUN_TASK_DIR" in ended.stderr or "SIMRUN_TASK" in ended.stderr


def test_a_store_that_is_not_mounted_ends_with_6_and_nothing_is_written(
    campaign: Campaign,
) -> None:
    started = campaign.start()
    output, _ = started.process.communicate(timeout=50)
    assert started.process.returncode == 6
    assert b"is the run store mounted?" in output
    assert not campaign.root.exists()


def test_a_program_for_the_other_kind_of_task_ends_with_2(campaign: Campaign) -> None:
    campaign.make(ADD)
    assert campaign.run().code == 2
    campaign.split(rows(1), ADD)
    ended = campaign.run(TASK, program="exec")
    assert ended.code == 2
    assert "simrun-worker" in ended.report.message


def test_the_module_says_how_it_is_used() -> None:
    command = [sys.executable, "-m", "simrun.worker", "dance"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "worker|merge|exec" in ended.stderr


def test_bad_settings_end_with_2_and_name_the_field(campaign: Campaign) -> None:
    campaign.split(rows(1), ADD, retries=-1)
    ended = campaign.run()
    assert ended.code == 2
    assert "retries is -1" in ended.report.message


def test_missing_settings_are_a_store_that_is_not_there(campaign: Campaign) -> None:
    campaign.split(rows(1), ADD)
    campaign.dir.settings.unlink()
    assert campaign.run().code == 6


def test_a_missing_input_ends_with_6_and_names_the_port(campaign: Campaign) -> None:
    campaign.split(rows(1), ADD, inputs={"mesh": {"run": "tasks/up/out/mesh.txt"}})
    ended = campaign.run()
    assert ended.code == 6
    assert "'mesh'" in ended.report.message


def test_a_staged_input_that_cannot_be_copied_ends_with_6(campaign: Campaign) -> None:
    campaign.split(rows(1), ADD, inputs={"mesh": {"run": "mesh"}}, stage=["mesh"])
    fifo(campaign.run_dir / "mesh")
    ended = campaign.run()
    assert ended.code == 6
    assert "staging input 'mesh'" in ended.report.message


def test_staged_inputs_are_read_from_scratch_which_is_emptied_afterwards(
    campaign: Campaign,
) -> None:
    source = "def compute(unit):\n    return {'at': str(unit.inputs['mesh']), 'text': unit.inputs['mesh'].read_text()}\n"
    campaign.split(rows(1), source, inputs={"mesh": {"run": "mesh.txt"}}, stage=["mesh"])
    (campaign.run_dir / "mesh.txt").write_text("points")
    scratch = campaign.root / "scratch" / f"{TASK}-w0"
    scratch.mkdir(parents=True)
    (scratch / "left").write_text("by an earlier attempt")
    assert campaign.run().code == 0
    assert campaign.done()[0]["result"] == {
        "at": str(scratch / "stage" / "mesh" / "mesh.txt"),
        "text": "points",
    }
    assert list(scratch.iterdir()) == []


# --- units that fail ---------------------------------------------------------------------------------------------------

CRASHES = """
import ctypes, os, sys
def compute(unit):
    how = unit.params["how"]
    if how == "abort":
        os.abort()
    if how == "exit":
        sys.exit(7)
    if how == "segv":
        ctypes.string_at(0)
    if how == "quiet":
        os._exit(0)
    if how == "raise":
        raise ValueError("the mesh has a hole")
    return {"ok": True}
"""


def test_units_that_crash_end_as_failed_units_and_the_others_are_done(campaign: Campaign) -> None:
    how = ["fine", "abort", "exit", "segv", "quiet", "raise", "fine"]
    campaign.split([{"how": word} for word in how], CRASHES, failures_allowed=5, unit_tries=1)
    ended = campaign.run()
    assert ended.code == 0
    assert set(campaign.done()) == {0, 6}
    messages = {i: record["message"] for i, record in campaign.failed().items()}
    assert messages[1].startswith("killed by SIGABRT")
    assert messages[2].startswith("ended with exit code 7")
    assert messages[3].startswith("killed by SIGSEGV")
    assert "before the plugin function returned" in messages[4]
    assert messages[5].endswith("ValueError: the mesh has a hole")
    assert (ended.report.units.done, ended.report.units.failed) == (2, 5)
    assert campaign.marker() is not None


def test_more_failed_units_than_allowed_end_with_3_and_are_named(campaign: Campaign) -> None:
    campaign.split([{"how": "raise"}, {"how": "fine"}], CRASHES)
    ended = campaign.run()
    assert (ended.code, ended.report.reason) == (3, "error")
    assert "1 of 2 units failed" in ended.report.message
    assert "how=raise" in ended.report.message
    assert "the mesh has a hole" in "\n".join(ended.report.tail)
    assert ended.report.units.faults == 2  # unit_tries
    assert campaign.marker() is None


@pytest.mark.parametrize(("allowed", "code"), [(0.5, 0), (0.4, 3), (1, 0), (0, 3)])
def test_the_failure_policy_is_a_count_or_a_share(
    campaign: Campaign, allowed: float, code: int
) -> None:
    campaign.split(
        [{"how": "exit"}, {"how": "fine"}], CRASHES, failures_allowed=allowed, unit_tries=1
    )
    assert campaign.run().code == code


def test_a_unit_that_fails_once_is_tried_again_from_an_empty_directory(campaign: Campaign) -> None:
    source = """
import pathlib
def compute(unit):
    mark = pathlib.Path(unit.params["mark"])
    assert list(unit.out.iterdir()) == []
    (unit.out / "part").write_text("x")
    if not mark.exists():
        mark.touch()
        raise OSError("licence server is away")
"""
    mark = campaign.root / "mark"
    campaign.split([{"mark": str(mark)}], source)
    ended = campaign.run()
    assert (ended.code, ended.report.units.faults) == (0, 1)
    assert campaign.done()[0]["generation"] > 1


def test_retries_stay_inside_the_pod_and_cost_no_fault(campaign: Campaign) -> None:
    count = campaign.root / "count"
    command = ["/bin/sh", "-c", "echo x >> {params.count}; test $(wc -l < {params.count}) -ge 3"]
    campaign.split([{"count": str(count)}], command=command, retries=2)
    ended = campaign.run()
    assert (ended.code, ended.report.units.faults) == (0, 0)
    assert campaign.done()[0]["tries"] == 3


def test_a_unit_over_its_time_limit_is_given_up_though_it_ignores_sigterm(
    campaign: Campaign,
) -> None:
    command = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]
    campaign.split(rows(1), command=command, unit_timeout_s=0.1, unit_tries=1)
    ended = campaign.run(GRACE_S="0.3")
    assert ended.code == 3
    assert campaign.failed()[0]["reason"] == "timeout"
    assert "time limit of 0.1 s" in ended.report.message


def test_a_result_that_is_no_flat_object_is_the_unit_s_fault(campaign: Campaign) -> None:
    command = ["/bin/sh", "-c", "echo '{\"deep\": [1]}' > result.json"]
    campaign.split(rows(1), command=command, unit_tries=1)
    ended = campaign.run()
    assert ended.code == 3
    assert "'deep'" in ended.report.message


def test_a_program_that_removes_its_output_directory_has_failed(campaign: Campaign) -> None:
    campaign.split(rows(2), command=["/bin/sh", "-c", "[ {params.x} = 1 ] || rm -r {out}"])
    ended = campaign.run()
    assert ended.code == 3
    assert "1 of 2 units failed" in ended.report.message
    assert campaign.failed()[0]["message"] == "the program removed its output directory"


def test_a_command_that_does_not_exist_is_named(campaign: Campaign) -> None:
    campaign.split(rows(1), command=["no-such-simulator"], unit_tries=1)
    ended = campaign.run()
    assert ended.code == 3
    assert "cannot start 'no-such-simulator'" in ended.report.message


def test_a_command_with_an_unknown_placeholder_ends_with_2(campaign: Campaign) -> None:
    campaign.split(rows(1), command=["echo", "{params.y}"])
    ended = campaign.run()
    assert ended.code == 2
    assert "{params.y}" in ended.report.message


# --- ends that come from outside ------------------------------------------------------------------------------------------


def test_an_optional_input_without_a_file_or_a_connection_is_empty_text_as_without_the_harness(
    campaign: Campaign,
) -> None:
    campaign.make(
        command=["/bin/sh", "-c", "echo '<{inputs.gone}|{inputs.open}>' > seen"],
        inputs={"gone": {"run": "tasks/u/out/a", "optional": True}},
        open_inputs=["open"],
    )

    ended = campaign.start(TASK, program="exec").wait()

    assert ended.code == 0, ended.output
    assert (campaign.dir.out / "seen").read_text() == "<|>\n"


def test_the_next_attempt_of_a_killed_worker_goes_on_where_it_was(campaign: Campaign) -> None:
    started = fifo(campaign.root.parent / "started")
    source = f"""
import os
def compute(unit):
    if unit.index == {{hang}} and os.environ["SIMRUN_ATTEMPT"] == "0":
        open({str(started)!r}, "w").close()
        os.kill(os.getpid(), 19)
    return {{{{"attempt": int(os.environ["SIMRUN_ATTEMPT"])}}}}
"""
    campaign.split(rows(4), source.format(hang=2))
    first = campaign.start()
    started.open().close()
    first.kill()
    before = set(campaign.done())
    assert 2 not in before
    ended = campaign.run(attempt=1)
    assert ended.code == 0
    records = campaign.done()
    assert set(records) == {0, 1, 2, 3}
    assert {i for i, record in records.items() if record["attempt"] == 0} == before
    assert records[2]["generation"] == 2
    assert ended.report.units.done == 4 - len(before)


def test_sigterm_ends_the_simulation_gives_units_back_and_exits_143(campaign: Campaign) -> None:
    started = fifo(campaign.root.parent / "started")
    script = f"trap 'echo bye; exit 0' TERM; sh -c 'echo > {started}'; sleep 60 & wait"
    campaign.split(rows(1), command=["/bin/sh", "-c", script])
    worker = campaign.start()
    started.open().close()
    os.kill(worker.process.pid, signal.SIGTERM)
    ended = worker.wait()
    assert (ended.code, ended.report.reason) == (143, "evicted")
    assert "bye" in ended.output
    assert campaign.done() == {}  # what ended because it was asked to has not finished its work
    assert (campaign.dir.claims / "0.2").exists()  # free again
    names = {path.name for path in campaign.dir.faults.iterdir()}
    assert names == set()


def test_a_simulation_that_ignores_sigterm_is_killed_within_the_grace(campaign: Campaign) -> None:
    started = fifo(campaign.root.parent / "started")
    command = ["/bin/sh", "-c", f"trap '' TERM; echo > {started}; while :; do sleep 0.05; done"]
    campaign.split(rows(1), command=command)
    worker = campaign.start(GRACE_S="0.4")
    started.open().close()
    os.kill(worker.process.pid, signal.SIGTERM)
    assert worker.wait().code == 143


def test_the_time_limit_of_the_worker_ends_with_3_and_its_reason(campaign: Campaign) -> None:
    campaign.split(rows(1), command=["sleep", "60"])
    ended = campaign.run(TIMEOUT_S="0.3")
    assert (ended.code, ended.report.reason) == (3, "deadline")
    assert "0.3 s" in ended.report.message
    assert (campaign.dir.claims / "0.2").exists()


def test_a_coordinator_that_waits_ends_at_its_time_limit(campaign: Campaign) -> None:
    started = fifo(campaign.root.parent / "started")
    campaign.split(rows(1), command=["/bin/sh", "-c", f"echo > {started}; sleep 60"])
    campaign.start(f"{TASK}-w1", ROLE="extra")
    started.open().close()
    ended = campaign.run(TIMEOUT_S="0.5")
    assert (ended.code, ended.report.reason) == (3, "deadline")


def test_a_coordinator_frees_the_units_of_a_worker_that_is_known_to_be_dead(
    campaign: Campaign,
) -> None:
    started = fifo(campaign.root.parent / "started")
    command = [
        "/bin/sh",
        "-c",
        f"[ $SIMRUN_ROLE = extra ] || exit 0; echo > {started}; kill -STOP $$",
    ]
    campaign.split(rows(1), command=command)
    extra = campaign.start(f"{TASK}-w1", ROLE="extra", POD_UID="0123456789", MERGE="0")
    started.open().close()
    extra.kill()
    campaign.dir.dead.mkdir()
    (campaign.dir.dead / f"{TASK}-w1-0.01234567").write_text("{}")
    ended = campaign.run(ROLE="base")
    assert ended.code == 0
    assert "which has ended" in ended.output
    assert campaign.done()[0]["worker"] == f"{TASK}-w0"


def test_everything_a_unit_started_ends_with_it(campaign: Campaign) -> None:
    command = ["/bin/sh", "-c", "sleep 600 & echo $! > pid"]
    campaign.split(rows(1), command=command)
    assert campaign.run().code == 0
    pid = int((campaign.dir.work / "0.1" / "pid").read_text())
    wait_for(lambda: not alive(pid), "the end of what the unit left behind")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- unsplit tasks -------------------------------------------------------------------------------------------------------


def test_exec_puts_the_output_in_place_when_it_is_whole(campaign: Campaign) -> None:
    source = """
def compute(unit):
    (unit.out / "map.txt").write_text(f"{unit.index} {unit.params['x']} {unit.inputs['mesh'].read_text()}")
    return {"seed": unit.seed > 0}
"""
    campaign.make(
        source,
        params={"x": 5},
        inputs={"mesh": {"snapshot": "meshes/a.txt"}},
        outputs={"map": "map.txt"},
    )
    meshes = campaign.root / "snapshots" / "meshes"
    meshes.mkdir(parents=True)
    (meshes / "a.txt").write_text("points")
    ended = campaign.run(TASK, program="exec", SNAPSHOTS=str(meshes.parent))
    assert (ended.code, ended.report.role) == (0, "exec")
    assert (campaign.dir.out / "map.txt").read_text() == "0 5 points"
    assert json.loads((campaign.dir.out / "result.json").read_text()) == {"seed": True}
    assert list(campaign.dir.work.iterdir()) == []


def test_a_killed_exec_leaves_nothing_in_out_and_the_next_attempt_nothing_of_it(
    campaign: Campaign,
) -> None:
    started = fifo(campaign.root.parent / "started")
    script = (
        f"echo $SIMRUN_ATTEMPT > part; [ $SIMRUN_ATTEMPT = 1 ] && exit; echo > {started}; sleep 60"
    )
    campaign.make(command=["/bin/sh", "-c", script])
    first = campaign.start(TASK, program="exec")
    started.open().close()
    first.kill()
    assert not campaign.dir.out.exists()
    assert campaign.run(TASK, attempt=1, program="exec").code == 0
    assert (campaign.dir.out / "part").read_text() == "1\n"
    assert list(campaign.dir.work.iterdir()) == []


def test_a_failing_exec_ends_with_3_after_its_retries(campaign: Campaign) -> None:
    campaign.make(command=["/bin/sh", "-c", "echo no licence >&2; exit 4"], retries=1)
    ended = campaign.run(TASK, program="exec")
    assert ended.code == 3
    assert ended.report.message == "ended with exit code 4: no licence"
    assert ended.report.tail == ["no licence"]
    assert ended.output.count("no licence\n") >= 2


def test_an_output_that_nobody_wrote_fails_the_task(campaign: Campaign) -> None:
    campaign.make(command=["true"], outputs={"map": "map.npy"})
    ended = campaign.run(TASK, program="exec")
    assert ended.code == 3
    assert "output 'map' is missing" in ended.report.message
    assert not campaign.dir.out.exists()


def test_an_earlier_output_is_replaced_as_a_whole(campaign: Campaign) -> None:
    campaign.make(command=["touch", "new"])
    campaign.dir.out.mkdir()
    (campaign.dir.out / "old").touch()
    assert campaign.run(TASK, program="exec").code == 0
    assert [path.name for path in campaign.dir.out.iterdir()] == ["new"]
    left = {path.name for path in campaign.dir.root.iterdir()}
    assert not any(name.startswith("out.tmp") for name in left)


def test_the_log_is_kept_in_the_store_and_shown(campaign: Campaign) -> None:
    campaign.make(command=["/bin/sh", "-c", "printf 'a\\200b\\n'; echo err >&2"])
    ended = campaign.run(TASK, program="exec")
    log = (campaign.dir.logs / f"{TASK}-0.log").read_bytes()
    assert b"a\x80b\n" in log
    assert b"err\n" in log
    assert "err\n" in ended.output
