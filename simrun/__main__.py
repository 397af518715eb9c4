"""`python -m simrun`."""

from __future__ import annotations

from simrun.cli.main import main

if __name__ == "__main__":
    main()
