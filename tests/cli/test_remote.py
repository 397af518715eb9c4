"""The commands that look, asked of a server of another machine."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from click.testing import Result

from simrun.base.clock import SystemClock
from simrun.cli import holder
from simrun.model.record import RunState, TaskState
from simrun.model.report import MemoryUse, Observation
from simrun.service.auth import Tokens
from simrun.store.resources import ResourceStore
from tests.cli.store import MIB, Runs, simrun
from tests.client.served import serving


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def url(portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over a store with three runs."""
    root = tmp_path_factory.mktemp("remote")
    filled(Runs(root / "store"))
    with portal.wrap_async_context_manager(serving(root)) as served:
        yield served.url


def filled(runs: Runs) -> None:
    runs.add("01aaa1", created=1_000_000.0)
    failed = {"sweep": TaskState.FAILED, "plot": TaskState.SKIPPED}
    runs.add("01aaa2", created=2_000_000.0, state=RunState.FAILED, tasks=failed, message="no luck")
    runs.add("02bbb1", created=3_000_000.0)
    runs.report("01aaa1", "sweep", "sweep-w0")
    killed = MemoryUse(limit=256 * MIB, peak_unreclaimable=250 * MIB)
    runs.report("01aaa2", "sweep", "sweep-w0", reason="oom", memory=killed, tail=["last words"])
    runs.file("01aaa1", "tasks", "sweep", "out", "table.csv", content=b"1,2\n")
    runs.file("01aaa1", "tasks", "sweep", "logs", "sweep-w0-0.log", content=b"a line\n")
    seen = {"run": "01aaa1", "task": "sweep", "worker": "sweep-w0", "attempt": 0}
    ResourceStore(runs.root).record(
        Observation(
            type="sweep",
            given_memory=256 * MIB,
            peak_memory=85 * MIB,
            cpu_s=15.0,
            wall_s=20.0,
            at=1.0,
            **seen,  # type: ignore[arg-type]  # its fields
        )
    )


def data(result: Result) -> object:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_list_shows_the_newest_and_filters(url: str) -> None:
    listed = simrun("list", "--server", url)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == (
        ["RUN", "02bbb1", "01aaa2", "01aaa1"]
    )

    failed = data(simrun("list", "--server", url, "--state", "failed", "-o", "json"))
    assert [(run["id"], run["tasks"], run["done"]) for run in failed] == [("01aaa2", 2, 0)]  # type: ignore[attr-defined]
    one = simrun("list", "--server", url, "-n", "1")
    assert "the newest run; --limit shows more" in one.stderr
    assert simrun("list", "--server", url, "--group", "none").stderr == "no runs\n"
    assert simrun("list", "--server", url, "--label", "x").exit_code == 2


def test_what_a_store_lists_a_server_lists_likewise(url: str, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "store")
    filled(runs)

    near = data(simrun("list", "--store", runs.root, "-o", "json"))
    far = data(simrun("list", "--server", url, "-o", "json"))

    for run in near:  # type: ignore[attr-defined]
        run["message"] = None  # a line of a list has none
    assert far == near


def test_show_tells_of_a_run_and_how_to_get_its_outputs(url: str) -> None:
    shown = simrun("show", "02", "--server", url)
    assert "state    succeeded" in shown.stdout
    assert f"simrun get 02bbb1 DIR --server {url}" in shown.stdout

    task = simrun("show", "01aaa2", "sweep", "--server", url)
    assert "250 MiB of 256 MiB" in task.stdout
    assert "| last words" in task.stdout
    document = data(simrun("show", "01aaa2", "sweep", "--server", url, "-o", "json"))
    assert document["usage"]["retries"] == 0  # type: ignore[index]
    assert simrun("show", "01aaa2", "swep", "--server", url).exit_code == 6


def test_report_types_why_and_logs_are_told(url: str) -> None:
    report = data(simrun("report", "01aaa1", "--server", url, "-o", "json"))
    assert (report["cpu_s"], report["tasks"][0]["given_cpu_s"]) == (15.0, 20.0)  # type: ignore[index]

    types = simrun("types", "--server", url)
    assert types.stdout.splitlines()[1].split() == (
        ["sweep", "1", "0", "85", "MiB", "of", "256", "MiB", "15s", "20s"]
    )
    assert "run 01aaa2 failed: no luck" in simrun("why", "01aaa2", "--server", url).stdout
    assert simrun("logs", "01aaa1", "sweep", "--server", url).stdout == "a line\n"


