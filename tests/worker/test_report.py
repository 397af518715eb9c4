from __future__ import annotations

import json
from pathlib import Path

from simrun.model.report import WorkerReport
from simrun.worker import environment, report
from simrun.worker.endings import AttemptError, MemoryKillError
from simrun.worker.environment import Environment
from simrun.worker.protocol import parse_attempt_name


def told(root: Path, uid: str = "0123456789") -> Environment:
    return environment.read(
        {
            "SIMRUN_RUN": "r",
            "SIMRUN_TASK": "t",
            "SIMRUN_WORKER": "t-w0",
            "SIMRUN_ATTEMPT": "1",
            "SIMRUN_TASK_DIR": str(root),
            "SIMRUN_POD_UID": uid,
            "SIMRUN_CPUS": "0.5",
        },
        "worker",
    )


def built(env: Environment, error: AttemptError | None = None) -> dict[str, object]:
    return report.build(
        env,
        error,
        started=100.0,
        measured={"cpu_s": 1.5, "memory": {"limit": 10, "oom_kills": 2}},
        units={"done": 3},
        merged=True,
        remark="a remark",
    )


def test_the_service_reads_every_field_of_a_report(tmp_path: Path) -> None:
    env = told(tmp_path)
    assert report.write(env, built(env))
    read = WorkerReport.model_validate_json((tmp_path / "reports" / "t-w0-1.json").read_bytes())
    assert (read.run, read.task, read.worker, read.attempt) == ("r", "t", "t-w0", 1)
    assert (read.exit_code, read.reason, read.message) == (0, "completed", "a remark")
    assert (read.cpus, read.cpu_s, read.memory.oom_kills, read.units.done) == (0.5, 1.5, 2, 3)
    assert read.started == 100.0 < read.ended
    assert set(json.loads(json.dumps(built(env)))) == set(
        read.model_dump(by_alias=True, exclude_unset=True)
    )


def test_an_ending_fills_code_reason_message_and_tail(tmp_path: Path) -> None:
    body = built(told(tmp_path), MemoryKillError("killed" * 2000, ["last"]))
    assert (body["exit_code"], body["reason"], body["tail"]) == (137, "oom", ["last"])
    assert len(str(body["message"])) == 4000


def test_the_report_of_another_pod_is_kept_and_ours_beside_it(tmp_path: Path) -> None:
    first, second = told(tmp_path), told(tmp_path, "abcdefghij")
    assert report.write(first, built(first))
    assert not report.write(second, built(second))
    names = {path.name: json.loads(path.read_bytes()) for path in (tmp_path / "reports").iterdir()}
    assert names["t-w0-1.json"]["pod_uid"] == "0123456789"
    assert names["t-w0-1.abcdefgh.json"]["pod_uid"] == "abcdefghij"
    assert parse_attempt_name("t-w0-1.abcdefgh") is None  # no attempt of its own to the service


def test_a_pod_may_say_more_about_itself(tmp_path: Path) -> None:
    env = told(tmp_path)
    report.write(env, built(env))
    assert report.write(env, built(env, MemoryKillError("killed")))
    read = json.loads((tmp_path / "reports" / "t-w0-1.json").read_bytes())
    assert read["exit_code"] == 137


def test_a_damaged_report_is_left_for_others_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "t-w0-1.json").write_text("{")
    env = told(tmp_path)
    assert not report.write(env, built(env))
    assert (tmp_path / "reports" / "t-w0-1.json").read_text() == "{"
