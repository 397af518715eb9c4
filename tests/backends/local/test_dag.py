import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.backends.base import Phase
from simrun.backends.local.dag import Workflow, describe, wait_before_retry
from simrun.backends.local.records import Exit
from simrun.pods import Pod

GIB = 2**30


def pod(worker, *needs, **other):
    settings = {"worker": worker, "task": worker, "type": "t", "role": "exec", "memory": GIB}
    return Pod(needs=needs, **settings | other)


def workflow(*pods):
    return Workflow("w", "run", "uid", pods, host="here")


def exited(code, reason="error", **other):
    return Exit(code=code, reason=reason, ended=2.0, **other)


def killed(memory=GIB):
    return exited(137, "oom", oom=True, memory=memory, enforced="cgroup")


LOST = exited(None, "lost")


def attempt(flow, name, end):
    """Run one attempt of a worker; its memory, and whether it is made again."""
    memory = flow.workers[name].next_memory
    flow.begin(name, f"uid-{len(flow.workers[name].tries)}", memory, 1.0)
    flow.started(name, "uid", 1.5)
    again = flow.end(name, end) is not None
    if again:
        flow.again(name)
    return memory, again


@pytest.mark.parametrize(
    ("end", "again"),
    [
        (exited(1), False),
        (exited(2), False),
        (exited(3), False),
        (exited(3, "deadline"), False),
        (exited(64), False),
        (exited(127, "start_error"), False),
        (exited(6), True),
        (exited(137, "evicted"), True),
        (exited(137, "asked"), True),
        (exited(143, "evicted"), True),
        (LOST, True),
    ],
)
def test_an_attempt_is_made_again_after_these_ends_only(end, again):
    flow = workflow(pod("a"))
    assert attempt(flow, "a", end)[1] is again
    assert flow.status().nodes["a"].phase is (Phase.RUNNING if again else Phase.FAILED)
    assert flow.ended is not again


def test_the_limit_counts_retries_and_not_attempts():
    flow = workflow(pod("a", retry_limit=2))
    assert [attempt(flow, "a", exited(143))[1] for _ in range(3)] == [True, True, False]
    assert flow.phase is Phase.FAILED
    assert [one.n for one in flow.status().nodes["a"].attempts] == [0, 1, 2]


def test_only_the_attempt_right_after_a_137_has_the_retry_memory():
    flow = workflow(pod("a", retry_memory=4 * GIB))
    ends = [exited(143), killed(), exited(143), exited(137, "asked"), LOST, exited(0)]
    memories = [attempt(flow, "a", end)[0] // GIB for end in ends]
    assert memories == [1, 1, 4, 1, 4, 1]
    assert flow.phase is Phase.SUCCEEDED


def test_a_kill_without_a_retry_memory_fails_the_worker():
    flow = workflow(pod("a"))
    assert attempt(flow, "a", killed())[1] is False
    assert flow.status().message == "a: killed for memory at 1 GiB"


def test_a_137_without_evidence_is_made_again_even_without_a_retry_memory():
    flow = workflow(pod("a"))
    assert attempt(flow, "a", exited(137, "evicted", signal=9)) == (GIB, True)


def test_a_second_kill_with_the_retry_memory_fails_the_worker():
    flow = workflow(pod("a", retry_memory=2 * GIB))
    assert attempt(flow, "a", killed()) == (GIB, True)
    assert attempt(flow, "a", killed(2 * GIB)) == (2 * GIB, False)
    assert flow.status().message == "a: killed for memory at 2 GiB"


def test_a_second_kill_with_the_first_memory_is_made_again():
    # Killed, evicted, killed: the rule knows only the exit code before, so the retry memory was not tried to the end
    flow = workflow(pod("a", retry_memory=2 * GIB))
    ends = [killed(), exited(143), killed(), killed(2 * GIB)]
    assert [attempt(flow, "a", end) for end in ends] == [
        (GIB, True),
        (2 * GIB, True),
        (GIB, True),
        (2 * GIB, False),
    ]


def test_a_store_that_fails_is_given_more_time_each_time():
    flow = workflow(pod("a"))
    waits = []
    for _ in range(9):
        flow.begin("a", "uid", GIB, 1.0)
        waits.append(flow.end("a", exited(6)))
        flow.again("a")
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 15, 15, 15]
    assert wait_before_retry([*flow.workers["a"].tries[:1]]) == 0.25
    flow.begin("a", "uid", GIB, 1.0)
    assert flow.end("a", LOST) == 0


def test_attempts_are_numbered_from_the_base_of_the_round():
    flow = workflow(pod("a", attempt_base=5))
    attempt(flow, "a", LOST)
    attempt(flow, "a", exited(0, "completed"))
    assert [one.n for one in flow.status().nodes["a"].attempts] == [5, 6]


def test_a_worker_needs_all_that_it_names_once_each():
    flow = workflow(pod("a"), pod("b"), pod("c", "a", "b", "a"))
    assert list(flow.ready["base"]) == ["a", "b"]
    attempt(flow, "a", exited(0))
    assert list(flow.ready["base"]) == ["b"]
    attempt(flow, "b", exited(0))
    assert list(flow.ready["base"]) == ["c"]
    assert flow.status().nodes["c"].phase is Phase.PENDING


