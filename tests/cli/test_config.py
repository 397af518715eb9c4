"""`simrun config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.store import simrun

SERVER = "http://127.0.0.1:8642"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "simrun" / "config.yaml"


def test_a_token_file_that_is_missing_is_told_when_it_is_named(path: Path) -> None:
    (path.parents[2] / "there.token").write_text("simrun_x")
    add = ("config", "add-context", "lab", "--server", SERVER, "--token-file")

    missing, there = simrun(*add, "lab.token"), simrun(*add, "there.token")

    assert missing.exit_code == 0
    assert "lab.token is not there yet: put the token into it" in missing.stderr
    assert "not there" not in there.stderr


def test_contexts_are_added_chosen_and_listed(path: Path) -> None:
    added = simrun("config", "add-context", "lab", "--server", SERVER, "--group", "orbits")
    assert (added.exit_code, added.stdout) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    simrun("config", "add-context", "here", "--store", "runs", "--token-file", "t")
    assert simrun("config", "use-context", "lab").exit_code == 0

    shown = simrun("config", "show", "--origin")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["KEY", "VALUE", "ORIGIN"],
        ["context", "lab", str(path)],
        ["server", SERVER, f"{path}:", "contexts.lab"],
        ["store", "-", "-"],
        ["group", "orbits", f"{path}:", "contexts.lab"],
        ["token", "-", "-"],
    ]
    listed = json.loads(simrun("config", "list-contexts", "-o", "json").stdout)
    assert [(item["name"], item["current"], item["store"]) for item in listed] == [
        ("here", False, str(path.parents[2] / "runs")),
        ("lab", True, None),
    ]
    assert simrun("config", "get", "server").stdout == f"{SERVER}\n"


def test_comments_and_order_of_the_file_stay(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(
        "# mine\ngroup: orbits   # not theirs\ncontexts:\n  # at home\n  pc:\n    store: /runs\n\n# last\n"
    )
    path.chmod(0o640)

    simrun("config", "set", "group", "plasma")
    simrun("config", "add-context", "lab", "--server", SERVER)
    simrun("config", "use-context", "lab")

    assert path.read_text() == (
        "# mine\ngroup: plasma   # not theirs\ncontexts:\n  # at home\n"
        f"  lab:\n    server: {SERVER}\n  pc:\n    store: /runs\n\n# last\ncontext: lab\n"
    )
    assert path.stat().st_mode & 0o777 == 0o640
    simrun("config", "add-context", "lab", "--store", "/other")
    simrun("config", "unset", "group")
    assert path.read_text() == (
        "# mine\ncontexts:\n  # at home\n"
        "  lab:\n    store: /other\n  pc:\n    store: /runs\n\n# last\ncontext: lab\n"
    )


def test_a_value_that_looks_like_something_else_stays_text(path: Path) -> None:
    assert simrun("config", "set", "group", "123").exit_code == 0

    assert simrun("config", "get", "group").stdout == "123\n"
    assert path.read_text() == "group: '123'\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["set", "server", "lab"], 2, "must be an address"),
        (["set", "token", "x"], 2, "'token' is not one of"),
        (["use-context", "lab"], 6, "no context 'lab'"),
        (["get", "group"], 6, "group is set nowhere"),
        (["add-context", "x"], 2, "either --server or --store"),
        (["set", "context", "nix"], 6, "no context 'nix'"),
    ],
)
def test_what_would_be_wrong_is_refused_and_nothing_is_written(
    path: Path, arguments: list[str], code: int, text: str
) -> None:
    result = simrun("config", *arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert not path.exists()


def test_a_file_that_is_written_in_another_way_is_left_alone(path: Path) -> None:
    path.parent.mkdir(parents=True)
    for text in ("{group: a}\n", f"contexts: {{lab: {{server: {SERVER}}}}}\n"):
        path.write_text(text)
        result = simrun("config", "add-context", "pc", "--store", "x")
        assert result.exit_code == 2
        assert "with an editor" in result.stderr
        assert path.read_text() == text


def test_a_link_to_the_file_stays_one(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yaml"
    real.write_text("group: a\n")
    path.parent.mkdir(parents=True)
    path.symlink_to(real)

    simrun("config", "set", "group", "b")

    assert path.is_symlink()
    assert real.read_text() == "group: b\n"


def test_tokens_are_never_shown(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMRUN_TOKEN", "hush-hush")

    for form in ("table", "json"):
        result = simrun("config", "show", "--origin", "--server", SERVER, "-o", form)
        assert "$SIMRUN_TOKEN" in result.stdout
        assert "hush" not in result.output


def test_c61_every_command_refuses_a_mistyped_key(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("group: a\nsever: http://x\n")

    for command in (["list"], ["show", "x"], ["wait", "x"], ["config", "show"]):
        result = simrun(*command, "-o", "json")
        assert (result.exit_code, result.stdout) == (2, "")
        problem = json.loads(result.stderr)["problems"][0]
        assert problem["place"] == f"{path}:2:1"
        assert problem["field"] == "sever"
        assert "'server'" in problem["remedy"]
