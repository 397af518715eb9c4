"""Running commands, waiting for things, and keeping two scripts from working on one cluster at
once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from onenode import layout


class ClusterError(Exception):
    """The cluster cannot be built or started; the message names the remedy."""


def say(text: str) -> None:
    """Tell progress on stderr; stdout carries results only."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Tell that a step begins, and how many seconds it took once it has ended well."""
    say(f"{text} …")
    begun = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - begun:.1f} s")


def run(
    *argv: str | Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
) -> str:
    """Run a command to its end and return its standard output.

    `env` adds to the environment, `text` is the standard input. Raises ClusterError with the
    command and the end of its standard error when it fails or cannot be started.
    """
    try:
        done = subprocess.run(
            [str(a) for a in argv],
            env={**os.environ, **(env or {})},
            cwd=cwd,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{argv[0]} is not on this machine") from error
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise ClusterError(f"{' '.join(map(str, argv))} ended with {done.returncode}:\n{tail}")
    return done.stdout


def attempt(*argv: str | Path) -> bool:
    """Run a command whose failure is an answer; return whether it succeeded."""
    try:
        run(*argv)
    except ClusterError:
        return False
    return True


def kubectl(*argv: str | Path, text: str | None = None) -> str:
    """Run kubectl against this cluster as its administrator."""
    return run(layout.kubectl(), "--kubeconfig", layout.KUBECONFIG, *argv, text=text)


def apply(*objects: dict[str, Any]) -> None:
    """Create or update objects of the cluster."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl("apply", "-f", "-", text=json.dumps(document))


def wait_for(what: str, ready: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until `ready`; raise ClusterError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{what} was not ready after {seconds:g} s; logs are in {layout.LOGS}"
            )
        time.sleep(0.1)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.touch(mode=mode)
    part.write_text(text)
    part.chmod(mode)
    part.replace(path)


def mounts_below(path: Path) -> list[Path]:
    """List the mount points at or below `path`, deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    # A mount point stands in the fifth field, with blanks and backslashes as octal escapes
    points = {Path(line.split()[4].encode().decode("unicode_escape")) for line in lines}
    return sorted((p for p in points if p.is_relative_to(path)), key=lambda p: -len(p.parts))


def remove(*paths: Path) -> None:
    """Delete folders, refusing while something is mounted in one: that would delete the other
    side's files.
    """
    for path in paths:
        mounted = mounts_below(path)
        if mounted:
            raise ClusterError(f"{mounted[0]} is still mounted: unmount it, then run this again")
        if path.exists():
            shutil.rmtree(path)


def require_root() -> None:
    """Raise ClusterError unless this is root: a node mounts, makes networks and control groups."""
    if os.geteuid() != 0:
        raise ClusterError(
            "the test cluster needs root: run this with sudo -E, or set SIMRUN_TEST_KUBECONFIG instead"
        )


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the cluster's lock, so that two builds or starts follow each other. The kernel drops it
    with the process.
    """
    layout.ROOT.mkdir(parents=True, exist_ok=True)
    with (layout.ROOT / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another script that works on {layout.ROOT}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def script(main: Callable[[Sequence[str]], int]) -> None:
    """Run `main` with the command line's arguments; errors become one message and exit code 1."""
    # A root shell that a user opened may lack the folders of ip and nft
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        layout.check_root()
        sys.exit(main(sys.argv[1:]))
    except (ClusterError, ValueError) as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted; `tests/cluster/down` clears what was started")
        sys.exit(130)
