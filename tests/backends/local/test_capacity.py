from simrun.backends.local.capacity import PASSES, Capacity, next_pick
from simrun.backends.local.dag import Workflow
from simrun.backends.local.records import Exit
from simrun.pods import Pod

GIB = 2**30


def pod(worker, cpus=1.0, memory=GIB, **other):
    return Pod(worker=worker, task=worker, type="t", role="exec", cpus=cpus, memory=memory, **other)


def workflow(name, *pods, **other):
    return Workflow(name, name, "uid", pods, **other)


def begin(pick, capacity):
    workflow, worker = pick
    capacity.take(worker.pod.cpus, worker.next_memory)
    workflow.begin(worker.pod.worker, "uid", worker.next_memory, 0.0)
    return f"{workflow.name}.{worker.pod.worker}"


def all_picks(workflows, capacity, reserved=None):
    """Start all that may start; their names in order."""
    names = []
    while (pick := next_pick(workflows, capacity, reserved)) is not None:
        names.append(begin(pick, capacity))
    return names


def end(workflow, name, capacity):
    worker = workflow.workers[name]
    capacity.give(worker.pod.cpus, worker.tries[-1].memory)
    workflow.end(name, Exit(code=0, reason="completed", ended=0.0))


def test_fills_processors_and_memory_and_no_more():
    flow = workflow("w", pod("a"), pod("b"), pod("c", memory=3 * GIB), pod("d"), pod("e"))
    assert all_picks([flow], Capacity(4, 4 * GIB)) == ["w.a", "w.b", "w.d", "w.e"]


def test_fractions_of_processors_add_up():
    flow = workflow("w", *(pod(f"t{i}", cpus=0.1) for i in range(12)))
    capacity = Capacity(1.0, 100 * GIB)
    assert len(all_picks([flow], capacity)) == 10
    for i in range(10):
        end(flow, f"t{i}", capacity)
    assert (capacity.used_cpus, capacity.used_memory, capacity.holders) == (0.0, 0, 0)


def test_what_is_larger_than_the_machine_runs_alone():
    flow = workflow("w", pod("big", cpus=9, memory=99 * GIB), pod("a"))
    capacity = Capacity(4, 4 * GIB)
    assert all_picks([flow], capacity) == ["w.big"]
    end(flow, "big", capacity)
    assert all_picks([flow], capacity) == ["w.a"]


def test_extra_workers_come_after_all_others_of_all_workflows():
    one = workflow("one", pod("x", priority="extra", may_fail=True), pod("a"))
    two = workflow("two", pod("b"), pod("c"))
    assert all_picks([one, two], Capacity(4, 99 * GIB)) == ["one.a", "two.b", "two.c", "one.x"]


def test_the_workflow_that_uses_least_is_next():
    big = workflow("big", *(pod(f"t{i}") for i in range(9)))
    small = workflow("small", pod("a"), pod("b"))
    capacity = Capacity(4, 99 * GIB)
    assert all_picks([big], capacity) == [f"big.t{i}" for i in range(4)]
    end(big, "t0", capacity)
    end(big, "t1", capacity)
    assert all_picks([big, small], capacity) == ["small.a", "small.b"]


def test_runs_of_higher_priority_come_first_but_their_extra_workers_do_not():
    low = workflow("low", pod("a"), priority="low")
    normal = workflow("normal", pod("b"))
    high = workflow("high", pod("x", priority="extra", may_fail=True), pod("c"), priority="high")
    old = workflow("old", pod("d"), priority="urgent")  # of a file that knew other words
    order = ["high.c", "normal.b", "old.d", "low.a", "high.x"]
    assert all_picks([low, normal, high, old], Capacity(9, 99 * GIB)) == order


def test_small_ones_pass_a_large_one_but_not_for_ever():
    large = workflow("large", pod("a", cpus=4))
    small = workflow("small", *(pod(f"t{i}") for i in range(200)))
    capacity = Capacity(4, 999 * GIB)
    begin(next_pick([small], capacity), capacity)
    passes = 0
    while (pick := next_pick([large, small], capacity)) is not None:
        name = begin(pick, capacity)
        if name == "large.a":
            break
        passes += 1
        end(small, name.partition(".")[2], capacity)
    assert passes == PASSES
    assert capacity.used_cpus == 1  # room is kept, since the large one holds the others back
    end(small, "t0", capacity)
    assert all_picks([large, small], capacity) == ["large.a"]


def test_a_reserved_machine_waits_until_the_others_are_gone():
    mine, other = workflow("mine", pod("a")), workflow("other", pod("b"), pod("c"))
    capacity = Capacity(4, 99 * GIB)
    begin(next_pick([other], capacity), capacity)
    assert all_picks([other, mine], capacity, "mine") == []
    end(other, "b", capacity)
    assert all_picks([other, mine], capacity, "mine") == ["mine.a"]


def test_the_retry_memory_is_what_must_fit():
    flow = workflow("w", pod("a", memory=GIB, retry_memory=4 * GIB), pod("b", memory=GIB))
    capacity = Capacity(4, 4 * GIB)
    begin(next_pick([flow], capacity), capacity)
    capacity.give(1, GIB)
    flow.end("a", Exit(code=137, reason="oom", oom=True, ended=0.0))
    flow.again("a")
    assert all_picks([flow], capacity) == ["w.a"]
    assert capacity.used_memory == 4 * GIB
