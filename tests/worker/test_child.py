from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simrun.worker.child import Outcome, Runner
from simrun.worker.endings import DeadlineError, TerminatedError
from simrun.worker.log import Log
from simrun.worker.stopping import Stopper
from tests.worker.campaign import wait_for


class Bench:
    """A runner with a log of its own; `kills` is what the kernel's counter says each time it is read."""

    def __init__(self, root: Path, timeout_s: float | None = None) -> None:
        self.root = root
        self.log_path = root / "logs" / "log"
        self.stopper = Stopper(grace_s=0.3, timeout_s=timeout_s)
        self.kills = [0]
        self.log = Log(self.log_path)
        self.runner = Runner(self.log, self.stopper, self._count)

    def close(self) -> None:
        self.log.close()
        self.stopper.bell.close()

    def _count(self) -> int:
        return self.kills.pop(0) if len(self.kills) > 1 else self.kills[0]

    def shell(self, script: str, timeout_s: float | None = None) -> Outcome:
        return self.runner.run(
            ["/bin/sh", "-c", script], cwd=self.root, env=os.environ, timeout_s=timeout_s
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield (made := Bench(tmp_path))
    made.close()


def test_output_reaches_the_log_byte_for_byte(bench: Bench) -> None:
    outcome = bench.shell("printf 'a\\0\\200\\n'; printf 'err' >&2")
    assert outcome.ok
    assert bench.log_path.read_bytes() == b"a\0\x80\nerr"
    assert list(outcome.tail) == ["a\0�", "err"]


def test_an_exit_code_and_a_signal_are_told_apart(bench: Bench) -> None:
    code = bench.shell("exit 9")
    assert (code.exit_code, code.signal, code.ok) == (9, None, False)
    assert code.message == "ended with exit code 9"
    killed = bench.shell("kill -USR1 $$")
    assert (killed.exit_code, killed.signal, killed.message) == (
        None,
        signal.SIGUSR1,
        "killed by SIGUSR1",
    )


def test_a_huge_line_is_logged_whole_and_kept_short(bench: Bench) -> None:
    size = 20_000_000
    outcome = bench.shell(f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end")
    assert bench.log_path.stat().st_size == size + 5
    assert [len(line) for line in outcome.tail] == [2000, 3]


def test_a_signal_for_the_group_of_the_harness_does_not_reach_the_simulation(bench: Bench) -> None:
    outcome = bench.shell("echo $$; cut -d' ' -f5 /proc/$$/stat")
    pid, group = (int(line) for line in outcome.tail)
    assert group == pid != os.getpgrp()


def test_a_process_left_behind_is_killed(bench: Bench) -> None:
    bench.shell("sleep 600 & echo $! > pid")
    pid = int((bench.root / "pid").read_text())
    wait_for(lambda: not _lives(pid), "the end of the process left behind")


def test_a_process_that_left_the_group_and_holds_the_pipe_does_not_hold_the_harness(
    bench: Bench,
) -> None:
    script = "import os; os.setsid(); open('pid', 'w').write(str(os.getpid())); os.execvp('sleep', ['sleep', '600'])"
    outcome = bench.shell(f'{sys.executable} -c "{script}" & while ! [ -s pid ]; do :; done')
    assert outcome.ok
    os.kill(int((bench.root / "pid").read_text()), signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_that_is_not_there_is_an_outcome(bench: Bench) -> None:
    outcome = bench.runner.run(["no-such-program"], cwd=bench.root, env=os.environ)
    assert (outcome.exit_code, outcome.ok) == (127, False)
    assert "no-such-program" in outcome.message
    not_executable = bench.root / "data.txt"
    not_executable.write_text("x")
    assert not bench.runner.run([str(not_executable)], cwd=bench.root, env=os.environ).ok


def test_a_directory_that_is_not_there_is_the_harness_s_trouble(bench: Bench) -> None:
    with pytest.raises(FileNotFoundError):
        bench.runner.run(["true"], cwd=bench.root / "gone", env=os.environ)


def test_the_kernel_is_told_to_take_the_simulation_first(bench: Bench) -> None:
    wait = "for i in $(seq 1000); do read score < /proc/$$/oom_score_adj; [ $score = 1000 ] && break; sleep 0.01; done"
    outcome = bench.shell(f"{wait}; cat /proc/self/oom_score_adj")
    assert list(outcome.tail) == ["1000"]
    assert Path("/proc/self/oom_score_adj").read_text().strip() != "1000"


def test_a_time_limit_is_asked_for_before_it_is_enforced(bench: Bench) -> None:
    outcome = bench.shell("trap 'echo saved; exit 0' TERM; sleep 60 & wait", timeout_s=0.2)
    assert (outcome.timed_out, outcome.ok) == (True, False)
    assert list(outcome.tail) == ["saved"]
    stubborn = bench.shell("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.1)
    assert (stubborn.timed_out, stubborn.signal) == (True, signal.SIGKILL)
    assert "time limit of 0.1 s" in stubborn.message


def test_the_time_limit_of_the_worker_stops_the_simulation(tmp_path: Path) -> None:
    bench = Bench(tmp_path, timeout_s=0.2)
    outcome = bench.shell("sleep 60")
    assert isinstance(outcome.stopped, DeadlineError)
    assert not outcome.ok
    bench.close()


def test_a_rise_of_the_counter_counts_only_with_a_bad_end(bench: Bench) -> None:
    bench.kills = [2, 3]
    assert bench.shell("exit 1").killed_for_memory
    bench.kills = [3, 4]
    assert not bench.shell("exit 0").killed_for_memory
    bench.kills = [4]
    assert not bench.shell("kill -KILL $$").killed_for_memory


def test_a_hang_after_a_kill_counts_but_an_end_by_sigterm_does_not() -> None:
    late = Outcome(signal=15, stopped=DeadlineError("late"), oom_kills=1)
    ended = Outcome(signal=15, stopped=TerminatedError("ended"), oom_kills=1)
    assert late.killed_for_memory
    assert not ended.killed_for_memory
    assert Outcome(exit_code=0, timed_out=True, oom_kills=1).killed_for_memory
