"""An engine takes up what another left: killed at any point, stopped in order, or gone with its machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from simrun.argo.names import workflow_name
from simrun.backends.base import Phase
from simrun.backends.local import processes, zygote
from simrun.base.errors import BackendError, Locked

RUN = workflow_name("run")

SERVICE = """
import asyncio, json, sys
from pathlib import Path
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.model.record import RunRecord, RunTimes
from simrun.pods import Pod

async def main(store, pods):
    pods = [Pod(**{**pod, "command": tuple(pod["command"]), "needs": tuple(pod["needs"])}) for pod in pods]
    config = LocalConfig.for_store(Path(store), cpus=8)
    async with LocalBackend(config, pods=lambda *_: pods) as backend:
        if pods:
            await backend.submit(RunRecord(id="run", times=RunTimes(created=0)), {}, {})
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


@pytest.fixture
def service(tmp_path):
    """Start an engine in a process of its own, to be killed."""
    started = []

    def start(*pods):
        plain = [
            {
                name: getattr(pod, name)
                for name in ("worker", "task", "type", "role", "command", "working_dir", "needs")
            }
            | {"scratch": pod.scratch, "grace_s": pod.grace_s, "attempt_base": pod.attempt_base}
            for pod in pods
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SERVICE), tmp_path / "store", json.dumps(plain)],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def kill(process):
    process.kill()
    process.wait()


def record(tmp_path, name):
    return json.loads((tmp_path / "store" / "engine" / "workflows" / RUN / name).read_text())


async def test_what_a_killed_engine_started_is_adopted_and_runs_once(
    open_engine, service, shell, tmp_path, file_of, alive
):
    pods = [
        shell("a", "echo $$ >> pid; while [ ! -e go ]; do sleep 0.02; done; echo >> done"),
        shell("b", "echo >> done", needs=("a",)),
    ]
    first = service(*pods)
    out = tmp_path / "store" / "runs" / "run" / "tasks" / "a" / "out"
    pid = int(await file_of(out / "pid"))
    kill(first)
    assert alive(pid)
    async with open_engine() as engine:
        status = await engine.backend.status(RUN)
        assert status.nodes["a"].phase is Phase.RUNNING
        assert status.nodes["a"].attempts[0].pod_uid == record(tmp_path, "a-0.start.json")["uid"]
        assert alive(pid)
        (out / "go").touch()
        status = await engine.ended(RUN)
        assert status.phase is Phase.SUCCEEDED
        assert (out / "pid").read_text() == f"{pid}\n"
        assert (out / "done").read_text() == "\n"


async def test_what_ended_while_no_engine_was_there_is_known(
    open_engine, service, shell, tmp_path, file_of, gone
):
    first = service(shell("a", "echo $$ > pid; exec sleep 0.3"), shell("b", "exit 5", needs=("a",)))
    out = tmp_path / "store" / "runs" / "run" / "tasks" / "a" / "out"
    pid = int(await file_of(out / "pid"))
    kill(first)
    await gone(pid, record(tmp_path, "a-0.start.json")["pid"])
    async with open_engine() as engine:
        status = await engine.ended(RUN)
        assert status.nodes["a"].attempts[0].reason == "completed"
        assert len(status.nodes["a"].attempts) == 1
        assert status.nodes["b"].attempts[0].exit_code == 5


async def test_an_adopted_attempt_is_stopped_with_the_others(
    open_engine, service, shell, tmp_path, file_of, gone, alive
):
    first = service(shell("a", "echo $$ > pid; exec sleep 600"))
    pid = int(await file_of(tmp_path / "store" / "runs" / "run" / "tasks" / "a" / "out" / "pid"))
    kill(first)
    async with open_engine(end_attempts=True):
        assert alive(pid)
    assert not alive(pid)
    assert record(tmp_path, "a-0.exit.json")["reason"] == "cancelled"


async def test_leaving_in_order_lets_attempts_run_on(open_engine, shell, file_of, alive):
    async with open_engine(end_attempts=False) as engine:
        await engine.submit(shell("a", "echo $$ > pid; exec sleep 600"))
        pid = int(await file_of(engine.out("a") / "pid"))
    assert alive(pid)
    async with open_engine() as engine:
        assert (await engine.backend.status(RUN)).phase is Phase.RUNNING
        await engine.backend.close(kill=True)
        assert not alive(pid)
        assert (await engine.backend.status(RUN)).phase is Phase.FAILED


async def test_a_stop_that_a_crash_cut_is_gone_on_with(
    open_engine, service, shell, tmp_path, file_of, gone
):
    first = service(shell("a", "echo $$ > pid; exec sleep 600"), shell("b", "true", needs=("a",)))
    pid = int(await file_of(tmp_path / "store" / "runs" / "run" / "tasks" / "a" / "out" / "pid"))
    kill(first)
    (tmp_path / "store" / "engine" / "workflows" / RUN / "stopped").touch()  # and no signal sent
    async with open_engine() as engine:
        status = await engine.ended(RUN)
        await gone(pid)
        assert status.nodes["a"].attempts[0].reason == "cancelled"
        assert len(status.nodes["a"].attempts) == 1


