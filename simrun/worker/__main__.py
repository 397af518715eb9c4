"""python -m simrun.worker worker|merge|exec: the same programs where no console scripts are installed."""

from __future__ import annotations

import sys

from simrun.worker import main

_PROGRAMS = {"worker": main.worker, "merge": main.merge, "exec": main.execute}

if __name__ == "__main__":
    program = _PROGRAMS.get(sys.argv[1]) if len(sys.argv) == 2 else None
    if program is None:
        sys.exit("usage: python -m simrun.worker worker|merge|exec")
    program()
