import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from simrun.worker import files
from simrun.worker.ledger import Claim, Counts, Holder, Ledger, LedgerView, failure_record
from simrun.worker.protocol import TaskDir


class Clock:
    """Stands still until a test moves it, so that listings are taken when the test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Task:
    """A task's ledger with workers that come and go."""

    def __init__(self, root):
        self.dir = TaskDir(root)
        self.clock = Clock()

    def ledger(self, worker="t-w0", attempt=0, *, count=4, uid="", **options):
        holder = Holder(worker, attempt, uid or f"{worker[-2:]}{attempt:06}", "node")
        return Ledger(self.dir, holder, count, clock=self.clock, **options)

    def view(self, count=4):
        return LedgerView(self.dir, count)

    def record(self, claim, **fields):
        work = self.dir.work / claim.name
        files.make_directory(work)
        path = work / ".simrun-record.json"
        if not path.exists():
            files.write_synced(path, files.encode({"unit": claim.unit, **fields}))
        return path

    def commit(self, ledger, claim):
        return ledger.commit(claim, self.record(claim))

    def fault(self, ledger, claim, reason="exit code 1", message="it broke"):
        record = failure_record(claim, "k", reason, message)
        return ledger.fault(claim, reason, message, self.record(claim, **record))

    def lose(self, worker, attempt, **options):
        """Claim a unit by an attempt that then vanishes."""
        ledger = self.ledger(worker, attempt, **options)
        ledger.take_over_own()
        return ledger.claim_next()


@pytest.fixture
def task(tmp_path):
    return Task(tmp_path)


def claim_all(ledger):
    claims = []
    while (claim := ledger.claim_next()) is not None:
        claims.append(claim)
    return claims


# --- claiming ---------------------------------------------------------------------------------------------------------------


def test_each_unit_is_claimed_once(task):
    claims = claim_all(task.ledger())

    assert sorted(claims) == [Claim(unit, 1) for unit in range(4)]


def test_a_task_without_units_is_complete(task):
    ledger = task.ledger(count=0)

    assert ledger.claim_next() is None
    assert ledger.state() == Counts(0, 0, 0, 0)
    assert ledger.state().complete


def test_two_workers_share_the_units(task):
    one, other = task.ledger("t-w0", count=40), task.ledger("t-w1", count=40)
    claims = [ledger.claim_next() for _ in range(20) for ledger in (one, other)]

    assert {claim.unit for claim in claims} == set(range(40))
    assert one.claim_next() is None
    assert other.claim_next() is None


def test_workers_begin_in_different_places(task):
    firsts = {task.ledger(f"t-w{i}", count=1000).claim_next().unit for i in range(20)}

    assert len(firsts) == 20
    assert max(firsts) - min(firsts) > 300


def test_a_claim_that_is_lost_costs_one_listing_and_finds_another(task, monkeypatch):
    one, other = task.ledger("t-w0", count=2), task.ledger("t-w1", count=2)
    first = one.claim_next()  # other's view, should it have one, does not show it
    listings = []
    real_listing = files.listing
    monkeypatch.setattr(files, "listing", lambda d: listings.append(d.name) or real_listing(d))

    assert other.claim_next().unit == 1 - first.unit
    assert listings.count("claims") <= 2


def test_the_directories_are_listed_once_a_second_however_many_units_are_claimed(task, monkeypatch):
    ledger = task.ledger(count=100)
    listings = []
    real_listing = files.listing
    monkeypatch.setattr(files, "listing", lambda d: listings.append(d.name) or real_listing(d))
    for _ in range(99):
        ledger.claim_next()
    assert listings.count("claims") == 1

    task.clock.now += 1.0
    ledger.claim_next()
    assert listings.count("claims") == 2
    assert ledger.claim_next() is None
    assert listings.count("claims") == 2


def test_a_unit_that_is_done_is_not_claimed(task):
    first = task.ledger("t-w0", count=1)
    task.commit(first, first.claim_next())

    assert task.ledger("t-w1", count=1).claim_next() is None


def test_what_was_given_back_is_claimed_again_under_the_next_generation(task):
    one, other = task.ledger("t-w0", count=1), task.ledger("t-w1", count=1)
    claim = one.claim_next()
    one.release(claim)

    assert other.claim_next() == Claim(claim.unit, 3)


