"""A served store: real processes, as people have them. C61 of the trial cases, and the contract's "One store, several processes"."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from simrun.cli.serve import default_index
from tests.cli.served import HELD, QUICK, Served, Started, call, let_go, log_of
from tests.cli.store import simrun


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests that leave it as it was."""
    with Served(tmp_path_factory.mktemp("served") / "store") as server:
        yield server


@pytest.fixture(scope="module")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("flows")
    (directory / "quick.yaml").write_text(QUICK)
    (directory / "held.yaml").write_text(HELD)
    (directory / "tool.yaml").write_text(
        "tasks: {a: {command: 'cp {inputs.tool} .; ./tool > {outputs.said}', inputs: {tool: ./tool},"
        " outputs: {said: said}, resources: {memory: 64Mi}}}"
    )
    (directory / "tool").write_text("#!/bin/sh\necho done by hand\n")
    (directory / "tool").chmod(0o755)
    return directory


def state(store: Path, run: str) -> str:
    return str(json.loads((store / "runs" / run / "run.json").read_text())["state"])


# --- one server, many commands -----------------------------------------------------------------------------------------


def test_submit_prints_the_id_alone_and_wait_ends_with_the_run(served: Served, flows: Path) -> None:
    submitted = served.simrun("submit", flows / "quick.yaml", "--name", "n", "--group", "g")

    assert submitted.exit_code == 0, submitted.stderr
    run = submitted.stdout.strip()
    assert submitted.stdout == f"{run}\n"
    assert f"simrun watch {run} --store {served.store}" in submitted.stderr
    waited = served.simrun("wait", run, "-o", "json")
    assert waited.exit_code == 0, waited.stderr
    data = json.loads(waited.stdout)
    assert (data["state"], data["name"], data["group"]) == ("succeeded", "n", "g")
    assert data["fingerprint"]
    assert Path(data["outputs"][0]["path"]).read_text() == "hello\n"
    assert waited.stderr == ""


def test_a_run_is_submitted_watched_left_cancelled_and_done_again(
    served: Served, flows: Path
) -> None:
    submitted = served.simrun("submit", flows / "held.yaml", "--id", "held-1", "-o", "json")
    assert json.loads(submitted.stdout)["id"] == "held-1"
    served.log("held-1")

    with Started("watch", "held", "--store", served.store) as watch:  # a beginning of the id
        watch.reads("held running")
        code, _, stderr = watch.ends(signal.SIGINT)
    assert code == 130
    assert "left run held-1, which goes on" in stderr
    assert f"`simrun cancel held-1 --store {served.store}` ends it" in stderr
    assert state(served.store, "held-1") == "running"

    late = served.simrun("wait", "held-1", "--timeout", "0.1")
    assert (late.exit_code, late.stdout) == (4, "")
    assert "not ended within 0.1 s" in late.stderr

    cancelled = served.simrun("cancel", "@latest")
    assert (cancelled.exit_code, cancelled.stdout) == (0, "run held-1 cancelled\n")
    assert served.simrun("wait", "held-1").exit_code == 3

    with Started("retry", "held-1", "--wait", "--store", served.store) as retry:
        retry.reads("held running")
        served.let_go("held-1")
        code, stdout, _ = retry.ends()
    assert code == 0
    assert "run held-1 succeeded" in stdout
    over = served.simrun("cancel", "held-1")
    assert over.exit_code == 1
    assert "has ended before: it is succeeded" in over.stderr


def test_logs_are_followed_while_they_grow_from_the_store_and_from_the_server(
    served: Served, flows: Path
) -> None:
    served.simrun("submit", flows / "held.yaml", "--id", "logged")
    served.log("logged")

    with (
        Started("logs", "logged", "held", "-f", "--store", served.store) as near,
        Started("logs", "logged", "held/held", "-f", "--server", served.url) as far,
    ):
        near.prints("started")
        far.prints("started")
        for where in (["--store", served.store], ["--server", served.url]):
            with Started("logs", "logged", "held", "-f", *where) as left:
                left.prints("started")
                code, _, stderr = left.ends(signal.SIGINT)
            assert code == 130
            assert (
                f"left the log of run logged, which goes on; `simrun cancel logged {where[0]}"
                in stderr
            )
        served.let_go("logged", 3)
        assert near.ends() == (0, "over\n", "")
        assert far.ends() == (0, "over\n", "")

    assert served.simrun("wait", "logged").exit_code == 1
    tail = simrun("logs", "logged", "held", "--tail", "1", env={"SIMRUN_SERVER": served.url})
    assert tail.stdout == "over\n"


