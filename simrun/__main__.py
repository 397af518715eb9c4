"""`python -m simrun`."""

from simrun.cli.main import main

main()
