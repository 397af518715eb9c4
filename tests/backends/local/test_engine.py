import asyncio
import json
import os
from pathlib import Path

import pytest
from blockbuster import BlockBusterFunction, blockbuster_ctx

from simrun.argo.names import workflow_name
from simrun.backends.base import Phase
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.base.errors import BackendUnavailable, Conflict, DamagedRecord, InvalidInput
from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import SecretRef


async def test_two_hundred_at_once_all_succeed_and_leave_their_records(open_engine, make_pod):
    async with open_engine(cpus=200) as engine:
        status = await engine.finish(*(make_pod(f"t{i}", "true") for i in range(200)))
        assert status.phase is Phase.SUCCEEDED
        assert {node.phase for node in status.nodes.values()} == {Phase.SUCCEEDED}
        names = os.listdir(engine.config.state_dir / "workflows" / workflow_name("run"))
        assert sum(name.endswith(".start.json") for name in names) == 200
        assert sum(name.endswith(".exit.json") for name in names) == 200
        assert not [name for name in names if name.startswith(".tmp.")]


async def test_an_attempt_says_when_where_and_how_it_ran(engine, shell):
    status = await engine.finish(shell("a", "exit 0", memory=64 * 2**20))
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.n, attempt.phase, attempt.reason, attempt.exit_code) == (
        0,
        Phase.SUCCEEDED,
        "completed",
        0,
    )
    assert attempt.created <= attempt.started <= attempt.ended
    assert attempt.node == engine.backend.host
    assert attempt.memory == 64 * 2**20
    assert attempt.enforced in ("cgroup", "polled")
    assert len(attempt.pod_uid) == 32
    assert not attempt.oom


def most_at_once(status, size=lambda _worker: 1):
    """Give the largest sum of sizes of attempts that ran at one moment, by their own records."""
    moments = []
    for worker, node in status.nodes.items():
        for attempt in node.attempts:
            moments += [(attempt.started, size(worker)), (attempt.ended, -size(worker))]
    total = most = 0
    for _, change in sorted(moments):
        total += change
        most = max(most, total)
    return most


async def test_processors_are_never_promised_twice(open_engine, make_pod):
    async with open_engine(cpus=3) as engine:
        pods = [make_pod(f"t{i}", "sleep", "0.05", cpus=1 + i % 2) for i in range(12)]
        status = await engine.finish(*pods)
        assert status.phase is Phase.SUCCEEDED
        assert 2 <= most_at_once(status, lambda worker: 1 + int(worker[1:]) % 2) <= 3


async def test_memory_is_never_promised_twice(open_engine, make_pod):
    async with open_engine(memory=100 * 2**20) as engine:
        pods = [make_pod(f"t{i}", "sleep", "0.05", memory=40 * 2**20) for i in range(6)]
        status = await engine.finish(*pods)
        assert status.phase is Phase.SUCCEEDED
        assert most_at_once(status) <= 2


async def test_a_pod_that_wants_more_than_there_is_runs_alone(open_engine, make_pod):
    async with open_engine(cpus=2) as engine:
        small = [make_pod(f"s{i}", "sleep", "0.05") for i in range(4)]
        status = await engine.finish(*small, make_pod("big", "sleep", "0.05", cpus=64))
        assert status.phase is Phase.SUCCEEDED
        (big,) = status.nodes["big"].attempts
        others = [status.nodes[f"s{i}"].attempts[0] for i in range(4)]
        assert all(other.ended <= big.started or other.started >= big.ended for other in others)


async def test_a_worker_starts_after_those_it_needs(engine, shell):
    status = await engine.finish(
        shell("a", "sleep 0.05; echo a > a"),
        shell("b", "cat ../../a/out/a > b", needs=("a",)),
        shell("c", "test -s ../../b/out/b", needs=("a", "b")),
    )
    assert status.phase is Phase.SUCCEEDED
    assert status.nodes["a"].attempts[0].ended <= status.nodes["b"].attempts[0].started


