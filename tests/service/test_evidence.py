"""Evidence of attempts: stored when it is seen, never taken back, each pod for itself."""

from __future__ import annotations

from dataclasses import replace

from simrun.backends.base import Attempt, Node, Phase
from simrun.model.record import RunState, TaskState
from simrun.model.report import AttemptEvidence, MemoryUse, WorkerReport
from simrun.service.evidence import evidence_of, merged
from simrun.store import codec
from simrun.worker import files
from tests.mounts import two_views
from tests.service.world import FakeClock, World, make_world

GIB = 2**30
RUNNING = Attempt(n=0, phase=Phase.RUNNING, pod_uid="pod-a", node="node0", memory=GIB, started=5.0)
LEAVING = replace(
    RUNNING,
    leaving="preempted",
    preemptor="run r2, worker sim-w0",
    message="told to leave: WorkloadEvictedDueToPreempted",
)
DELETED = Attempt(n=0, phase=Phase.ERROR, reason="lost", message="pod deleted")


def again(world: World) -> World:
    """The service, started anew."""
    return make_world(world.store.layout.root, world.clock, world.backend)


def kept(world: World, task: str = "sweep") -> list[AttemptEvidence]:
    return world.store.evidence("run1", task)


async def test_a_condition_is_stored_at_the_pass_that_saw_it(world: World) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", RUNNING)
    await world.look()
    world.backend.attempt(name, "sweep-w0", LEAVING)

    await world.look()

    (evidence,) = kept(world)
    assert (evidence.reason, evidence.leaving) == (None, "preempted")
    assert evidence.preemptor == "run r2, worker sim-w0"


async def test_a_service_that_starts_anew_and_finds_only_a_deleted_pod_knows_why(
    world: World,
) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", LEAVING)
    await world.look()
    world = again(world)
    world.backend.attempt(name, "sweep-w0", DELETED, node=Phase.RUNNING)

    record = await world.look()

    (evidence,) = kept(world)
    assert evidence.reason == "preempted"
    assert evidence.preemptor == "run r2, worker sim-w0"
    assert (evidence.pod_uid, evidence.node, evidence.memory) == ("pod-a", "node0", GIB)
    assert record.evictions == {"sweep-w0": 1}


async def test_each_pod_of_one_number_counts_and_is_kept(world: World) -> None:
    name = await world.start()
    first = Attempt(n=0, phase=Phase.ERROR, reason="evicted", pod_uid="pod-a", created=1.0)
    second = Attempt(n=0, phase=Phase.ERROR, reason="preempted", pod_uid="pod-b", created=2.0)
    third = Attempt(n=0, phase=Phase.RUNNING, pod_uid="pod-c", created=3.0)
    node = Node(phase=Phase.RUNNING, attempts=(first, second, third))
    world.backend.workflows[name].nodes["sweep-w0"] = node

    record = await world.look()

    assert [(item.pod_uid, item.reason) for item in kept(world)] == [
        ("pod-a", "evicted"),
        ("pod-b", "preempted"),
        ("pod-c", None),
    ]
    assert record.evictions == {"sweep-w0": 2}
    assert record.tasks["sweep"] is TaskState.RUNNING


async def test_killed_for_memory_then_evicted_keeps_the_kill_for_the_next_attempt(
    world: World,
) -> None:
    name = await world.start()
    killed = Attempt(
        n=0, phase=Phase.FAILED, reason="oom", oom=True, exit_code=137, memory=GIB, pod_uid="pod-a"
    )
    # The pod says it before Argo does, and is deleted before Argo looks
    world.backend.attempt(name, "sweep-w0", killed, node=Phase.RUNNING)
    await world.look()
    world = again(world)
    world.backend.attempt(name, "sweep-w0", DELETED, node=Phase.RUNNING)
    world.backend.attempt(
        name, "sweep-w0", Attempt(n=1, phase=Phase.ERROR, reason="evicted", pod_uid="pod-b")
    )
    world.backend.attempt(name, "sweep-w0", Attempt(n=2, phase=Phase.RUNNING, pod_uid="pod-c"))

    record = await world.look()

    assert record.state is RunState.RUNNING
    assert record.oom_kills == {"sweep-w0": [0]}
    assert record.evictions == {"sweep-w0": 1}  # the kill is none, though nobody sees its pod now
    assert [(item.attempt, item.reason, item.oom) for item in kept(world)] == [
        (0, "oom", True),
        (1, "evicted", False),
        (2, None, False),
    ]
    memory = world.store.layout.run("run1").task("sweep").memory
    assert files.listing(memory) == {"sweep-w0-0"}


def test_what_a_pod_said_is_not_taken_back_when_nobody_sees_it_any_more() -> None:
    ended = evidence_of(
        "w", replace(LEAVING, phase=Phase.FAILED, reason="preempted", exit_code=143)
    )

    again = merged(ended, evidence_of("w", DELETED))

    assert again.reason == "preempted"
    assert again.exit_code == 143
    assert again.message == ended.message


def test_a_later_word_of_the_pod_itself_counts() -> None:
    seen = evidence_of("w", replace(RUNNING, phase=Phase.FAILED, reason="error", exit_code=3))

    known = merged(evidence_of("w", LEAVING), seen)

    assert (known.reason, known.exit_code, known.leaving) == ("error", 3, None)


async def test_the_end_of_a_worker_is_marked_though_a_lookup_of_its_claims_was_answered_no_before(
    clock: FakeClock,
) -> None:
    with two_views() as (service, pods):
        world = make_world(service, clock)
        name = await world.start()
        claims = world.task_dir("sweep") / "claims"
        assert not claims.exists()
        (pods / claims.relative_to(service)).mkdir()
        assert not claims.exists()
        ended = replace(RUNNING, phase=Phase.ERROR, reason="lost", ended=9.0)
        world.backend.attempt(name, "sweep-w0", ended, node=Phase.RUNNING)

        await world.look()

        (dead,) = files.listing(world.store.layout.run("run1").task("sweep").dead)
        assert dead.startswith("sweep-w0-0.")
        world.pool.close()


async def test_an_observation_tells_how_its_attempt_ended(world: World) -> None:
    name = await world.start()
    ended = replace(RUNNING, phase=Phase.ERROR, reason="evicted", ended=9.0, peak_unreclaimable=7)
    world.backend.attempt(name, "sweep-w0", ended, node=Phase.RUNNING)
    report = WorkerReport(
        run="run1",
        task="sweep",
        worker="sweep-w0",
        attempt=1,
        exit_code=143,
        reason="cancelled",
        started=1,
        ended=2,
        memory=MemoryUse(peak_unreclaimable=8),
    )
    reports = world.store.layout.run("run1").task("sweep").reports
    (reports / "sweep-w0-1.json").write_bytes(codec.encode(report))
    world.backend.succeed(name, "sweep-w0", 2)
    world.merge("sweep")

    await world.look()

    seen = world.resources.of_type("split")
    assert [(item.attempt, item.peak_memory, item.reason) for item in seen] == [
        (0, 7, "evicted"),
        (1, 8, "cancelled"),
    ]
