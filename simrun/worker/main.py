"""The programs of the harness: simrun-worker, simrun-merge and simrun-exec. One attempt each, from its start to its exit code.

Order of life: what the attempt is told, what earlier attempts left behind, heartbeat, inputs, the work, the report.

What a first unit doesn't need is imported where it is used: every worker of a campaign starts through this module.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from simrun.worker import cgroup, environment, evidence, files, settings, staging, trees
from simrun.worker.child import Runner
from simrun.worker.endings import AttemptError, StoreError
from simrun.worker.environment import Environment
from simrun.worker.heartbeat import Heartbeat, Ticker
from simrun.worker.job import Job
from simrun.worker.ledger import LedgerView
from simrun.worker.log import Log
from simrun.worker.output import is_merged
from simrun.worker.protocol import ROLE_BASE, ROLE_EXEC, ROLE_MERGE, Exit
from simrun.worker.stopping import Stopper
from simrun.worker.unit_source import open_table
from simrun.worker.work import UnitWorker

if TYPE_CHECKING:
    from simrun.worker import processes

_SAMPLE_S = 0.1
"""Between samples of memory. A unit of a second must not pass unseen, since sizes are planned from what is seen."""


def worker() -> NoReturn:
    """Run simrun-worker."""
    sys.exit(run("worker"))


def merge() -> NoReturn:
    """Run simrun-merge."""
    sys.exit(run(ROLE_MERGE))


def execute() -> NoReturn:
    """Run simrun-exec."""
    sys.exit(run(ROLE_EXEC))


def run(program: str) -> int:
    """Live one attempt; gives the exit code."""
    started = time.monotonic()
    try:
        env = environment.read(os.environ, program)
        stopper = Stopper(grace_s=env.grace_s, timeout_s=env.timeout_s, started=started)
        stopper.install()
        _check_store(env)
        log = Log(env.task_dir.logs / f"{env.attempt_name}.log")
    except AttemptError as error:
        print(f"simrun: {error}", file=sys.stderr)
        return int(error.code)
    except OSError as error:
        print(f"simrun: the run store fails: {error}", file=sys.stderr)
        return int(Exit.STORE)
    try:
        return Attempt(env, log, stopper).live()
    finally:
        log.close()


def _check_store(env: Environment) -> None:
    """Refuse to go on where the run store is not mounted: nothing that is written there would ever be seen."""
    directory = env.task_dir.root
    if not directory.is_dir() and not files.listed(directory.parent, directory.name):
        raise StoreError(f"{directory} is not there; is the run store mounted?")


class Attempt:
    """One attempt of a worker, a merge or an unsplit task."""

    def __init__(self, env: Environment, log: Log, stopper: Stopper) -> None:
        self.env = env
        self.log = log
        self.stopper = stopper
        self.wall_started = time.time()
        self.memory, self.meter = measure(env)
        self.counts: dict[str, int] = {}
        self.merged = False
        self.remark = ""

    def live(self) -> int:
        """Do everything, and report how it ended."""
        sampler = Ticker("sampler", self.meter.sample, _SAMPLE_S)
        sampler.start()
        error: AttemptError | None = None
        try:
            self._unless_merged()
        except AttemptError as ending:
            error = ending
        except OSError as failure:
            error = StoreError(f"the run store fails: {failure}")
        except Exception as failure:  # noqa: BLE001 - the attempt is to be reported whatever happens
            import traceback

            self.log.say(traceback.format_exc())
            error = AttemptError(f"the harness itself failed: {failure!r}")
        sampler.stop()
        return self._report(error)

    def _unless_merged(self) -> None:
        """Work, unless an earlier attempt finished the task and only its exit code was lost."""
        env = self.env
        if env.role in (ROLE_BASE, ROLE_MERGE) and is_merged(env.task_dir):
            self.log.say("the output is merged already")
            self.merged = True
            return
        evidence.judge(env, evidence.gather(env), self.memory)
        self._beat_and_work()

    def _beat_and_work(self) -> None:
        heartbeat = Heartbeat(self.env.task_dir, self.env.holder, self.meter.journal)
        heartbeat.start()
        try:
            self._prepare_and_work()
        finally:
            heartbeat.stop()

    def _prepare_and_work(self) -> None:
        env = self.env
        told = settings.load(env)
        scratch = _scratch(env)
        try:
            inputs = staging.find_inputs(told, env)
            inputs = staging.stage(told, inputs, scratch, self.stopper, self.log)
            runner = Runner(self.log, self.stopper, self.meter.oom_kills)
            job = Job(env, told, inputs, scratch, runner, self.memory)
            if env.role == ROLE_EXEC:
                from simrun.worker.execute import execute

                execute(job)
            else:
                self._split(job)
        finally:
            self._clear(scratch)

    def _split(self, job: Job) -> None:
        """Work on units, then check and merge, as far as the role goes."""
        table = open_table(job)
        if self.env.role == ROLE_MERGE:
            view = LedgerView(self.env.task_dir, table.count)
        else:
            unit_worker = UnitWorker(job, table)
            self.counts, view = unit_worker.counts, unit_worker.ledger
            unit_worker.work(coordinate=self.env.role == ROLE_BASE)
        if self.env.role not in (ROLE_BASE, ROLE_MERGE):
            return
        from simrun.worker import merge

        merge.check_failures(job, view, table)
        if self.env.role == ROLE_MERGE or self.env.merge:
            merge.merge(job, table, view)
            self.merged = True

    def _clear(self, scratch: Path) -> None:
        try:
            if self.env.scratch is None:
                trees.remove(scratch)
            else:
                _empty(scratch)  # it may be a mount
        except OSError as error:
            self.log.say(f"the scratch directory could not be cleared: {error}")

    def _report(self, error: AttemptError | None) -> int:
        from simrun.worker import report

        code = int(error.code) if error else int(Exit.DONE)
        memory = self.meter.memory_use()
        if error is None and memory["oom_kills"]:
            self.remark = "the kernel killed a process for memory, but the work is complete"
        self.log.say(f"ends with {code}: {error.message if error else self.remark or 'done'}")
        body = report.build(
            self.env,
            error,
            started=self.wall_started,
            measured={"cpu_s": self.meter.cpu_s(), "memory": memory},
            units=self.counts,
            merged=self.merged,
            remark=self.remark,
        )
        try:
            report.write(self.env, body)
        except OSError as failure:
            self.log.say(f"the report could not be written: {failure}")
        return code


def measure(env: Environment) -> tuple[int | None, cgroup.Meter | processes.TreeMeter]:
    """Give the memory of this attempt in bytes, and what measures it: its own cgroup, else its processes."""
    group = cgroup.find()
    if group is not None:
        limit = group.limit()
        if env.memory is None and group.own_limit() is not None:
            return limit, cgroup.Meter(group)
        if env.memory is not None and group.is_of(env.memory):
            return env.memory, cgroup.Meter(group)
    from simrun.worker import processes

    return env.memory, processes.TreeMeter(env.memory)


def _scratch(env: Environment) -> Path:
    """Make the scratch directory, empty of what an earlier attempt on this node left."""
    if env.scratch is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix="simrun-"))
    env.scratch.mkdir(parents=True, exist_ok=True)
    _empty(env.scratch)
    return env.scratch


def _empty(directory: Path) -> None:
    for name in os.listdir(directory):
        trees.remove(directory / name)
