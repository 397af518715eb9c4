"""Memory limits, held by cgroups and by polling, and what follows a kill."""

from pathlib import Path

import pytest

from simrun.argo.names import workflow_name
from simrun.backends.base import Phase
from simrun.backends.local import groups
from simrun.backends.local.limits import SAMPLE_S
from simrun.worker import cgroup

MIB = 2**20

HOG = """
import time
held = []
for _ in range({mib}):
    held.append(b"x" * 2**20)
time.sleep({then})
"""


def hog(mib, then=0.0):
    """A program that takes memory and holds it for a while."""
    return HOG.format(mib=mib, then=then)


@pytest.fixture(params=["auto", "polled"])
def enforce(request):
    """Both ways to hold a limit. Where no cgroup may be made `auto` is polling too, and nothing here is skipped."""
    return request.param


def expected(enforce):
    """What the records must say of a limit under this setting, on this machine."""
    may = groups.find_parent(cgroup.find()) is not None
    return "cgroup" if enforce == "auto" and may else "polled"


@pytest.fixture
async def engine(open_engine, enforce):
    async with open_engine(enforce=enforce) as engine:
        yield engine


def cgroups_left():
    parent = groups.find_parent(cgroup.find())
    return [] if parent is None else [path.name for path in parent.glob(f"{groups.PREFIX}*")]


async def test_an_attempt_over_its_limit_is_killed_for_memory(engine, enforce, python):
    before = cgroups_left()
    status = await engine.finish(python("a", hog(400, 60), memory=64 * MIB))
    (attempt,) = status.nodes["a"].attempts
    assert attempt.oom
    assert (attempt.reason, attempt.exit_code) == ("oom", 137)
    assert attempt.enforced == expected(enforce)
    assert attempt.message.startswith("killed for memory at 64 MiB")
    assert status.phase is Phase.FAILED
    assert cgroups_left() == before


async def test_an_attempt_below_its_limit_lives(engine, enforce, python):
    status = await engine.finish(python("a", hog(20, 0.5), memory=128 * MIB))
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.reason, attempt.oom) == ("completed", False)
    assert attempt.enforced == expected(enforce)


async def test_page_cache_is_no_use_of_memory(engine, shell):
    script = "dd if=/dev/zero of=$TMPDIR/big bs=1M count=200 2>&1 && cat $TMPDIR/big > /dev/null"
    status = await engine.finish(shell("a", script, memory=64 * MIB))
    assert status.phase is Phase.SUCCEEDED


async def test_a_kill_below_a_command_that_goes_on_and_succeeds_is_no_kill(open_engine, python):
    # The kernel takes the hog alone only in a cgroup of version 1; a polled limit and a group kill take everything
    script = f"""
import subprocess, sys
hog = {hog(400, 60)!r}
print(subprocess.run([sys.executable, "-I", "-S", "-c", hog]).returncode, flush=True)
"""
    own = cgroup.find()
    async with open_engine() as engine:
        status = await engine.finish(python("a", script, memory=64 * MIB))
        (attempt,) = status.nodes["a"].attempts
        if expected("auto") == "cgroup" and own.version == 1:
            assert await engine.log(workflow_name("run"), "a") == "-9\n"
            assert (attempt.reason, attempt.exit_code, attempt.oom) == ("completed", 0, False)
        else:
            assert (attempt.reason, attempt.exit_code, attempt.oom) == ("oom", 137, True)


async def test_a_kill_counts_whatever_exit_code_its_parent_made_of_it(engine, python):
    script = f"""
import subprocess, sys
hog = {hog(400, 60)!r}
subprocess.run([sys.executable, "-I", "-S", "-c", hog])
sys.exit(7)
"""
    status = await engine.finish(python("a", script, memory=64 * MIB))
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.reason, attempt.exit_code, attempt.oom) == ("oom", 137, True)


async def test_memory_that_processes_share_counts_once(engine, python):
    script = """
import os, time
held = b"x" * (60 * 2**20)
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.7)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
    status = await engine.finish(python("a", script, memory=128 * MIB))
    assert status.nodes["a"].attempts[0].reason == "completed"


async def test_the_whole_tree_counts(engine, python):
    # Three of four fit. A cgroup of version 1 takes only one of them, so it must matter to the command
    script = f"""
import os, sys
for _ in range(4):
    if os.fork() == 0:
        exec({hog(40, 60)!r})
        os._exit(0)
sys.exit(os.waitpid(-1, 0)[1] and 1)
"""
    status = await engine.finish(python("a", script, memory=150 * MIB))
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.reason, attempt.exit_code, attempt.oom) == ("oom", 137, True)


async def test_after_a_kill_the_attempt_gets_the_retry_memory(engine, python):
    pod = python("a", hog(100, 0.3), memory=64 * MIB, retry_memory=256 * MIB)
    status = await engine.finish(pod)
    assert status.phase is Phase.SUCCEEDED
    first, second = status.nodes["a"].attempts
    assert (first.n, first.oom, first.memory) == (0, True, 64 * MIB)
    assert (second.n, second.oom, second.memory) == (1, False, 256 * MIB)


async def test_a_second_kill_with_the_retry_memory_is_the_last(engine, python):
    pod = python("a", hog(400, 60), memory=48 * MIB, retry_memory=64 * MIB)
    status = await engine.finish(pod)
    assert status.phase is Phase.FAILED
    assert [attempt.memory for attempt in status.nodes["a"].attempts] == [48 * MIB, 64 * MIB]
    assert all(attempt.oom for attempt in status.nodes["a"].attempts)
    assert "killed for memory at 64 MiB" in status.message


async def test_an_attempt_without_a_limit_takes_what_it_likes(engine, python):
    status = await engine.finish(python("a", hog(100), memory=0))
    (attempt,) = status.nodes["a"].attempts
    assert (attempt.reason, attempt.memory, attempt.enforced) == ("completed", None, None)


async def test_an_attempt_tells_what_it_used(engine, python):
    # Held for longer than the pause between two samples
    status = await engine.finish(python("a", hog(50, SAMPLE_S + 1.0), memory=256 * MIB))
    (attempt,) = status.nodes["a"].attempts
    assert 50 * MIB < attempt.peak_unreclaimable < 100 * MIB
    assert attempt.peak is None or attempt.peak > 50 * MIB
    assert (attempt.peak is None) == (attempt.enforced == "polled")
    assert attempt.cpu_s > 0


async def test_the_command_sees_its_own_cgroup_and_its_supervisor_stays_outside(
    open_engine, python, file_of
):
    async with open_engine() as engine:
        script = "import os; open('seen', 'w').write(open('/proc/self/cgroup').read() + str(os.getppid()) + '\\n')"
        name = await engine.submit(
            python("a", script + "; import time; time.sleep(60)", memory=64 * MIB)
        )
        text = await file_of(engine.out("a") / "seen", lines=2)
        status = await engine.when(name, lambda status: status.nodes["a"].attempts[0].started)
        uid = status.nodes["a"].attempts[0].pod_uid
        supervisor = Path(f"/proc/{text.splitlines()[-1]}/cgroup").read_text()
        assert (uid in text) == (expected("auto") == "cgroup")
        assert uid not in supervisor
