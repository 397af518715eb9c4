"""Two services over one store: one leads, and one that was paused and replaced writes nothing more."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from simrun.backends.kubernetes.lease import lease_name
from tests.cluster.scenarios import GATE, SMALL, Scene
from tests.scenario.campaign import harness_pids, wait_until

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@dataclass(frozen=True)
class Server:
    """A `simrun serve`."""

    process: subprocess.Popen[str]
    url: str

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Ask whether it is ready; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, {}

    def leads(self) -> bool:
        """Whether it is ready, as only the leader is."""
        return self.ready()[0] == 200


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A run that waits at its gate."""
    path = tmp_path / "flow.yaml"
    kind = {"command": GATE, "split": {"workers": 1, "units": {"list": [1]}}, **SMALL}
    path.write_text(yaml.safe_dump({"types": {"wait": kind}, "tasks": {"wait": {"type": "wait"}}}))
    return path


@contextmanager
def serving(scene: Scene, directory: Path, name: str) -> Iterator[Server]:
    """Start a service over the store of a scene; it is killed at the end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--index", str(directory / f"{name}.sqlite"))
    where = ("--store", str(scene.store), *scene.simrun().options)
    log = directory / f"{name}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "simrun", "serve", *where, *options], stderr=out, text=True
        )
    try:
        yield Server(process, f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()
        sys.stderr.write(log.read_text())


def submit(server: Server, flow: Path, run: str) -> None:
    """Hand a run over, and wait until its worker runs."""
    command = [sys.executable, "-m", "simrun", "submit", str(flow), "--server", server.url]
    subprocess.run([*command, "--id", run], check=True, capture_output=True, timeout=60)
    wait_until("the worker to run", lambda: bool(harness_pids(run, "wait-w0")))


def cancel_without_waiting(server: Server, run: str) -> socket.socket:
    """Send the request to cancel a run to a process that can't take it now."""
    port = int(server.url.rpartition(":")[2])
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST /api/v1/runs/{run}/cancel HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    connection.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())
    return connection


def test_of_two_services_one_leads_and_the_one_that_was_paused_and_replaced_writes_nothing_more(
    scene: Scene, kubectl: Kubectl, flow: Path, tmp_path: Path
) -> None:
    run, other = scene.new_run(), scene.new_run()
    try:
        with (
            serving(scene, tmp_path, "first") as first,
            serving(scene, tmp_path, "second") as second,
        ):
            wait_until("a leader", lambda: first.leads() or second.leads())
            leader, follower = (first, second) if first.leads() else (second, first)
            wait_until("the other one's answer", lambda: follower.ready()[0] == 503)
            standing_by = follower.ready()
            submit(leader, flow, run)
            submit(leader, flow, other)
            wait_until("the record", lambda: scene.record(run).times.started is not None)
            wait_until("the record", lambda: scene.record(other).times.started is not None)
            before = scene.record(run)

            os.kill(leader.process.pid, signal.SIGSTOP)
            wait_until("the other one to lead", follower.leads)
            scene.open_gate(run, "wait")
            wait_until("the end of the run", lambda: scene.record(run).state.terminal)
            with closing(cancel_without_waiting(leader, other)):
                os.kill(leader.process.pid, signal.SIGCONT)
                code = leader.process.wait(60)
            after = scene.record(other)
            scene.open_gate(other, "wait")
            wait_until("the end of the other", lambda: scene.record(other).state.terminal)
    finally:
        kubectl("delete", "lease", lease_name(scene.config), "--ignore-not-found")

    assert "stands by" in standing_by[1]["reasons"][0]
    ends = [scene.record(run), scene.record(other)]
    assert [end.state for end in ends] == ["succeeded", "succeeded"]
    assert before.epoch < ends[0].epoch
    assert after.state == "running"
    assert ends[1].epoch == ends[0].epoch
    assert code != 0