def test_the_end_of_a_run_on_another_machine_is_told_with_what_it_used(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "socket", SimpleNamespace(gethostname=lambda: "elsewhere"))

    waited = simrun("wait", "01aaa2", "--server", url)
    data_of_it = json.loads(simrun("wait", "01aaa1", "--server", url, "-o", "json").stdout)

    assert waited.exit_code == 1
    assert "250 MiB of 256 MiB" in waited.stdout
    assert f"simrun get 01aaa2 DIR --server {url} downloads" in waited.stdout
    assert waited.stderr == "error: run 01aaa2 failed: no luck\n"
    assert data_of_it["usage"][0]["cpu_s"] == 15.0


def test_get_downloads(url: str, tmp_path: Path) -> None:
    done = simrun("get", "01aaa1", "sweep", tmp_path, "--server", url)

    assert (done.exit_code, done.stdout) == (0, f"1 file in {tmp_path}\n")
    assert (tmp_path / "table.csv").read_bytes() == b"1,2\n"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("@latest", "02bbb1"),
        ("@latest:orbits", "02bbb1"),
        ("01aaa2", "01aaa2"),
        ("02", "02bbb1"),
    ],
)
def test_a_run_is_found_by_what_people_type(url: str, name: str, found: str) -> None:
    shown = data(simrun("show", name, "--server", url, "-o", "json"))

    assert shown["id"] == found  # type: ignore[index]


def test_what_is_no_one_run_is_told(url: str, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "store")
    filled(runs)
    for where in (["--server", url], ["--store", runs.root]):
        several = simrun("show", "01", *where)
        assert several.exit_code == 2
        assert "01aaa1, 01aaa2" in several.stderr
        for name in ("03", "@latest:other", "@newest", "../x"):
            assert simrun("show", name, *where).exit_code == 6, name


def test_a_store_finds_the_newest_of_a_name(runs: Runs) -> None:
    filled(runs)

    assert "run      02bbb1" in simrun("show", "@latest:orbits", "--store", runs.root).stdout


def test_runs_are_deleted_by_their_ids(portal: BlockingPortal, tmp_path: Path) -> None:
    filled(Runs(tmp_path / "store"))
    with portal.wrap_async_context_manager(serving(tmp_path)) as served:
        refused = simrun("delete", "@latest", "--server", served.url)
        unknown = simrun("delete", "02bbb1", "01x", "--server", served.url)
        done = simrun("delete", "01aaa1", "02", "--server", served.url)
        left = data(simrun("list", "--server", served.url, "-o", "json"))

    assert (refused.exit_code, unknown.exit_code) == (2, 6)
    assert done.stdout == "run 01aaa1 deleted\nrun 02bbb1 deleted\n"
    assert [run["id"] for run in left] == ["01aaa2"]  # type: ignore[attr-defined]


def test_nobody_there_is_exit_code_5(url: str) -> None:
    port = url.rpartition(":")[2]
    for command in (["list"], ["show", "x"], ["logs", "x", "y"], ["get", "x", "d"], ["wait", "x"]):
        result = simrun(*command, "--server", f"http://127.0.0.2:{port}")
        assert result.exit_code == 5, command
        assert "can't connect" in result.stderr


