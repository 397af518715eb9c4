"""What a supervisor sees to: time, grace, orphans, and that nothing of the service is in an attempt."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simrun.argo.names import workflow_name
from simrun.backends.base import Phase
from simrun.backends.local import records
from simrun.backends.local.records import Order

RUN = workflow_name("run")


def start_of(engine, attempt="a-0"):
    return json.loads(
        (engine.config.state_dir / "workflows" / RUN / f"{attempt}.start.json").read_text()
    )


async def test_a_command_that_is_not_done_in_time_ends_with_deadline(engine, shell):
    status = await engine.finish(shell("a", "exec sleep 60", timeout_s=0.2))
    (attempt,) = status.nodes["a"].attempts  # not tried again
    assert (attempt.reason, attempt.exit_code, attempt.phase) == ("deadline", 3, Phase.FAILED)
    assert attempt.message == "not done within 0.2 s"


POLITE = """
import os, signal, sys, time
def end(number, frame):
    os.write(1, who)
    if pid:
        os.waitpid(pid, 0)
    os._exit(0)
who, pid = b"child\\n", 0
signal.signal(signal.SIGTERM, end)
pid = os.fork()
if pid:
    who = b"parent\\n"
open("ready", "a").write("\\n")
time.sleep(600)
"""


async def test_sigterm_goes_to_the_whole_group_and_what_ends_well_has_completed(
    engine, python, file_of
):
    name = await engine.submit(python("a", POLITE))
    await file_of(engine.out("a") / "ready", lines=2)
    await engine.backend.stop(name)
    status = await engine.ended(name)
    assert sorted((await engine.log(name, "a")).split()) == ["child", "parent"]
    assert status.nodes["a"].attempts[0].reason == "completed"


async def test_what_ignores_sigterm_is_killed_after_the_grace(engine, shell, file_of):
    name = await engine.submit(
        shell("a", "trap '' TERM; echo > ready; while :; do sleep 0.05; done", grace_s=0.3)
    )
    await file_of(engine.out("a") / "ready")
    await engine.backend.stop(name)
    status = await engine.ended(name)
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.reason, attempt.exit_code) == ("cancelled", 137)
    assert attempt.ended - attempt.started >= 0.3
    assert not attempt.oom


async def test_stop_now_gives_no_grace(engine, shell, file_of):
    name = await engine.submit(
        shell("a", "trap '' TERM; echo > ready; while :; do sleep 0.05; done", grace_s=600)
    )
    await file_of(engine.out("a") / "ready")
    await engine.backend.stop(name)
    await engine.backend.stop(name, now=True)
    status = await engine.ended(name)
    assert status.nodes["a"].attempts[0].reason == "cancelled"


async def test_a_stop_before_the_supervisor_is_there_is_not_lost(engine, shell):
    name = await engine.submit(shell("a", "exec sleep 60"))
    await engine.backend.stop(name)
    status = await engine.ended(name)
    assert status.nodes["a"].attempts[0].reason == "cancelled"


async def test_a_stopped_attempt_is_not_tried_again(engine, shell, file_of):
    name = await engine.submit(shell("a", "trap 'exit 143' TERM; echo > ready; sleep 60 & wait"))
    await file_of(engine.out("a") / "ready")
    await engine.backend.stop(name)
    status = await engine.ended(name)
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.reason, attempt.exit_code) == ("cancelled", 143)


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        open("pid", "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists("pid") or not os.path.getsize("pid"):
    time.sleep(0.01)
"""


async def test_a_child_that_makes_itself_a_daemon_does_not_outlive_its_attempt(
    engine, python, alive, kill_at_end
):
    status = await engine.finish(python("a", DAEMON))
    pid = int((engine.out("a") / "pid").read_text())
    kill_at_end(pid)
    assert status.phase is Phase.SUCCEEDED
    assert not alive(pid)


async def test_a_daemon_is_killed_with_its_attempt(engine, python, file_of, alive, kill_at_end):
    name = await engine.submit(python("a", DAEMON + "time.sleep(600)\n", grace_s=0.2))
    pid = int(await file_of(engine.out("a") / "pid"))
    kill_at_end(pid)
    await engine.backend.stop(name)
    await engine.ended(name)
    assert not alive(pid)


async def test_an_attempt_holds_no_descriptor_of_the_service(engine, shell, tmp_path, file_of):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.set_inheritable(True)  # as careless as can be
    with (tmp_path / "lock").open("w") as lock, listener:
        os.set_inheritable(lock.fileno(), True)
        await engine.submit(shell("a", "echo $$ > pid; exec sleep 600"))
        command = int(await file_of(engine.out("a") / "pid"))
        supervisor, zygote = start_of(engine)["pid"], engine.backend._launcher.pid
        log = str(engine.config.layout.run("run").task("a").logs / "a-0.log")
        engine_log = str(engine.config.state_dir / "engine.log")
        assert await descriptors(command, 3) == ["/dev/null", log, log]
        assert await descriptors(supervisor, 3) == ["/dev/null", engine_log, engine_log]
        null, first, second, its_socket = await descriptors(zygote, 4)
        assert (null, first, second) == ("/dev/null", engine_log, engine_log)
        assert its_socket.startswith("socket:")
        port = listener.getsockname()[1]
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))  # nobody holds it any more


async def descriptors(pid, count):
    """What a process has open once that is no more than `count`; anything may be open for a moment, what is inherited stays."""
    end = time.monotonic() + 20
    while len(found := open_now(pid)) > count and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return found


