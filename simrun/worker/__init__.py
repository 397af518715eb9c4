"""The harness that runs in the pods of a run. Standard library only, so that any image with Python can carry it."""