def test_a_token_of_a_context_lets_in_and_without_it_nobody_is(
    portal: BlockingPortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(Runs(tmp_path / "store"))
    made = json.loads(
        simrun("token", "create", "--name", "anna", "--group", "lab", "-o", "json").stdout
    )
    (tmp_path / "tokens.yaml").write_text(json.dumps([made["entry"]]))
    (tmp_path / "mine").write_text(made["token"])
    (tmp_path / "mine").chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tokens = Tokens(tmp_path / "tokens.yaml", SystemClock())
    tokens.load()

    with portal.wrap_async_context_manager(serving(tmp_path, tokens)) as served:
        alone = simrun("list", "--server", served.url)
        simrun(
            "config", "add-context", "lab", "--server", served.url,
            "--token-file", tmp_path / "mine",
        )  # fmt: skip
        seen = simrun("list", "--context", "lab")
        wrong = simrun("list", "--context", "lab", env={"SIMRUN_TOKEN": "x"})

    assert alone.exit_code == 1
    assert "wants a token" in alone.stderr
    assert "01aaa1" in seen.stdout
    assert seen.stderr == ""
    assert "01aaa1" in wrong.stdout  # the context was named, so it is its token that counts


@pytest.fixture
def empty(portal: BlockingPortal, tmp_path: Path) -> Iterator[str]:
    """A server of its own."""
    with portal.wrap_async_context_manager(serving(tmp_path)) as served:
        yield served.url


def test_a_key_makes_two_submissions_one_run_and_the_group_is_that_of_the_context(
    empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    simrun("config", "add-context", "lab", "--server", empty, "--group", "plasma")
    file = tmp_path / "w.yaml"
    file.write_text("tasks: {a: {command: 'true'}}\n")

    first, second = (
        simrun("--context", "lab", "submit", file, "--key", "june", "-o", "json") for _ in range(2)
    )
    own = simrun("--context", "lab", "submit", file, "--group", "mine", "-o", "json")
    file.write_text("run: {group: theirs}\ntasks: {a: {command: 'false'}}\n")
    other = simrun("--context", "lab", "submit", file, "-o", "json")

    assert first.exit_code == 0, first.stderr
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert one["id"] == two["id"]
    assert one["group"] == "plasma"
    assert json.loads(own.stdout)["group"] == "mine"
    assert json.loads(other.stdout)["group"] == "theirs"
    file.write_text("tasks: {a: {command: 'false'}}\n")
    clash = simrun("--context", "lab", "submit", file, "--key", "june")
    assert clash.exit_code == 1
    both = simrun("submit", file, "--key", "june", "--id", "x", "--server", empty)
    assert both.exit_code == 2


def test_run_is_handed_over_to_the_server_of_a_context(
    portal: BlockingPortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "w.yaml"
    file.write_text("tasks: {only: {command: 'true'}}\n")
    with portal.wrap_async_context_manager(serving(tmp_path)) as served:
        simrun("config", "add-context", "lab", "--server", served.url)

        async def succeed() -> None:
            while not served.session.store.exists("mine"):
                await asyncio.sleep(0.01)
            await served.succeed("mine")

        ending = portal.start_task_soon(succeed)
        done = simrun("run", file, "--context", "lab", "--id", "mine")
        ending.result()
        wrong = simrun("--context", "lab", "run", file, "--cpus", "2")

    assert done.exit_code == 0, done.stderr
    assert "run mine succeeded" in done.stdout
    assert wrong.exit_code == 2
    assert "the matter of the context's server" in wrong.stderr


def test_serve_does_not_take_the_server_of_a_context_for_a_store(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    simrun("config", "add-context", "lab", "--server", url)

    result = simrun("serve", "--context", "lab")

    assert result.exit_code == 2
    assert "context 'lab' names a server" in result.stderr


def test_doctor_asks_a_server_how_it_is(url: str) -> None:
    result = simrun("doctor", "--server", url)

    assert result.exit_code == 0
    assert f"ok       server    {url} is simrun" in result.stdout
    assert "ready" in result.stdout


# --- completion --------------------------------------------------------------------------------------------------------


def completed(words: str, **environ: str) -> list[str]:
    """What bash is offered for the last word."""
    parts = ["simrun", *words.split(" ")]
    given = {
        "_SIMRUN_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(parts),
        "COMP_CWORD": str(len(parts) - 1),
        **environ,
    }
    result = simrun(prog_name="simrun", env=given)
    return [line.partition(",")[2] for line in result.stdout.split("\n") if line]


def test_commands_runs_and_contexts_are_completed(
    url: str, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(runs)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    simrun("config", "add-context", "lab", "--server", url)

    assert completed("wat") == ["watch"]
    assert completed(f"show --store {runs.root} 01") == ["01aaa2", "01aaa1"]
    assert completed(f"show --server {url} 01") == ["01aaa2", "01aaa1"]
    assert completed("why --context lab 0") == ["02bbb1", "01aaa2", "01aaa1"]
    assert completed("logs @", SIMRUN_STORE=str(runs.root)) == ["@latest"]
    assert completed("list --context l") == ["lab"]
    assert completed("config use-context ") == ["lab"]


def test_where_nothing_can_be_found_nothing_is_offered_and_nothing_is_said(tmp_path: Path) -> None:
    assert completed("show 0", SIMRUN_STORE=str(tmp_path / "nix")) == []
    assert completed("show --server http://127.0.0.2:1 0") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_for_a_shell_is_printed(shell: str) -> None:
    result = simrun("completion", shell)

    assert result.exit_code == 0
    assert re.search(rf"_SIMRUN_COMPLETE={shell}_complete", result.stdout)