def open_now(pid):
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since
            found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return [found[number] for number in sorted(found)]


async def test_a_command_starts_with_default_signals_and_a_group_of_its_own(engine, shell):
    # Asked of a shell, since Python ignores signals of its own; the C library keeps 32 and 33 for itself
    script = "grep -E '^Sig(Blk|Ign):' /proc/self/status; cut -d' ' -f5,6 /proc/$$/stat; echo $$; readlink /proc/$$/fd/0"
    await engine.finish(shell("a", script))
    blocked, ignored, ids, pid, stdin = (await engine.log(RUN, "a")).splitlines()
    assert int(blocked.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & ~(0b11 << 31) == 0
    group, session = ids.split()
    assert group == pid
    assert int(session) == start_of(engine)["pid"]  # the supervisor's
    assert int(session) != os.getsid(0)
    assert stdin == "/dev/null"


async def test_a_broken_pipe_ends_a_command_as_everywhere(engine, shell):
    # yes ends by SIGPIPE only when that is not ignored; else it complains and fails
    status = await engine.finish(shell("a", "yes | head -n 1"))
    assert status.phase is Phase.SUCCEEDED
    assert await engine.log(RUN, "a") == "y\n"


async def test_an_attempt_is_taken_before_the_service_when_the_machine_has_no_memory(engine, shell):
    await engine.finish(shell("a", "cat /proc/self/oom_score_adj; cat /proc/$PPID/oom_score_adj"))
    command, supervisor = map(int, (await engine.log(RUN, "a")).split())
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert command == max(500, own)
    assert supervisor == own


async def test_an_attempt_ends_itself_when_no_engine_is_there(
    open_engine, shell, file_of, gone, alive
):
    async with open_engine(end_attempts=False, orphan_s=1.5) as engine:
        await engine.submit(shell("a", "echo $$ > pid; exec sleep 600"))
        pid = int(await file_of(engine.out("a") / "pid"))
        supervisor = start_of(engine)["pid"]
        await asyncio.sleep(2.0)
        assert alive(pid)  # the engine is there
    await gone(pid, supervisor)
    async with open_engine(orphan_s=1.5) as engine:
        status = await engine.when(RUN, lambda status: len(status.nodes["a"].attempts) == 2)
        first = status.nodes["a"].attempts[0]
        assert (first.reason, first.exit_code) == ("evicted", 143)
        assert first.message == "no engine was there for 1.5 s"


async def test_an_orphan_is_told_by_its_own_clock_and_not_by_times_of_files(
    open_engine, shell, file_of, gone
):
    async with open_engine(end_attempts=False, orphan_s=1.0) as engine:
        await engine.submit(shell("a", "echo $$ > pid; exec sleep 600"))
        pid = int(await file_of(engine.out("a") / "pid"))
        presence = engine.config.state_dir / "presence"
    future = time.time() + 10_000
    os.utime(presence, (future, future))  # a step of the wall clock, as a file server may make it
    await gone(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_command_that_somebody_kills_is_tried_again(engine, shell, file_of, number):
    script = 'test "$SIMRUN_ATTEMPT" = 0 || exit 0; echo $$ > pid; exec sleep 600'
    name = await engine.submit(shell("a", script))
    os.kill(int(await file_of(engine.out("a") / "pid")), number)
    status = await engine.ended(name)
    assert status.phase is Phase.SUCCEEDED
    first = status.nodes["a"].attempts[0]
    assert (first.reason, first.exit_code, first.oom) == ("evicted", 128 + number, False)
    assert f"({number.name})" in first.message


async def test_an_attempt_of_a_workflow_that_was_stopped_meanwhile_does_not_start(tmp_path):
    # The engine that sent the order died before it could tell this supervisor of the stop
    order = Order(
        directory=str(tmp_path),
        attempt="a-0",
        uid="0" * 32,
        command=["/bin/sh", "-c", "echo > started"],
        env={},
        cwd=str(tmp_path),
        scratch=str(tmp_path / "scratch"),
        log=str(tmp_path / "log"),
    )
    order.files.stopped.touch()
    program = (
        "import json, sys; from simrun.backends.local import records, supervisor; "
        "supervisor.supervise(records.from_json(records.Order, json.loads(sys.argv[1])))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, json.dumps(records.to_json(order))
    )
    assert await process.wait() == 0
    end = records.read_exit(order.files.exit)
    assert end is not None
    assert (end.reason, end.code) == ("cancelled", 143)
    assert not (tmp_path / "started").exists()


async def test_a_stop_that_comes_to_a_supervisor_after_its_end_stops_no_engine(engine, shell):
    await engine.submit(shell("a", "exec sleep 600"))
    await engine.when(RUN, lambda status: status.nodes["a"].attempts[0].started)
    pidfd = pidfd_of_what_ended()
    attempts = engine.backend._attempts
    (running,) = attempts._running.values()
    supervisors, running.pidfd = running.pidfd, pidfd
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)

    attempts.signal(running.workflow, signal.SIGTERM)

    os.close(pidfd)
    running.pidfd = supervisors
    await engine.backend.stop(RUN)
    status = await engine.ended(RUN)
    assert status.nodes["a"].attempts[0].reason == "cancelled"


def pidfd_of_what_ended():
    with subprocess.Popen(["true"]) as process:
        return os.pidfd_open(process.pid)