def test_a_holder_may_claim_again_what_it_gave_back(task):
    ledger = task.ledger(count=1)
    ledger.release(ledger.claim_next())

    assert ledger.claim_next() == Claim(0, 3)


def test_giving_back_a_claim_that_was_taken_over_changes_nothing(task):
    old = task.ledger("t-w0", 0, count=1)
    claim = old.claim_next()
    (taken,) = task.ledger("t-w0", 1, count=1).take_over_own()
    old.release(claim)

    assert task.view(1).holders() == {0: Holder("t-w0", 1, "w0000001", "node")}
    assert taken == Claim(0, 2)


def test_threads_of_a_holder_never_get_the_same_unit(task):
    ledger = task.ledger(count=200)
    with ThreadPoolExecutor(4) as pool:
        lists = list(pool.map(lambda _: claim_all(ledger), range(4)))

    assert sorted(claim.unit for claims in lists for claim in claims) == list(range(200))


def test_foreign_files_in_the_ledger_are_passed_over(task):
    ledger = task.ledger(count=1)
    for name in ("notes.txt", "99.1", "0", ".nfs0001", ".tmp.x"):
        (task.dir.claims / name).touch()
    for name in ("readme", "77", ".nfs0002"):
        (task.dir.done / name).touch()

    assert ledger.state() == Counts(0, 0, 0, 1)
    assert ledger.claim_next() == Claim(0, 1)


def test_a_claim_that_cannot_be_read_is_held_until_it_is_freed_as_stale(task):
    ledger = task.ledger(count=1)
    (task.dir.claims / "0.1").touch()

    assert ledger.claim_next() is None
    (holder,) = task.view(1).holders().values()
    assert ledger.release_all_of(holder.name) == 1
    assert ledger.claim_next() == Claim(0, 3)


# --- takeover ---------------------------------------------------------------------------------------------------------------


def test_the_next_attempt_takes_over_at_once_what_the_last_one_held(task):
    lost = task.lose("t-w1", 0)
    ledger = task.ledger("t-w1", 1)

    assert ledger.take_over_own() == [Claim(lost.unit, 2)]
    assert ledger.claim_next() == Claim(lost.unit, 2)
    assert ledger.claim_next().generation == 1


def test_a_pod_made_again_under_the_same_number_takes_over_too(task):
    lost = task.lose("t-w1", 0, uid="first")

    assert task.ledger("t-w1", 0, uid="second").take_over_own() == [Claim(lost.unit, 2)]


def test_others_and_later_attempts_are_left_alone(task):
    task.lose("t-w1", 1)
    task.lose("t-w0", 0)

    assert task.ledger("t-w1", 0).take_over_own() == []
    assert task.ledger("t-w11", 5).take_over_own() == []


def test_nothing_that_is_done_or_given_up_is_taken_over(task):
    first = task.ledger("t-w1", 0, count=2, tries=1)
    task.commit(first, first.claim_next())
    assert task.fault(first, first.claim_next()) == "failed"

    assert task.ledger("t-w1", 1, count=2).take_over_own() == []


def test_the_coordinator_frees_what_a_dead_holder_held_and_nothing_else(task):
    coordinator = task.ledger("t-w0")
    dead = task.ledger("t-w1")
    done, held, other = dead.claim_next(), dead.claim_next(), coordinator.claim_next()
    task.commit(dead, done)

    assert coordinator.release_all_of("t-w1-0.w1000000") == 1
    assert coordinator.holders() == {other.unit: Holder("t-w0", 0, "w0000000", "node")}
    assert task.view().state() == Counts(done=1, failed=0, claimed=1, free=2)
    assert coordinator.claim_next() == Claim(held.unit, 3)


def test_freeing_a_dead_holder_twice_frees_nothing_more(task):
    task.lose("t-w1", 0)
    coordinator = task.ledger("t-w0")

    assert coordinator.release_all_of("t-w1-0.w1000000") == 1
    assert coordinator.release_all_of("t-w1-0.w1000000") == 0


