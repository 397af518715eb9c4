"""What happens between workers: takeovers, late commits, rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from simrun.worker import environment, settings
from simrun.worker.child import Runner
from simrun.worker.claims import Holder
from simrun.worker.job import Job
from simrun.worker.ledger import Ledger
from simrun.worker.log import Log
from simrun.worker.stopping import Stopper
from simrun.worker.work import Takeover
from tests.worker.campaign import TASK, Campaign

OTHER = Holder(f"{TASK}-w1", 0, "fedcba9876", "there")
OWN = Holder(f"{TASK}-w0", 0, "0123456789", "here")


@pytest.fixture
def job(campaign: Campaign) -> Iterator[Job]:
    """The coordinator's job, with a staleness that nobody can keep."""
    campaign.split([{"x": 1}, {"x": 2}], command=["true"])
    env = environment.read(
        {
            "SIMRUN_RUN": "run",
            "SIMRUN_TASK": TASK,
            "SIMRUN_WORKER": OWN.worker,
            "SIMRUN_ATTEMPT": "0",
            "SIMRUN_TASK_DIR": str(campaign.dir.root),
            "SIMRUN_POD_UID": OWN.pod_uid,
            "SIMRUN_STALE_S": "0.000000001",
        },
        "worker",
    )
    stopper = Stopper(grace_s=1)
    log = Log(campaign.dir.logs / "log")
    yield Job(env, settings.load(env), {}, campaign.root, Runner(log, stopper, lambda: 0))
    log.close()
    stopper.bell.close()


def test_units_of_a_silent_worker_become_free_but_not_the_coordinator_s_own(
    campaign: Campaign, job: Job
) -> None:
    other, own = Ledger(campaign.dir, OTHER, 2), Ledger(campaign.dir, OWN, 2)
    assert other.claim_next()
    assert own.claim_next()
    takeover = Takeover(job, own, OWN)
    takeover()  # sees the heartbeats for the first time: nobody is judged by one look
    assert own.state().claimed == 2
    takeover()
    assert (own.state().claimed, own.state().free) == (1, 1)
    log = (campaign.dir.logs / "log").read_text()
    assert f"freed 1 units of {OTHER.name}, which shows no sign of life" in log


def test_units_of_a_dead_worker_become_free_at_the_first_look(campaign: Campaign, job: Job) -> None:
    other, own = Ledger(campaign.dir, OTHER, 2), Ledger(campaign.dir, OWN, 2)
    assert other.claim_next()
    campaign.dir.dead.mkdir()
    (campaign.dir.dead / OTHER.name).touch()
    Takeover(job, own, OWN)()
    assert own.state().claimed == 0


def test_a_unit_that_another_worker_committed_first_is_lost_and_its_output_removed(
    campaign: Campaign,
) -> None:
    record = {"schema": 1, "unit": 0, "generation": 7, "key": "x=1", "state": "done", "result": {}}
    theirs = campaign.root / "theirs.json"
    command = ["/bin/sh", "-c", "echo mine > f; ln {params.theirs} {params.done}/0"]
    campaign.split(
        [{"x": 1}], command=command, params={"theirs": str(theirs), "done": str(campaign.dir.done)}
    )
    theirs.write_text(json.dumps(record))
    ended = campaign.run()
    assert (ended.code, ended.report.units.lost, ended.report.units.done) == (0, 1, 0)
    assert campaign.done()[0]["generation"] == 7
    assert not (campaign.dir.work / "0.1").exists()


def test_failed_units_that_were_opened_again_are_computed_in_the_next_round(
    campaign: Campaign,
) -> None:
    command = ["/bin/sh", "-c", "test $SIMRUN_ATTEMPT_BASE = 3 || test {params.x} = 1"]
    campaign.split([{"x": 1}, {"x": 2}], command=command)
    assert campaign.run(ATTEMPT_BASE="0").code == 3
    service = Ledger(campaign.dir, Holder("service", 0, "service"), 2)
    assert service.reopen_failed() == [1]
    ended = campaign.run(ATTEMPT_BASE="3")
    assert (ended.code, ended.report.units.done, ended.report.attempt) == (0, 1, 3)


def test_the_record_of_a_failed_unit_says_what_it_printed(campaign: Campaign) -> None:
    campaign.split([{"x": 1}], command=["/bin/sh", "-c", "echo diverged; exit 3"], unit_tries=1)
    campaign.run(NODE="node-7")
    record = campaign.failed()[0]
    assert record["tail"] == ["diverged"]
    assert (record["exit_code"], record["node"], record["reason"]) == (3, "node-7", "exit")


def test_a_program_may_leave_anything_under_the_name_of_the_record(campaign: Campaign) -> None:
    script = "mkdir -p .simrun-record.json/x; ln -s /etc/passwd .simrun-record.json/y"
    campaign.split([{"x": 1}], command=["/bin/sh", "-c", script])
    assert campaign.run().code == 0
    assert campaign.done()[0]["state"] == "done"
    assert Path("/etc/passwd").exists()