def test_the_first_failure_counts_and_started_ones_go_on_with_their_retries():
    flow = workflow(pod("bad"), pod("good"), pod("waiting"), pod("below", "bad"))
    flow.begin("good", "uid", GIB, 1.0)
    flow.begin("bad", "uid", GIB, 1.0)
    flow.end("bad", exited(3))
    assert list(flow.ready["base"]) == []
    assert flow.phase is Phase.RUNNING
    assert flow.end("good", exited(143)) == 0
    flow.again("good")
    assert list(flow.ready["base"]) == ["good"]
    assert not flow.ended
    attempt(flow, "good", exited(4))
    assert flow.ended
    status = flow.status()
    assert (status.phase, status.message) == (Phase.FAILED, "bad: the command failed")
    phases = {name: str(node.phase) for name, node in status.nodes.items()}
    assert phases == {"bad": "Failed", "good": "Failed", "below": "Omitted"}


def test_a_long_chain_below_a_failure_is_omitted_without_recursion():
    flow = workflow(pod("t0"), *(pod(f"t{i}", f"t{i - 1}") for i in range(1, 5000)))
    attempt(flow, "t0", exited(1))
    assert flow.ended
    assert flow.status().nodes["t4999"].phase is Phase.OMITTED


def test_stop_lets_nothing_start_and_keeps_what_was_seen():
    flow = workflow(pod("a"), pod("b"), pod("c"), pod("d", "a"))
    flow.begin("a", "uid", GIB, 1.0)
    attempt(flow, "b", LOST)  # waits to be made again
    flow.stop()
    assert not flow.ended
    assert list(flow.ready["base"]) == []
    flow.end("a", exited(143, "cancelled"))
    status = flow.status()
    assert flow.ended
    assert (status.phase, status.message) == (Phase.FAILED, "stopped")
    phases = {name: str(node.phase) for name, node in status.nodes.items()}
    assert phases == {"a": "Failed", "b": "Error", "d": "Omitted"}
    flow.again("b")
    assert list(flow.ready["base"]) == []


def test_what_succeeds_in_spite_of_a_stop_has_succeeded():
    flow = workflow(pod("a"), pod("b", "a"))
    flow.begin("a", "uid", GIB, 1.0)
    flow.stop()
    flow.end("a", exited(0, "completed"))
    assert flow.status().nodes["a"].phase is Phase.SUCCEEDED
    assert flow.phase is Phase.FAILED  # b never ran
    assert list(flow.ready["base"]) == []


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (exited(0, "completed"), ""),
        (exited(3), "the command failed"),
        (exited(139, signal=11), "killed by signal 11 (SIGSEGV)"),
        (exited(163, signal=35), "killed by signal 35 (unknown)"),
        (killed(), "killed for memory at 1 GiB"),
        (
            exited(137, "oom", oom=True, memory=GIB, enforced="polled"),
            "killed for memory at 1 GiB, seen by polling",
        ),
        (LOST, "its supervisor is gone and left no record"),
        (exited(143, "cancelled"), "stopped"),
        (exited(137, "asked"), "asks for the retry memory, after an earlier kill"),
        (exited(2, message="SIMRUN_RUN is not set"), "SIMRUN_RUN is not set"),
    ],
)
def test_an_end_is_told_in_words(end, text):
    assert describe(end) == text


@st.composite
def dags(draw):
    size = draw(st.integers(1, 8))
    return [
        pod(
            f"t{i}",
            *(f"t{j}" for j in range(i) if draw(st.booleans())),
            may_fail=draw(st.booleans()),
            retry_limit=draw(st.integers(0, 2)),
            retry_memory=draw(st.sampled_from([None, 2 * GIB])),
        )
        for i in range(size)
    ]


ENDS = st.sampled_from([exited(0), exited(0), exited(0), exited(3), exited(143), LOST, killed()])


@given(dags(), st.data())
def test_every_workflow_comes_to_an_end_and_runs_nothing_out_of_turn(pods, data):
    flow = workflow(*pods)
    by_name = {one.worker: one for one in pods}
    while True:
        ready = list(flow.ready["base"])
        running = sorted(flow.running)
        assert flow.ended == (not ready and not running)
        if flow.ended:
            break
        choice = data.draw(
            st.sampled_from([("begin", n) for n in ready] + [("end", n) for n in running])
        )
        match choice:
            case ("begin", name):
                for need in by_name[name].needs:
                    assert flow.status().nodes[need].phase is Phase.SUCCEEDED
                flow.begin(name, "uid", flow.workers[name].next_memory, 1.0)
            case ("end", name):
                if flow.end(name, data.draw(ENDS)) is not None:
                    flow.again(name)
        if data.draw(st.integers(0, 30)) == 0:
            flow.stop()
    nodes = flow.status().nodes
    required = [one.worker for one in pods if not one.may_fail]
    good = all(name in nodes and nodes[name].phase is Phase.SUCCEEDED for name in required)
    assert flow.phase is (Phase.SUCCEEDED if good else Phase.FAILED)
    assert all(len(node.attempts) <= by_name[name].retry_limit + 1 for name, node in nodes.items())
