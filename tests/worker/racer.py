"""A worker without simulations: claims, writes a record, commits; kills itself with -9 where its dice say so.

Run by test_ledger_processes.py as `racer.py TASK_DIR WORKER ATTEMPT COUNT DEATHS LOG`; DEATHS is the chance of each place to die.
"""

import os
import random
import signal
import sys
from pathlib import Path

from simrun.worker import files
from simrun.worker.ledger import Holder, Ledger
from simrun.worker.protocol import TaskDir


def main():
    root, worker, attempt, count, deaths, log = sys.argv[1:]
    task_dir = TaskDir(Path(root))
    holder = Holder(worker, int(attempt), f"{int(attempt):08}", "node")
    dice = random.Random(holder.name)

    def perhaps_die():
        if dice.random() < float(deaths):
            os.kill(os.getpid(), signal.SIGKILL)

    ledger = Ledger(task_dir, holder, int(count), max_evictions=1000)
    ledger.take_over_own()
    with open(log, "a", buffering=1) as commits:
        while (claim := ledger.claim_next()) is not None:
            perhaps_die()
            work = task_dir.work / claim.name
            files.make_directory(work)
            record = work / "record.json"
            files.write_synced(
                record, files.encode({"unit": claim.unit, "by": holder.name, "name": claim.name})
            )
            perhaps_die()
            if ledger.commit(claim, record):
                commits.write(f"{claim.name}\n")
            perhaps_die()


if __name__ == "__main__":
    main()