async def test_a_failure_lets_what_runs_finish_and_starts_nothing_more(open_engine, shell):
    async with open_engine(cpus=2) as engine:
        status = await engine.finish(
            shell("bad", "exit 3"),
            shell("running", "sleep 0.3; echo done > done"),
            shell("below", "true", needs=("bad",)),
            shell("deeper", "true", needs=("below",)),
            shell("later", "true", needs=("running",)),
        )
        assert status.phase is Phase.FAILED
        assert status.message == "bad: the command failed"
        assert status.nodes["bad"].phase is Phase.FAILED
        assert status.nodes["bad"].attempts[0].exit_code == 3
        assert status.nodes["running"].phase is Phase.SUCCEEDED
        assert status.nodes["below"].phase is Phase.OMITTED
        assert status.nodes["deeper"].phase is Phase.OMITTED
        assert "later" not in status.nodes


async def test_extra_workers_never_fail_a_workflow_and_keep_it_running(engine, shell):
    name = await engine.submit(
        shell("t-w0", "true"),
        shell("t-w1", "exit 3", may_fail=True, priority="extra"),
        shell("t-w2", "exec sleep 60", may_fail=True, priority="extra"),
    )
    status = await engine.when(
        name,
        lambda status: (
            status.nodes["t-w0"].phase.ended
            and status.nodes["t-w1"].phase.ended
            and status.nodes["t-w2"].attempts
        ),
    )
    assert status.phase is Phase.RUNNING
    assert status.nodes["t-w1"].phase is Phase.FAILED
    await engine.backend.stop(name)
    status = await engine.ended(name)
    assert status.phase is Phase.SUCCEEDED
    assert status.nodes["t-w2"].attempts[0].reason == "cancelled"


async def test_what_is_ready_and_has_no_room_is_pending_and_the_rest_has_no_node(
    open_engine, shell
):
    async with open_engine(cpus=1) as engine:
        name = await engine.submit(
            shell("a", "exec sleep 60"), shell("b", "true"), shell("c", "true", needs=("b",))
        )
        status = await engine.when(
            name, lambda status: status.nodes["a"].attempts[0].phase is Phase.RUNNING
        )
        assert status.nodes["b"].phase is Phase.PENDING
        assert status.nodes["b"].attempts == ()
        assert "c" not in status.nodes
        await engine.backend.stop(name)
        status = await engine.ended(name)
        assert (status.phase, status.message) == (Phase.FAILED, "stopped")
        assert set(status.nodes) == {"a"}


async def test_submitting_again_gives_the_same_workflow(engine, shell):
    pod = shell("a", "echo once >> lines")
    names = await asyncio.gather(*(engine.submit(pod) for _ in range(3)))
    assert set(names) == {workflow_name("run")}
    first = await engine.ended(workflow_name("run"))
    assert await engine.submit(pod) == workflow_name("run")
    again = await engine.backend.status(workflow_name("run"))
    assert again == first
    assert (engine.out("a") / "lines").read_text() == "once\n"


async def test_a_name_that_belongs_to_another_run_is_a_conflict(engine, shell):
    # Round 1 of run `x` and a run `x-r1` would have one name; the store refuses such ids, the engine does not rely on it
    await engine.finish(shell("a", "true"), run="x-r1")
    engine.pods["x"] = []
    record = RunRecord(id="x", round=1, times=RunTimes(created=0.0))
    with pytest.raises(Conflict, match="belongs to run x-r1, not x"):
        await engine.backend.submit(record, {}, {})