def test_a_run_is_handed_over_with_its_files_and_followed(served: Served, flows: Path) -> None:
    done = served.simrun("run", flows / "tool.yaml", "--id", "handed")

    assert done.exit_code == 0, done.stderr
    assert f"the store is served at {served.url}; the run is handed over" in done.stderr
    assert "run handed succeeded" in done.stdout
    path = re.search(r"a\.said +(\S+)", done.stdout)
    assert path is not None
    assert Path(path[1]).read_text() == "done by hand\n"


def test_ctrl_c_leaves_a_run_that_was_handed_over(served: Served, flows: Path) -> None:
    with Started(
        "run", flows / "held.yaml", "--id", "left-there", "--store", served.store
    ) as attached:
        attached.reads("held running")
        code, _, stderr = attached.ends(signal.SIGINT)

    assert code == 130
    assert "`simrun cancel left-there" in stderr
    served.log("left-there")
    served.let_go("left-there", 5)
    waited = served.simrun("wait", "left-there")
    assert waited.exit_code == 1
    assert "error: run left-there failed" in waited.stderr


def test_a_second_serve_stops_and_names_the_first_whatever_its_port(served: Served) -> None:
    for port in (str(served.port), "0"):
        second = call("serve", "--port", port, "--store", served.store)

        assert second.returncode == 1
        assert (
            f"is held by `simrun serve` at {served.url}, process {served.pid} on" in second.stderr
        )


def test_a_port_that_another_program_has_is_told_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        done = call("serve", "--store", tmp_path / "store", "--port", str(port))

    assert done.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.parametrize("run", ["nix", "../x", "%2e%2e", "Held"])
def test_a_run_that_is_not_there_is_exit_code_6(served: Served, run: str) -> None:
    done = served.simrun("watch", run)

    assert (done.exit_code, done.stdout) == (6, "")
    assert f"error: no run {run!r} on {served.url}" in done.stderr


def test_a_beginning_that_several_ids_have_is_told_with_them(served: Served, flows: Path) -> None:
    for run in ("same-1", "same-2"):
        served.simrun("submit", flows / "quick.yaml", "--id", run)

    done = served.simrun("watch", "same-")

    assert done.exit_code == 2
    assert "several runs begin so (got 'same-')\n  same-1, same-2" in done.stderr
    assert served.simrun("wait", "same-1").exit_code == 0


def test_which_server_is_meant_is_said_by_flag_before_environment(
    served: Served, flows: Path, tmp_path: Path
) -> None:
    nowhere = {"SIMRUN_SERVER": "http://127.0.0.1:1"}
    submit = ("submit", flows / "quick.yaml", "--id", "flagged")

    away = simrun(*submit, env=nowhere)
    assert away.exit_code == 5
    assert "error: http://127.0.0.1:1: can't connect: Connection refused" in away.stderr
    assert simrun(*submit, "--store", served.store, env=nowhere).exit_code == 0
    by_url = ("wait", "flagged", "--server", served.url, "--store", tmp_path)
    assert simrun(*by_url, env=nowhere).exit_code == 0
    odd = simrun("wait", "flagged", "--server", "localhost:8642")
    assert odd.exit_code == 2
    assert "error: --server: must be an address" in odd.stderr


def test_a_submission_that_the_server_refuses_is_exit_code_2_or_1(
    served: Served, flows: Path, tmp_path: Path
) -> None:
    served.simrun("submit", flows / "quick.yaml", "--id", "taken")
    other = tmp_path / "other.yaml"
    other.write_text(QUICK.replace("hello", "good bye"))

    taken = served.simrun("submit", other, "--id", "taken")
    again = served.simrun("submit", flows / "quick.yaml", "--id", "taken", "--wait", "-q")

    assert taken.exit_code == 1
    assert "error: run taken exists with another submission" in taken.stderr
    assert again.exit_code == 0
    assert "run taken succeeded" in again.stdout


def test_the_index_is_in_the_store_or_on_a_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_index(tmp_path) == tmp_path / "index.sqlite"
    monkeypatch.setattr("simrun.store.mounts.network_file_system", lambda _path: "nfs4")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = default_index(tmp_path), default_index(tmp_path / "other")
    assert first.parent == second.parent == tmp_path / "cache" / "simrun"
    assert first != second


def test_an_index_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    done = call("serve", "--store", tmp_path / "store", "--port", "0", "--index", file / "index")

    assert done.returncode == 1
    assert f"error: {file}/index: the index can't be opened" in done.stderr
    assert "--index FILE" in done.stderr


