"""Kills for memory: real ones, in a cgroup with a limit, and what the attempts after them do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from simrun.worker import heartbeat
from tests.worker.campaign import TASK, Campaign

MIB = 2**20
LIMIT, RETRY = 64 * MIB, 256 * MIB
GIVEN = {"MEMORY_PER_WORKER_GB": str(LIMIT / 2**30), "RETRY_MEMORY_GB": str(RETRY / 2**30)}
RETRY_GIVEN = {**GIVEN, "MEMORY_PER_WORKER_GB": str(RETRY / 2**30)}

HOG = """
import time
def compute(unit):
    if unit.params["mib"]:
        kept = []
        for _ in range(unit.params["mib"]):
            kept.append(bytearray(b"x" * 2**20))
        time.sleep(0.5)  # for as long as a sampler takes to see it
    return {"mib": unit.params["mib"]}
"""


def test_a_kill_for_memory_ends_with_137_and_the_next_attempt_has_the_memory(
    campaign: Campaign, limited_memory: Callable[[int], Path]
) -> None:
    campaign.split([{"mib": 0}, {"mib": 128}, {"mib": 0}], HOG)
    killed = campaign.run(cgroup=limited_memory(LIMIT), **GIVEN)
    assert (killed.code, killed.report.reason) == (137, "oom")
    assert killed.report.memory.oom_kills >= 1
    assert killed.report.memory.limit == LIMIT
    assert 1 not in campaign.done()
    assert list(campaign.dir.faults.iterdir()) == []  # the memory was at fault, not the unit
    assert not (campaign.dir.claims / "1.2").exists()  # kept for the attempt with the retry memory

    asked = campaign.run(attempt=1, cgroup=limited_memory(LIMIT), **GIVEN)
    assert (asked.code, asked.report.reason) == (137, "asked")
    assert asked.report.memory.oom_kills == 0
    assert "256 MiB" in asked.report.message

    ended = campaign.run(attempt=2, cgroup=limited_memory(RETRY), **RETRY_GIVEN)
    assert ended.code == 0
    assert campaign.done()[1]["result"] == {"mib": 128}
    peak = ended.report.memory.peak_unreclaimable
    assert peak is not None
    assert LIMIT < peak < RETRY


def test_a_kill_is_seen_whatever_code_the_parent_of_the_killed_makes_of_it(
    campaign: Campaign, limited_memory: Callable[[int], Path]
) -> None:
    hog = "python3 -c \"x = [bytearray(b'x' * 2**20) for _ in range(128)]\""
    campaign.make(command=["/bin/sh", "-c", f"{hog} || exit 5"])
    ended = campaign.run(TASK, program="exec", cgroup=limited_memory(LIMIT), **GIVEN)
    assert (ended.code, ended.report.reason) == (137, "oom")


def test_a_simulation_that_gets_over_a_kill_is_done_with_a_remark(
    campaign: Campaign, limited_memory: Callable[[int], Path]
) -> None:
    score = "/proc/$$/oom_score_adj"
    # The kernel may take the small shell too while the big process is on its way out, unless it is spared
    spare = f"until grep -q 1000 {score}; do :; done; echo 0 > {score}"
    hog = "python3 -c \"x = [bytearray(b'x' * 2**20) for _ in range(128)]\""
    script = f"{spare}; (echo 1000 > /proc/self/oom_score_adj; exec {hog}); exit 0"
    campaign.make(command=["/bin/sh", "-c", script])
    ended = campaign.run(TASK, program="exec", cgroup=limited_memory(LIMIT), **GIVEN)
    assert (ended.code, ended.report.reason) == (0, "completed")
    assert "killed a process for memory" in ended.report.message


def test_a_merge_killed_for_memory_ends_with_137_and_is_done_with_more(
    campaign: Campaign, limited_memory: Callable[[int], Path]
) -> None:
    merge = "def merge(merge):\n    return {'n': len(bytearray(merge.params['mib'] * 2**20))}\n"
    plugin = "code/plugin.py"
    campaign.split(
        [{"x": 1}],
        "def compute(unit): pass\n" + merge,
        params={"mib": 128},
        merge={"plugin": {"file": plugin, "function": "merge"}},
    )
    assert campaign.run(cgroup=limited_memory(LIMIT), **GIVEN).code == 137
    ended = campaign.run(attempt=1, cgroup=limited_memory(RETRY), **RETRY_GIVEN)
    assert (ended.code, ended.report.merged) == (0, True)


def test_a_second_kill_with_the_retry_memory_stops_the_next_attempt_before_it_computes(
    campaign: Campaign, limited_memory: Callable[[int], Path]
) -> None:
    campaign.split([{"mib": 512}], HOG)
    assert campaign.run(cgroup=limited_memory(LIMIT), **GIVEN).code == 137
    assert campaign.run(attempt=1, cgroup=limited_memory(RETRY), **RETRY_GIVEN).code == 137
    ended = campaign.run(attempt=2, **RETRY_GIVEN)
    assert (ended.code, ended.report.reason) == (3, "error")
    assert "retry memory of 256 MiB" in ended.report.message


def test_without_a_cgroup_of_its_own_an_attempt_counts_no_kills(campaign: Campaign) -> None:
    campaign.make(command=["/bin/sh", "-c", "kill -KILL $$"])
    ended = campaign.run(TASK, program="exec", **GIVEN)
    assert (ended.code, ended.report.memory.oom_kills) == (3, 0)
    assert ended.report.message == "killed by SIGKILL"
    assert ended.report.memory.limit == LIMIT


def test_a_rise_in_the_last_heartbeat_makes_the_next_attempt_ask(campaign: Campaign) -> None:
    campaign.make(command=["true"])
    journal = heartbeat.Journal(seq=3, unix=1.0, boottime=1.0, oom_kills=1)
    campaign.dir.heartbeats.mkdir()
    (campaign.dir.heartbeats / f"{TASK}-0.01234567").write_bytes(journal.encode())
    asked = campaign.run(TASK, attempt=1, program="exec", **GIVEN)
    assert (asked.code, asked.report.reason) == (137, "asked")
    assert campaign.run(TASK, attempt=2, program="exec", **RETRY_GIVEN).code == 0


def test_what_the_service_stored_makes_the_next_attempt_ask(campaign: Campaign) -> None:
    campaign.make(command=["true"])
    campaign.dir.memory.mkdir()
    (campaign.dir.memory / f"{TASK}-0").write_bytes(b"")
    assert campaign.run(TASK, attempt=1, program="exec", **GIVEN).report.reason == "asked"


def test_evidence_of_another_round_counts_no_more(campaign: Campaign) -> None:
    campaign.make(command=["true"])
    campaign.dir.memory.mkdir()
    (campaign.dir.memory / f"{TASK}-0").write_text(json.dumps({"memory": LIMIT}))
    assert campaign.run(TASK, attempt=0, program="exec", ATTEMPT_BASE="1", **GIVEN).code == 0
