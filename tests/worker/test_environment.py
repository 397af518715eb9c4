from __future__ import annotations

import pytest

from simrun.model.quantities import memory_gb_text
from simrun.worker import environment
from simrun.worker.endings import BadSettingsError

LEAST = {
    "SIMRUN_RUN": "r",
    "SIMRUN_TASK": "t",
    "SIMRUN_WORKER": "t-w3",
    "SIMRUN_ATTEMPT": "2",
    "SIMRUN_TASK_DIR": "/store/runs/r/tasks/t",
}


def test_the_least_environment_has_the_defaults_of_the_contract() -> None:
    env = environment.read(LEAST, "worker")
    assert (env.attempt, env.attempt_base, env.role, env.merge) == (2, 0, "base", False)
    assert (env.grace_s, env.stale_s, env.timeout_s) == (30, 90, None)
    assert (env.memory, env.retry_memory, env.cpus, env.scratch) == (None, None, None, None)
    assert str(env.task_dir.run_dir) == "/store/runs/r"
    assert env.attempt_name == "t-w3-2"


def test_the_attempt_counts_from_the_base_of_the_round() -> None:
    env = environment.read({**LEAST, "SIMRUN_ATTEMPT_BASE": "5"}, "worker")
    assert (env.attempt, env.attempt_base) == (7, 5)


def test_memory_comes_as_decimal_gib_without_a_loss() -> None:
    size = 3 * 2**30 + 4096
    told = {**LEAST, "SIMRUN_MEMORY_PER_WORKER_GB": memory_gb_text(size)}
    assert environment.read(told, "worker").memory == size


def test_the_program_says_the_role_but_for_a_worker() -> None:
    told = {**LEAST, "SIMRUN_ROLE": "extra"}
    assert environment.read(told, "worker").role == "extra"
    assert environment.read({**LEAST, "SIMRUN_ROLE": "merge"}, "merge").role == "merge"
    assert environment.read(LEAST, "exec").role == "exec"


def test_pods_that_were_told_no_uid_do_not_share_a_name() -> None:
    holders = {environment.read(LEAST, "worker").holder for _ in range(20)}
    assert len(holders) == 20


def test_the_staleness_follows_the_grace() -> None:
    assert environment.read({**LEAST, "SIMRUN_GRACE_S": "120"}, "worker").stale_s == 180


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SIMRUN_RUN", "", "SIMRUN_RUN is not set"),
        ("SIMRUN_ATTEMPT", "{{retries}}", "whole number"),
        ("SIMRUN_ATTEMPT", "-1", "whole number"),
        ("SIMRUN_TASK_DIR", "runs/r", "absolute path"),
        ("SIMRUN_GRACE_S", "0", "number above 0"),
        ("SIMRUN_TIMEOUT_S", "1h", "number above 0"),
        ("SIMRUN_MEMORY_PER_WORKER_GB", "512Mi", "number above 0"),
        ("SIMRUN_CPUS", "nan", "number above 0"),
        ("SIMRUN_ROLE", "boss", "base or extra"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, problem: str) -> None:
    with pytest.raises(BadSettingsError, match=problem) as caught:
        environment.read({**LEAST, name: value}, "worker")
    assert name in caught.value.message
