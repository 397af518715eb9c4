"""The command line as a whole: quick help, exit codes, errors for people and for programs, manners in pipes (C61)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from simrun.base.errors import BackendUnavailable, Conflict, InvalidInput, NotFound, Problem
from simrun.cli import failures
from simrun.cli.main import COMMANDS, cli
from tests.cli.store import Runs, simrun

HEAVY = (
    "pydantic",
    "pydantic_core",
    "aiohttp",
    "rich",
    "yaml",
    "asyncio",
    "kubernetes_asyncio",
    "importlib.metadata",
)


def test_help_imports_nothing_heavy() -> None:
    """150 ms are asked for; what would cost more than that is what must not be imported."""
    code = (
        "import sys\n"
        "from simrun.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"
    assert "validate" in done.stdout


def test_help_of_a_command_imports_no_models() -> None:
    """All in one process, so the first that is named is the one to look at."""
    code = (
        "import sys\n"
        "from simrun.cli.main import COMMANDS, cli\n"
        "for name in COMMANDS:\n"
        "    cli([name, '--help'], standalone_mode=False)\n"
        "    if found := [m for m in ('pydantic', 'rich', 'aiohttp') if m in sys.modules]:\n"
        "        print(name, found, file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.splitlines()[:1] == []


def test_a_word_is_completed_without_importing_anything_heavy(tmp_path: Path) -> None:
    (tmp_path / "runs" / "01run").mkdir(parents=True)
    code = (
        "import sys\n"
        "from simrun.cli.main import cli\n"
        "try:\n"
        "    cli(prog_name='simrun')\n"
        "finally:\n"
        f"    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    environ = {
        "_SIMRUN_COMPLETE": "bash_complete",
        "COMP_WORDS": "simrun show 0",
        "COMP_CWORD": "2",
        "SIMRUN_STORE": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environ},
        cwd=tmp_path,
    )

    assert done.stdout == "plain,01run\n"
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_of_a_command_what_the_command_says_itself(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.name == name
    assert command.short_help == COMMANDS[name]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["shwo"], "Did you mean 'show'?"),
        (["run", "f.yaml", "--stor", "x"], "--store"),
        (["run"], "Missing argument 'FILE'"),
        (["run", "f.yaml", "--memory", "lots"], "must be a quantity such as 512Mi or 2Gi"),
        (["run", "f.yaml", "--cluster", "c.yaml"], "need --backend kubernetes"),
        (["run", "f.yaml", "--backend", "kubernetes", "--cpus", "2"], "bound local workers"),
        (["list", "--state", "odd"], "'odd' is not one of"),
        (["wait", "x", "--timeout", "nan"], "is no number"),
        (["submit", "f.yaml", "--key", "two\nlines"], "takes text on one line"),
        (["serve", "--cpus", "10001"], "is not in the range"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_hint(arguments: list[str], text: str) -> None:
    result = simrun(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


@pytest.mark.parametrize(
    "form", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]]
)
def test_wrong_usage_is_json_where_json_was_asked_for(form: list[str]) -> None:
    result = simrun("list", "--odd", *form)

    error = json.loads(result.stderr)
    assert (error["error"], error["exit_code"]) == ("usage", 2)
    assert "--odd" in error["message"]


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (InvalidInput.one("x", "is wrong"), 2, "invalid_input"),
        (NotFound("no run 'x'"), 6, "not_found"),
        (Conflict("taken"), 1, "conflict"),
        (BackendUnavailable("away"), 1, "backend_unavailable"),
    ],
)
def test_every_error_has_an_exit_code_and_a_name(error: Exception, code: int, kind: str) -> None:
    assert isinstance(error, InvalidInput | NotFound | Conflict | BackendUnavailable)
    assert failures.exit_code(error) == code
    assert json.loads(failures._json(error))["error"] == kind


def test_problems_are_lines_with_place_and_remedy_and_json_has_their_parts() -> None:
    problem = Problem("tasks.a.x", "is wrong", "3", "write 4", "w.yaml:3:5")
    error = InvalidInput([problem])

    assert failures._text(error) == "error: w.yaml:3:5: tasks.a.x: is wrong (got 3)\n  write 4"
    assert json.loads(failures._json(error))["problems"] == [
        {
            "field": "tasks.a.x",
            "message": "is wrong",
            "value": "3",
            "remedy": "write 4",
            "place": "w.yaml:3:5",
        }
    ]


def test_thousands_of_problems_do_not_flood_the_terminal() -> None:
    error = InvalidInput([Problem(f"f{number}", "is wrong") for number in range(10_000)])

    lines = failures._text(error).splitlines()

    assert len(lines) == failures.SHOWN_PROBLEMS + 1
    assert "9950 more" in lines[-1]
    assert len(json.loads(failures._json(error))["problems"]) == 10_000


def test_a_bug_shows_its_traceback_and_is_exit_code_1(tmp_path: Path) -> None:
    code = (
        "from simrun.cli import main, version\n"
        "version.as_json = None\n"
        "main.cli(['version', '-o', 'json'])\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "TypeError" in done.stderr


def test_version_is_told_in_both_forms() -> None:
    assert simrun("version").stdout.startswith("simrun ")
    assert set(json.loads(simrun("version", "-o", "json").stdout)) == {"simrun", "python"}
    assert simrun("--version").stdout.startswith("simrun ")


@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1", "TERM": "xterm"}])
def test_c61_a_pipe_gets_no_escape_bytes(runs: Runs, environ: dict[str, str]) -> None:
    runs.add()
    base = {key: value for key, value in os.environ.items() if "COLOR" not in key}
    commands = [["list"], ["show", "01run"], ["show", "nix"], ["--help"], ["lisst"]]
    code = (
        "from simrun.cli.main import cli\n"
        f"for arguments in {commands!r}:\n"
        "    cli(arguments, standalone_mode=False)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**base, **environ, "SIMRUN_STORE": str(runs.root)},
    )

    assert b"01run" in done.stdout
    assert b"error: no run 'nix'" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_a_reader_that_goes_away_is_no_crash(runs: Runs) -> None:
    for number in range(60):
        runs.add(f"01r{number}")
    command = f"{sys.executable} -m simrun.cli.main list --store {runs.root} -n 1000 -o json"

    done = subprocess.run(
        ["bash", "-c", f"{command} | head -n 1"], capture_output=True, text=True, check=False
    )

    assert done.stdout == "[\n"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_disk_that_is_full_is_told_in_a_line(runs: Runs, form: str) -> None:
    runs.add()
    command = [sys.executable, "-m", "simrun.cli.main", "list", "--store", str(runs.root)]

    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*command, "-o", form], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 1
    said = json.loads(done.stderr)["message"] if form == "json" else done.stderr
    assert said.strip().removeprefix("error: ") == "No space left on device"


def test_a_terminal_that_has_not_all_characters_is_told_the_others_by_number(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simrun.cli.main", "config", "show"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "SIMRUN_STORE": "/å/日本",
            "PYTHONUTF8": "0",
            "PYTHONIOENCODING": "latin-1",
        },
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert "/å/\\u65e5\\u672c".encode("latin-1") in done.stdout