async def test_an_attempt_whose_supervisor_was_killed_is_lost_and_leaves_nothing_behind(
    engine, shell, file_of, alive, kill_at_end
):
    script = (
        'test "$SIMRUN_ATTEMPT" = 0 || exit 0; '
        "env -i setsid sleep 600 & echo $! > daemon; "  # no environment, no session to find it by
        "setsid sleep 601 & echo $! >> daemon; env -i sleep 602 & echo $! >> daemon; "
        "echo $$ > pid; exec sleep 603"
    )
    name = await engine.submit(shell("a", script, memory=2**28))
    pid = int(await file_of(engine.out("a") / "pid"))
    others = [int(line) for line in (engine.out("a") / "daemon").read_text().split()]
    for one in (pid, *others):
        kill_at_end(one)
    directory = engine.config.state_dir / "workflows" / name
    start = json.loads((directory / "a-0.start.json").read_text())
    os.kill(start["pid"], signal.SIGKILL)
    status = await engine.ended(name)
    assert status.phase is Phase.SUCCEEDED
    first, second = status.nodes["a"].attempts
    assert (first.phase, first.reason, first.exit_code) == (Phase.ERROR, "lost", None)
    assert second.n == 1
    assert not alive(pid)
    in_cgroup = start["enforced"] == "cgroup"
    # Without a cgroup nothing ties a process to the attempt that left both its session and its environment
    assert [alive(one) for one in others] == [not in_cgroup, False, False]
    assert json.loads((directory / "a-0.exit.json").read_text())["reason"] == "lost"


async def test_an_attempt_lost_while_no_engine_was_there_is_made_again(
    open_engine, service, shell, tmp_path, file_of, alive, kill_at_end
):
    script = 'echo $$ >> pid; test "$SIMRUN_ATTEMPT" = 1 || exec sleep 600'
    first = service(shell("a", script, attempt_base=3))
    out = tmp_path / "store" / "runs" / "run" / "tasks" / "a" / "out"
    pid = int(await file_of(out / "pid"))
    kill_at_end(pid)
    kill(first)
    os.kill(record(tmp_path, "a-0.start.json")["pid"], signal.SIGKILL)
    async with open_engine() as engine:
        # As soon as it is known that the supervisor is gone, and before anything else of this worker starts
        await engine.when(RUN, lambda status: len(status.nodes["a"].attempts) == 2)
        assert not alive(pid)
        status = await engine.ended(RUN)
        assert [attempt.n for attempt in status.nodes["a"].attempts] == [3, 4]
        assert [attempt.reason for attempt in status.nodes["a"].attempts] == ["lost", "completed"]


async def test_what_ran_before_the_machine_was_started_again_is_lost(
    open_engine, shell, tmp_path, file_of, kill_at_end
):
    async with open_engine(end_attempts=False) as engine:
        await engine.submit(
            shell("a", 'echo $$ > pid; test "$SIMRUN_ATTEMPT" = 1 || exec sleep 600')
        )
        pid = int(await file_of(engine.out("a") / "pid"))
        kill_at_end(pid)
    path = tmp_path / "store" / "engine" / "workflows" / RUN / "a-0.start.json"
    start = json.loads(path.read_text())
    kill_at_end(start["pid"])
    path.write_text(json.dumps(start | {"boot": "another-boot"}))
    async with open_engine() as engine:
        status = await engine.ended(RUN)
        assert [attempt.reason for attempt in status.nodes["a"].attempts] == ["lost", "completed"]


async def test_a_process_that_got_the_number_of_a_supervisor_is_not_taken_for_it(
    open_engine, shell, tmp_path, alive
):
    async with open_engine() as engine:
        await engine.finish(shell("a", "true"))
    directory = tmp_path / "store" / "engine" / "workflows" / RUN
    start = json.loads((directory / "a-0.start.json").read_text())
    (directory / "a-0.exit.json").unlink()
    bystander = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        (directory / "a-0.start.json").write_text(json.dumps(start | {"pid": bystander.pid}))
        async with open_engine() as engine:
            status = await engine.ended(RUN)
            assert [one.reason for one in status.nodes["a"].attempts] == ["lost", "completed"]
            assert alive(bystander.pid)
    finally:
        bystander.kill()
        await bystander.wait()


async def test_numbers_that_were_passed_over_are_lost(open_engine, shell, tmp_path):
    async with open_engine() as engine:
        await engine.finish(shell("a", "true"))
    directory = tmp_path / "store" / "engine" / "workflows" / RUN
    for kind in ("start", "exit"):
        (directory / f"a-0.{kind}.json").rename(directory / f"a-1.{kind}.json")
    async with open_engine() as engine:
        status = await engine.ended(RUN)
        assert [one.reason for one in status.nodes["a"].attempts] == ["lost", "completed"]


async def test_a_cut_submission_is_completed_by_the_next(open_engine, shell, tmp_path):
    (tmp_path / "store" / "engine" / "workflows" / RUN).mkdir(parents=True)
    async with open_engine() as engine:
        assert await engine.backend.status(RUN) is None
        assert (await engine.finish(shell("a", "true"))).phase is Phase.SUCCEEDED


