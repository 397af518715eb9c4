import json
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simrun.worker.ledger import Counts, Holder, Ledger, LedgerView
from simrun.worker.protocol import TaskDir

COUNT = 300
RACER = Path(__file__).with_name("racer.py")


def run(task_dir, worker, attempt, deaths, log):
    arguments = [task_dir.root, worker, attempt, COUNT, deaths, log]
    return subprocess.run([sys.executable, RACER, *map(str, arguments)], check=False).returncode


def test_racing_processes_that_are_killed_compute_each_unit_once(tmp_path):
    task_dir = TaskDir(tmp_path / "task")
    log = tmp_path / "commits"
    coordinator = Ledger(task_dir, Holder("watch", 0, "00000000"), COUNT)

    def life(worker):
        """Start a worker again and again until it ends by itself; one never returns, and its claims are freed."""
        killed = 0
        while code := run(task_dir, worker, killed, 0.02 if killed < 8 else 0.0, log):
            assert code == -signal.SIGKILL
            killed += 1
            if worker == "t-w3":
                coordinator.release_all_of(Holder(worker, killed - 1, f"{killed - 1:08}").name)
                return killed
        return killed

    with ThreadPoolExecutor(4) as pool:
        killed = list(pool.map(life, ["t-w0", "t-w1", "t-w2", "t-w3"]))
    # Whoever is left takes what a last release or takeover left over
    assert run(task_dir, "t-w0", 100, 0.0, log) == 0

    view = LedgerView(task_dir, COUNT)
    assert view.state() == Counts(done=COUNT, failed=0, claimed=0, free=0)
    records = {unit: json.loads((task_dir.done / str(unit)).read_text()) for unit in range(COUNT)}
    assert all(records[unit]["unit"] == unit for unit in range(COUNT))
    told = Counter(name.partition(".")[0] for name in log.read_text().split())
    assert max(told.values()) == 1
    assert {
        records[int(name.partition(".")[0])]["name"] for name in log.read_text().split()
    } == set(log.read_text().split())
    assert sum(killed) >= 4
    assert len({record["by"] for record in records.values()}) > 4