def test_a_holder_learns_that_its_claim_was_freed(task):
    slow = task.ledger("t-w1")
    claim = slow.claim_next()
    assert slow.is_current(claim)
    task.ledger("t-w0").release_all_of("t-w1-0.w1000000")

    assert not slow.is_current(claim)


# --- commit -----------------------------------------------------------------------------------------------------------------


def test_the_first_commit_counts_and_the_second_is_told(task):
    slow = task.ledger("t-w1", 0, count=1)
    old = slow.claim_next()
    quick = task.ledger("t-w1", 1, count=1)
    (new,) = quick.take_over_own()

    assert task.commit(slow, old)
    assert not task.commit(quick, new)
    assert (task.dir.done / "0").samefile(task.record(old))


def test_a_repeated_commit_is_still_the_one_that_counts(task):
    ledger = task.ledger(count=1)
    claim = ledger.claim_next()

    assert task.commit(ledger, claim)
    assert task.commit(ledger, claim)


def test_a_commit_without_its_record_is_an_error_and_commits_nothing(task):
    ledger = task.ledger(count=1)
    claim = ledger.claim_next()

    with pytest.raises(FileNotFoundError):
        ledger.commit(claim, task.dir.work / "nothing")
    assert task.view(1).state().done == 0


# --- faults -----------------------------------------------------------------------------------------------------------------


def test_a_unit_is_tried_again_and_then_given_up(task):
    ledger = task.ledger(count=1)
    first = ledger.claim_next()
    assert task.fault(ledger, first) == "again"
    second = ledger.claim_next()
    assert task.fault(ledger, second, "signal 11", "crashed") == "failed"

    assert ledger.claim_next() is None
    assert task.view(1).failed() == [second]
    assert task.view(1).state() == Counts(done=0, failed=1, claimed=0, free=0)
    record = json.loads((task.dir.failed / second.name).read_text())
    assert (record["state"], record["reason"], record["message"]) == (
        "failed",
        "signal 11",
        "crashed",
    )


def test_faults_of_all_workers_count_together(task):
    one, other = task.ledger("t-w0", count=1), task.ledger("t-w1", count=1)
    assert task.fault(one, one.claim_next()) == "again"

    assert task.fault(other, other.claim_next()) == "failed"


def test_a_fault_reported_twice_counts_once(task):
    ledger = task.ledger(count=1)
    claim = ledger.claim_next()
    assert task.fault(ledger, claim) == "again"

    assert task.fault(ledger, claim) == "lost"
    assert task.fault(ledger, ledger.claim_next()) == "failed"


def test_a_fault_of_a_claim_that_was_taken_over_counts_but_decides_nothing(task):
    slow = task.ledger("t-w1", 0, count=1)
    claim = slow.claim_next()
    quick = task.ledger("t-w1", 1, count=1)
    (taken,) = quick.take_over_own()

    assert task.fault(slow, claim) == "lost"
    assert quick.is_current(taken)
    assert task.fault(quick, taken) == "failed"


def test_a_unit_done_by_another_is_no_failure(task):
    slow = task.ledger("t-w1", 0, count=1, tries=1)
    claim = slow.claim_next()
    quick = task.ledger("t-w1", 1, count=1, tries=1)
    (taken,) = quick.take_over_own()
    assert task.fault(quick, taken) == "failed"

    assert task.commit(slow, claim)
    assert task.view(1).state() == Counts(done=1, failed=0, claimed=0, free=0)
    assert task.view(1).failed() == []


def test_whoever_claims_next_gives_up_what_a_worker_died_over(task):
    # The worker noted its second fault and was killed before it could do more
    first = task.ledger("t-w1", 0, count=1)
    assert task.fault(first, first.claim_next()) == "again"
    claim = first.claim_next()
    note = failure_record(claim, "", "signal 9", "twice")
    files.create(task.dir.faults / claim.name, files.encode(note))
    second = task.ledger("t-w1", 1, count=1)

    assert second.take_over_own() == []
    assert second.claim_next() is None
    (failed,) = second.failed()
    record = json.loads((task.dir.failed / failed.name).read_text())
    assert (record["unit"], record["reason"], record["message"]) == (0, "signal 9", "twice")


# --- lost too often ---------------------------------------------------------------------------------------------------------