async def test_a_state_has_one_engine_at_a_time(open_engine):
    async with open_engine():
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            async with open_engine():
                pass
    async with open_engine():
        pass


async def test_a_reservation_outlives_its_engine(open_engine, shell):
    async with open_engine() as engine:
        node = await engine.backend.reserve("mine")
    async with open_engine() as engine:
        name = await engine.submit(shell("a", "true"))
        assert (await engine.backend.status(name)).phase is Phase.PENDING
        await engine.backend.release(node, "mine")
        assert (await engine.ended(name)).phase is Phase.SUCCEEDED


async def test_a_zygote_that_dies_is_replaced_and_takes_nothing_with_it(
    engine, shell, file_of, alive
):
    name = await engine.submit(
        shell("a", "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"),
        *(shell(f"t{i}", "true", needs=("a",)) for i in range(20)),
    )
    pid = int(await file_of(engine.out("a") / "pid"))
    zygote = engine.backend._launcher.pid
    os.kill(zygote, signal.SIGKILL)
    while engine.backend._launcher.pid in (zygote, None):
        await asyncio.sleep(0.01)
    assert alive(pid)
    (engine.out("a") / "go").touch()
    status = await engine.ended(name)
    assert status.phase is Phase.SUCCEEDED
    assert len(status.nodes["a"].attempts) == 1


async def test_orders_that_a_dying_zygote_did_not_answer_are_carried_out_once(open_engine, shell):
    async with open_engine(cpus=40) as engine:
        name = await engine.submit(
            *(shell(f"t{i}", f"echo {i} >> lines", task="t") for i in range(40))
        )
        while (zygote := engine.backend._launcher.pid) is None:
            await asyncio.sleep(0.001)
        for _ in range(3):
            await asyncio.sleep(0.05)
            try:
                os.kill(zygote, signal.SIGKILL)
            except ProcessLookupError:
                break
            while (next_one := engine.backend._launcher.pid) in (zygote, None):
                await asyncio.sleep(0.001)
            zygote = next_one
        status = await engine.ended(name)
        assert status.phase is Phase.SUCCEEDED
        lines = (engine.out("t") / "lines").read_text().split()
        assert sorted(map(int, lines)) == list(range(40))


async def test_the_zygote_ends_with_its_engine(open_engine, service, gone, tmp_path):
    async with open_engine() as engine:
        while engine.backend._launcher.pid is None:
            await asyncio.sleep(0.01)
        zygote = engine.backend._launcher.pid
    await gone(zygote)
    process = service()
    while not (children := processes.children(process.pid)):
        await asyncio.sleep(0.01)
    kill(process)
    await gone(*children)


async def test_a_zygote_that_never_comes_up_ends_the_engine_with_its_words(
    open_engine, shell, monkeypatch
):
    words = "import sys; sys.exit('no such interpreter here')"
    monkeypatch.setattr(zygote, "command_line", lambda: [sys.executable, "-c", words])
    with pytest.RaisesGroup(pytest.RaisesExc(BackendError, match="no such interpreter here")):
        async with open_engine() as engine:
            await engine.finish(shell("a", "true"))


async def test_what_has_ended_is_set_aside_at_the_next_start_and_still_known(
    open_engine, make_pod, shell, tmp_path
):
    state = tmp_path / "store" / "engine"
    async with open_engine() as engine:
        before = await engine.finish(
            make_pod("a", harness="worker", working_dir=None), shell("b", "true", may_fail=True)
        )
        log = await engine.log(RUN, "a")
        assert "SIMRUN_" in log
    async with open_engine() as engine:
        assert os.listdir(state / "workflows") == []
        assert os.listdir(state / "ended") == [RUN]
        events = engine.backend.events()
        after, same = await asyncio.gather(engine.backend.status(RUN), engine.backend.status(RUN))
        assert after == same
        assert after.phase is before.phase is Phase.FAILED
        assert after.nodes["a"].attempts[0].pod_uid == before.nodes["a"].attempts[0].pod_uid
        assert await engine.log(RUN, "a") == log
        assert await engine.submit(shell("a", "true")) == RUN  # exists and is this run's
        assert (await engine.backend.status(RUN)).phase is Phase.FAILED
        await engine.backend.stop(RUN)
        await engine.backend.delete(RUN)
        assert await engine.backend.status(RUN) is None
        assert os.listdir(state / "ended") == []
    assert [run async for run in events] == ["run"]  # of its removal alone


async def test_what_was_set_aside_is_kept_for_a_week(open_engine, shell, tmp_path):
    async with open_engine() as engine:
        await engine.finish(shell("a", "true"))
        await engine.finish(shell("a", "true"), run="other")
    ended = tmp_path / "store" / "engine" / "ended"
    async with open_engine():
        pass
    past = os.stat(ended / RUN).st_mtime - 8 * 24 * 3600
    os.utime(ended / RUN, (past, past))
    async with open_engine() as engine:
        assert os.listdir(ended) == [workflow_name("other")]
        assert await engine.backend.status(RUN) is None
