"""Any order of claims, commits, faults, deaths and takeovers keeps the promises of the ledger."""

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from simrun.worker import files
from simrun.worker.claims import decode_token
from simrun.worker.ledger import Claim, Holder, Ledger, LedgerView, failure_record
from simrun.worker.protocol import TaskDir, parse_claim_name

UNITS = 3
TRIES = 2
MAX_EVICTIONS = 2


class Worker:
    """An attempt: alive until it is declared dead, though a dead one may go on acting, as a paused one would."""

    def __init__(self, ledger, holder):
        self.ledger = ledger
        self.holder = holder


class LedgerMachine(RuleBasedStateMachine):
    workers = Bundle("workers")
    claims = Bundle("claims")

    def __init__(self):
        super().__init__()
        self.dir = TaskDir(Path(tempfile.mkdtemp(dir=_fast_directory())))
        self.now = 0.0
        self.attempts = defaultdict(int)
        self.base = 0
        self.issued = set()
        self.taken_over = set()
        self.handed_out = set()
        self.commits = defaultdict(set)
        self.view = LedgerView(self.dir, UNITS)

    def teardown(self):
        try:
            self.finish()
        finally:
            shutil.rmtree(self.dir.root)

    def new(self, name):
        holder = Holder(name, self.attempts[name], f"{self.attempts[name]:08}", "node")
        self.attempts[name] += 1
        ledger = Ledger(
            self.dir,
            holder,
            UNITS,
            tries=TRIES,
            max_evictions=MAX_EVICTIONS,
            attempt_base=self.base,
            clock=lambda: self.now,
        )
        return Worker(ledger, holder)

    def got(self, claim):
        """A generation is won by one holder, ever."""
        assert claim not in self.issued
        self.issued.add(claim)

    def record(self, claim, **fields):
        path = self.dir.root / f"record-{claim.name}"
        if not path.exists():
            files.write_synced(path, files.encode({"unit": claim.unit} | fields))
        return path

    @rule(target=workers, name=st.sampled_from(["t-w0", "t-w1", "t-w2"]))
    def start(self, name):
        worker = self.new(name)
        for claim in worker.ledger.take_over_own():
            self.got(claim)
            self.taken_over.add(claim)
        return worker

    @rule(target=claims, worker=workers)
    def claim(self, worker):
        if (claim := worker.ledger.claim_next()) is None:
            return multiple()
        assert claim not in self.handed_out
        self.handed_out.add(claim)
        if claim not in self.taken_over:
            self.got(claim)
        return (worker, claim)

    @rule(held=claims)
    def commit(self, held):
        """The claim stays in the bundle: a slow worker may commit long after others took over, or twice."""
        worker, claim = held
        if worker.ledger.commit(claim, self.record(claim)):
            self.commits[claim.unit].add(claim)

    @rule(held=consumes(claims))
    def fault(self, held):
        worker, claim = held
        failure = failure_record(claim, "", "exit", "broke")
        outcome = worker.ledger.fault(claim, "exit", "broke", self.record(claim, **failure))
        assert outcome in ("again", "failed", "lost")

    @rule(held=consumes(claims))
    def release(self, held):
        worker, claim = held
        worker.ledger.release(claim)

    @rule(held=consumes(claims))
    def die_with_a_fault_half_noted(self, held):
        _, claim = held
        note = files.encode(failure_record(claim, "", "exit", "broke"))
        files.create(self.dir.faults / claim.name, note)

    @rule(coordinator=workers, gone=workers)
    def take_over_from(self, coordinator, gone):
        coordinator.ledger.release_all_of(gone.holder.name)

    @rule(seconds=st.sampled_from([0.1, 1.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def retry(self):
        before = {claim.unit for claim in self.view.failed()}
        self.base = max(self.attempts.values(), default=0)
        for worker in list(self.attempts):
            self.attempts[worker] = self.base
        assert set(self.new("service").ledger.reopen_failed()) == before
        assert self.view.failed() == []

    @invariant()
    def each_unit_is_committed_at_most_once(self):
        assert all(len(claims) == 1 for claims in self.commits.values())
        assert self.view.done() == sorted(self.commits)
        for unit, (claim,) in self.commits.items():
            assert (self.dir.done / str(unit)).samefile(self.record(claim))

    @invariant()
    def every_unit_stands_somewhere(self):
        counts = self.view.state()
        assert sum(counts) == UNITS
        assert min(counts) >= 0

    @invariant()
    def no_unit_is_given_up_before_its_tries_are_used_up(self):
        for claim in self.view.failed():
            assert not (self.dir.done / str(claim.unit)).exists()
            tokens = {
                generation: decode_token(
                    (self.dir.claims / f"{claim.unit}.{generation}").read_bytes()
                )
                for generation in range(1, claim.generation + 1)
            }
            since = max((g for g, token in tokens.items() if token.reopened), default=0)
            faults = [
                found
                for path in self.dir.faults.iterdir()
                if (found := parse_claim_name(path.name))
                and found[0] == claim.unit
                and since < found[1] <= claim.generation
            ]
            held = sum(not token.open for g, token in tokens.items() if g > since)
            assert len(faults) >= TRIES or held > TRIES + MAX_EVICTIONS

    def finish(self):
        """Whatever happened, one worker that stays gets every unit done or given up: none is lost."""
        last = self.new("t-w0")
        last.ledger.take_over_own()
        for holder in set(self.view.holders().values()) - {last.holder}:
            last.ledger.release_all_of(holder.name)
        for _ in range(UNITS):
            if (claim := last.ledger.claim_next()) is None:
                break
            assert last.ledger.commit(
                claim, self.record(Claim(claim.unit, 10**6 + claim.generation))
            )
        assert self.view.state().complete


def _fast_directory():
    """A state machine makes thousands of files whose durability nobody asks for."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