async def test_a_priority_that_is_none_here_is_refused_and_the_others_survive_a_restart(
    open_engine, shell
):
    async with open_engine() as engine:
        engine.pods["run"] = [shell("a", "true")]
        with pytest.raises(InvalidInput, match=r"priority: .*'urgent'.*low, normal, high"):
            await engine.backend.submit(record("urgent"), {}, {})
        assert await engine.backend.status(workflow_name("run")) is None
        await engine.backend.submit(record("high"), {}, {})
    async with open_engine() as engine:
        found = await engine.backend._workflows.find(workflow_name("run"))
        assert found.rank == 2


def record(priority):
    return RunRecord(id="run", priority=priority, times=RunTimes(created=0.0))


async def test_a_workflow_that_does_not_exist_has_no_status_and_is_stopped_and_removed(engine):
    assert await engine.backend.status("nothing") is None
    await engine.backend.stop("nothing")
    await engine.backend.delete("nothing")


async def test_a_workflow_without_pods_has_succeeded(engine):
    status = await engine.finish()
    assert status.phase is Phase.SUCCEEDED


async def test_events_name_a_run_once_however_often_it_changed(open_engine, make_pod):
    async with open_engine() as engine:
        events, idle = engine.backend.events(), engine.backend.events()
        await engine.finish(*(make_pod(f"t{i}", "true") for i in range(5)))
        assert await anext(events) == "run"
        await engine.finish(make_pod("a", "true", run="other"), run="other")
        heard = [await anext(idle), await anext(idle)]
        assert heard == ["run", "other"]
    assert [run async for run in events] == ["other"]  # and the end, since the engine is closed
    assert [run async for run in idle] == []


async def test_the_environment_is_small_and_says_which_attempt_it_is(open_engine, make_pod):
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "TOKEN": "t0ken", "OTHER": "x"}
    async with open_engine(environ=environ) as engine:
        pod = make_pod(
            "a",
            "env",
            env={"OMP_NUM_THREADS": "1", "SIMRUN_TASK": "a"},
            secret_env={"PASSWORD": SecretRef(secret="site", key="TOKEN")},
            attempt_base=4,
            memory=3 * 2**29,
        )
        status = await engine.finish(pod)
        (attempt,) = status.nodes["a"].attempts
        assert attempt.n == 4
        text = await engine.log(workflow_name("run"), "a", 4)
        env = dict(line.split("=", 1) for line in text.splitlines())
        scratch = str(engine.config.scratch / "run" / "a")
        assert env == {
            "PATH": environ["PATH"],
            "HOME": "/nowhere",
            "TMPDIR": scratch,
            "OMP_NUM_THREADS": "1",
            "PASSWORD": "t0ken",
            "SIMRUN_TASK": "a",
            "SIMRUN_ATTEMPT": "0",
            "SIMRUN_ATTEMPT_BASE": "4",
            "SIMRUN_POD_UID": attempt.pod_uid,
            "SIMRUN_NODE": engine.backend.host,
            "SIMRUN_MEMORY_PER_WORKER_GB": "1.5",
        }
        state = b"".join(
            path.read_bytes() for path in engine.config.state_dir.rglob("*") if path.is_file()
        )
        assert b"t0ken" not in state