# --- processes that meet, end, and die -----------------------------------------------------------------------------------


def test_workers_outlive_a_killed_server_and_the_next_one_adopts_them(
    tmp_path: Path, flows: Path
) -> None:
    store = tmp_path / "store"
    with Served(store, "--log-format", "json") as server:
        server.simrun("submit", flows / "held.yaml", "--id", "adopted")
        pid = int(server.log("adopted").split()[1])
        with Started("watch", "adopted", "--store", store, "-o", "json") as watch:
            watch.reads("held running")

            server.kill()
            os.kill(pid, 0)  # goes on
            nobody = server.simrun("cancel", "adopted")
            assert nobody.exit_code == 5
            assert f"nobody serves the store {store}; start `simrun serve" in nobody.stderr
            server.start()
            server.let_go("adopted")
            code, stdout, _ = watch.ends()

        assert code == 0
        data = json.loads(stdout)
        assert [use["attempts"] for use in data["usage"]] == [1]
        assert server.log("adopted") == f"started {pid}\nover\n"
        code, stdout, stderr = server.running.ends(signal.SIGTERM)
    assert (code, stdout) == (0, "")
    last = json.loads(stderr.splitlines()[-1])
    assert (last["level"], last["logger"]) == ("info", "simrun.service.main")
    assert "workers go on" in last["message"]


def test_beside_a_foreground_run_another_waits_submit_is_refused_and_serve_stops(
    tmp_path: Path, flows: Path
) -> None:
    store = tmp_path / "store"
    with Started("run", flows / "held.yaml", "--id", "front", "--store", store) as front:
        log_of(store, "front")
        holder = f"`simrun run`, process {front.process.pid} on"
        with (
            Started("run", flows / "quick.yaml", "--id", "second", "--store", store) as second,
            Started("run", flows / "quick.yaml", "--id", "third", "--store", store) as third,
        ):
            assert f"waits for the end of {holder}" in second.reads("waits")
            third.reads("waits")

            submitted = simrun("submit", flows / "quick.yaml", "--store", store)
            assert (submitted.exit_code, submitted.stdout) == (1, "")
            assert f"is held by {holder}" in submitted.stderr
            assert "use `simrun run`, which waits for its turn" in submitted.stderr
            cancel = simrun("cancel", "front", "--store", store)
            assert cancel.exit_code == 1
            assert f"`kill -INT {front.process.pid}`" in cancel.stderr
            serve = call("serve", "--store", store, "--port", "0")
            assert serve.returncode == 1
            assert f"is held by {holder}" in serve.stderr

            code, _, stderr = third.ends(signal.SIGINT)
            assert code == 3
            assert "cancelled; nothing was submitted" in stderr
            assert not (store / "runs" / "third").exists()

            let_go(store, "front")
            assert front.ends()[0] == 0
            code, _, stderr = second.ends()
            assert code == 0, stderr
    assert state(store, "second") == "succeeded"


def test_a_foreground_run_goes_on_with_what_a_server_left_and_leaves_it_alive(
    tmp_path: Path, flows: Path
) -> None:
    store = tmp_path / "store"
    with Served(store) as server:
        server.simrun("submit", flows / "held.yaml", "--id", "kept")
        pid = int(server.log("kept").split()[1])
        assert server.running.ends(signal.SIGTERM)[0] == 0

        done = simrun("run", flows / "quick.yaml", "--store", store)

        assert done.exit_code == 0, done.stderr
        os.kill(pid, 0)
        assert state(store, "kept") == "running"
        server.start()
        server.let_go("kept")
        assert server.simrun("wait", "kept").exit_code == 0
        assert server.log("kept") == f"started {pid}\nover\n"


def test_nohup_is_respected(tmp_path: Path, flows: Path) -> None:
    store = tmp_path / "store"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does, for what is started now
    try:
        attached = Started("run", flows / "held.yaml", "--id", "kept", "--store", store)
    finally:
        signal.signal(signal.SIGHUP, before)
    with attached:
        log_of(store, "kept")
        attached.process.send_signal(signal.SIGHUP)
        let_go(store, "kept")

        assert attached.ends()[0] == 0


def test_what_a_dead_server_left_in_the_lock_is_not_believed(
    tmp_path: Path, served: Served, flows: Path
) -> None:
    """Another server has the address by now: its store is not the one that was meant."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "simrun.lock").write_bytes((served.store / "simrun.lock").read_bytes())

    done = simrun("submit", flows / "quick.yaml", "--store", store)

    assert done.exit_code == 5
    assert f"nobody serves the store {store}" in done.stderr
