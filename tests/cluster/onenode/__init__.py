"""A real one-node Kubernetes with Argo and Kueue, for the tests, without a container engine or an
image registry.

The programs are ordinary Go modules, built once and cached by version; the images are packed by
hand. Everything that is not a test's own pod runs as a plain process beside the node, which is what
lets a NoExecute taint empty the node of runs and of nothing else. Standard library only: this runs
before the project's virtual environment exists.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - `python3` may be older than what made .venv
    sys.exit("the test cluster needs Python 3.11 or newer as python3")