async def test_a_missing_secret_is_named_with_the_remedy(open_engine, make_pod):
    async with open_engine(environ={"PATH": os.environ["PATH"]}) as engine:
        secret = {"PASSWORD": SecretRef(secret="site", key="SITE_TOKEN")}
        status = await engine.finish(make_pod("a", "true", secret_env=secret))
        (attempt,) = status.nodes["a"].attempts
        assert (attempt.reason, attempt.exit_code) == ("start_error", 128)
        assert "SITE_TOKEN" in attempt.message
        assert "secret_env.PASSWORD" in attempt.message
        assert "set it" in attempt.message


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (("no-such-command", "x"), 127, "command 'no-such-command' was not found in PATH ("),
        (("./no-such-file",), 127, "command './no-such-file' was not found"),
        (("/etc/passwd",), 126, "/etc/passwd may not be executed: Permission denied"),
        (("{bad}/script",), 127, "the interpreter that its first line names was not found"),
        (("{bad}/text",), 126, "a first line such as #!/bin/sh makes it one"),
    ],
)
async def test_a_command_that_cannot_start_says_why(
    engine, make_pod, tmp_path, command, code, message
):
    for name, text in (("script", "#!/no/such/interpreter\n"), ("text", "just text\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    status = await engine.finish(
        make_pod("a", *(item.replace("{bad}", str(tmp_path)) for item in command))
    )
    assert status.nodes["a"].phase is Phase.FAILED
    (attempt,) = status.nodes["a"].attempts  # trying again would not help
    assert (attempt.reason, attempt.exit_code) == ("start_error", code)
    assert message in attempt.message
    assert f"simrun: {attempt.message}" in await engine.log(workflow_name("run"), "a")


async def test_a_log_holds_both_streams_of_each_attempt(engine, shell):
    await engine.finish(
        shell("a", 'echo out $SIMRUN_ATTEMPT; echo err >&2; test "$SIMRUN_ATTEMPT" = 1 || exit 143')
    )
    assert await engine.log(workflow_name("run"), "a", 0) == "out 0\nerr\n"
    assert await engine.log(workflow_name("run"), "a", 1) == "out 1\nerr\n"
    assert await engine.log(workflow_name("run"), "a", 2) == ""
    assert await engine.log(workflow_name("run"), "b", 0) == ""
    assert await engine.log("nothing", "a", 0) == ""


async def test_a_long_log_comes_in_chunks_and_whole(engine, shell):
    await engine.finish(shell("a", "seq 1 60000"))
    chunks = [chunk async for chunk in engine.backend.logs(workflow_name("run"), "a", 0)]
    assert len(chunks) > 1
    assert b"".join(chunks).decode() == "".join(f"{i}\n" for i in range(1, 60001))


async def test_scratch_is_empty_for_each_attempt_and_gone_after_it(engine, shell):
    status = await engine.finish(
        shell(
            "a",
            'ls -A "$TMPDIR" | wc -l; mkdir "$TMPDIR/d"; touch "$TMPDIR/d/f"; chmod 500 "$TMPDIR/d"; '
            'test "$SIMRUN_ATTEMPT" = 2 || exit 143',
        )
    )
    assert status.phase is Phase.SUCCEEDED
    assert [await engine.log(workflow_name("run"), "a", n) for n in range(3)] == ["0\n"] * 3
    while os.listdir(engine.config.scratch):  # removed after the record, since it may take long
        await asyncio.sleep(0.01)


async def test_delete_ends_what_runs_and_leaves_nothing_of_the_workflow(
    engine, shell, file_of, gone
):
    name = await engine.submit(shell("a", "echo $$ > pid; exec sleep 60"))
    pid = int(await file_of(engine.out("a") / "pid"))
    await engine.backend.delete(name)
    await gone(pid)
    assert await engine.backend.status(name) is None
    assert os.listdir(engine.config.state_dir / "workflows") == []
    assert not (engine.config.scratch / "run").exists()
    assert (engine.out("a") / "pid").exists()  # the store is not the engine's
    status = await engine.finish(shell("a", "true"))
    assert status.phase is Phase.SUCCEEDED


async def test_a_reserved_machine_runs_one_run_alone(engine, shell, file_of):
    other = await engine.submit(
        shell("a", "echo > started; exec sleep 0.3", run="other"), run="other"
    )
    await file_of(engine.out("a", "other") / "started")
    node = await engine.backend.reserve("mine")
    assert node == engine.backend.host == await engine.backend.reserve("mine")
    with pytest.raises(BackendUnavailable, match="reserved for run mine"):
        await engine.backend.reserve("third")
    third = await engine.submit(shell("a", "true"), run="third")
    mine = await engine.finish(shell("a", "true"), run="mine")
    ran_before = await engine.ended(other)
    assert mine.nodes["a"].attempts[0].started >= ran_before.nodes["a"].attempts[0].ended
    assert (await engine.backend.status(third)).phase is Phase.PENDING
    await engine.backend.release(node, "third")  # not its reservation
    await engine.backend.release("elsewhere", "mine")
    assert (await engine.backend.status(third)).phase is Phase.PENDING
    await engine.backend.release(node, "mine")
    assert (await engine.ended(third)).phase is Phase.SUCCEEDED
    await engine.backend.release(node, "mine")
    assert await engine.backend.reserve("third") == node


async def test_workflows_share_the_machine_evenly(open_engine, make_pod):
    async with open_engine(cpus=2) as engine:
        big = await engine.submit(*(make_pod(f"t{i}", "sleep", "0.1") for i in range(12)))
        small = await engine.submit(make_pod("a", "true", run="small"), run="small")
        assert (await engine.ended(small)).phase is Phase.SUCCEEDED
        assert (await engine.backend.status(big)).phase is Phase.RUNNING


async def test_a_workflow_that_cannot_be_read_is_named_and_hides_no_other(open_engine, shell):
    async with open_engine() as engine:
        await engine.finish(shell("a", "true"))
        await engine.finish(shell("a", "true"), run="broken")
        damaged = engine.config.state_dir / "workflows" / workflow_name("broken") / "workflow.json"
    damaged.write_text(damaged.read_text()[:20])
    async with open_engine() as engine:
        assert (await engine.backend.status(workflow_name("run"))).phase is Phase.SUCCEEDED
        with pytest.raises(DamagedRecord, match="broken"):
            await engine.backend.status(workflow_name("broken"))
        with pytest.raises(DamagedRecord, match="cannot be read"):
            await engine.submit(shell("a", "true"), run="broken")
        await engine.backend.delete(workflow_name("broken"))
        assert await engine.backend.status(workflow_name("broken")) is None


async def test_a_harness_that_fails_before_its_log_leaves_its_last_words(engine, make_pod):
    pod = make_pod("a", harness="worker", working_dir=None)  # without the variables it needs
    status = await engine.finish(pod)
    (attempt,) = status.nodes["a"].attempts
    assert attempt.exit_code == 2
    assert "SIMRUN_" in attempt.message
    assert attempt.message in await engine.log(workflow_name("run"), "a")


async def test_the_state_is_readable_json_with_a_schema(engine, shell):
    await engine.finish(shell("a", "true"))
    directory = engine.config.state_dir / "workflows" / workflow_name("run")
    for name in ("workflow.json", "a-0.start.json", "a-0.exit.json"):
        assert json.loads((directory / name).read_text())["schema"] == 1
    assert Path(engine.config.state_dir / "engine.log").stat().st_size == 0


async def test_nothing_of_the_engine_blocks_the_loop(tmp_path, shell):
    pods = [shell("a", "true"), shell("b", "exit 143", retry_limit=1), shell("c", "sleep 60")]
    config = LocalConfig.for_store(tmp_path / "store", cpus=8)
    with blockbuster_ctx("simrun") as blockbuster:
        sync = BlockBusterFunction(os, "fsync", scanned_modules="simrun")
        blockbuster.functions["os.fsync"] = sync
        sync.activate()
        async with LocalBackend(config, pods=lambda *_: pods, end_attempts=True) as backend:
            events = backend.events()
            name = await backend.submit(RunRecord(id="run", times=RunTimes(created=0)), {}, {})
            while len((await backend.status(name)).nodes["b"].attempts) < 2:
                await anext(events)
            assert [chunk async for chunk in backend.logs(name, "a", 0)] == []
            await backend.reserve("x")
            await backend.release(backend.host, "x")
            await backend.delete(name)
            again = await backend.submit(RunRecord(id="run", times=RunTimes(created=0)), {}, {})
        async with LocalBackend(config) as backend:
            assert (await backend.status(again)).phase is Phase.FAILED