def test_a_unit_that_every_worker_vanishes_with_is_given_up_in_the_end(task):
    for attempt in range(4):
        assert task.lose("t-w1", attempt, count=1, max_evictions=2) == Claim(0, attempt + 1)
    last = task.ledger("t-w1", 4, count=1, max_evictions=2)

    assert last.take_over_own() == []
    (failed,) = last.failed()
    record = json.loads((task.dir.failed / failed.name).read_text())
    assert record["reason"] == "lost"
    assert "lost too often: 4 workers" in record["message"]


def test_generations_that_only_freed_the_unit_are_no_tries(task):
    coordinator = task.ledger("t-w0", count=1, max_evictions=2)
    for attempt in range(4):
        assert task.lose("t-w1", attempt, count=1, max_evictions=2) == Claim(0, 2 * attempt + 1)
        assert coordinator.release_all_of(f"t-w1-{attempt}.w100000{attempt}") == 1

    assert coordinator.claim_next() is None
    assert coordinator.failed() == [Claim(0, 9)]


def test_claims_of_earlier_rounds_are_not_counted(task):
    for attempt in range(4):
        task.lose("t-w1", attempt, count=1, max_evictions=2)

    again = task.ledger("t-w1", 4, count=1, max_evictions=2, attempt_base=4)
    assert again.take_over_own() == [Claim(0, 5)]


# --- a new round ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def given_up(task):
    """A task of two units, one done and one given up."""
    ledger = task.ledger(count=2, tries=1)
    task.commit(ledger, ledger.claim_next())
    claim = ledger.claim_next()
    assert task.fault(ledger, claim) == "failed"
    return claim


def test_a_new_round_opens_the_failed_units_and_no_others(task, given_up):
    service = task.ledger("service", 1, count=2)

    assert service.reopen_failed() == [given_up.unit]
    assert service.state() == Counts(done=1, failed=0, claimed=0, free=1)
    assert service.failed() == []
    assert service.reopen_failed() == []


def test_faults_before_a_new_round_do_not_count(task, given_up):
    task.ledger("service", 1, count=2).reopen_failed()
    ledger = task.ledger("t-w0", 1, count=2)
    again = ledger.claim_next()
    assert again == Claim(given_up.unit, 3)

    assert task.fault(ledger, again) == "again"
    assert task.fault(ledger, ledger.claim_next()) == "failed"
    assert task.ledger("service", 2, count=2).reopen_failed() == [given_up.unit]


def test_a_failure_overtaken_by_a_release_is_no_new_round(task):
    # The coordinator took the holder for dead just as it gave the unit up: the unit is free, its faults still count
    slow = task.ledger("t-w1", 0, count=1, tries=1)
    claim = slow.claim_next()
    assert task.fault(slow, claim) == "failed"
    overtaking = task.ledger("t-w0", count=1, tries=1)
    overtaking.release(claim)
    assert overtaking.state().free == 1

    assert overtaking.claim_next() is None
    assert overtaking.state().failed == 1


# --- views ------------------------------------------------------------------------------------------------------------------


def test_a_view_of_a_task_that_has_not_begun_has_all_units_free(task):
    assert task.view().state() == Counts(done=0, failed=0, claimed=0, free=4)
    assert task.view().done() == []
    assert task.view().holders() == {}


def test_a_view_shows_what_stands_now(task):
    view = task.view()
    ledger = task.ledger()
    claims = claim_all(ledger)
    assert view.state() == Counts(done=0, failed=0, claimed=4, free=0)
    for claim in claims[:2]:
        task.commit(ledger, claim)
    ledger.release(claims[2])

    assert view.state() == Counts(done=2, failed=0, claimed=1, free=1)
    assert view.done() == sorted(claim.unit for claim in claims[:2])
    assert list(view.holders()) == [claims[3].unit]


def test_claims_are_read_once(task, monkeypatch):
    claim_all(task.ledger(count=30))
    view = task.view(30)
    reads = []
    real_read = files.read
    lock = threading.Lock()

    def read(path):
        with lock:
            reads.append(path.name)
        return real_read(path)

    monkeypatch.setattr(files, "read", read)
    for _ in range(3):
        assert len(view.holders()) == 30
    assert len(reads) == len(set(reads)) == 30
