"""Which server or store is meant: flag > environment > project's file > user's file > default; and whose token goes there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simrun.base.errors import InvalidInput, NotFound
from simrun.cli.where import Where, find, token_of

SERVER = "http://127.0.0.1:8642"


class Home:
    """A user's file, a project with a file, and an environment."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project" / "deep" / "down"
        self.project.mkdir(parents=True)
        self.config = root / "config"
        self.environ = {"XDG_CONFIG_HOME": str(self.config)}
        self.user_path = self.config / "simrun" / "config.yaml"
        self.project_path = root / "project" / ".simrun.yaml"

    def user(self, text: str) -> None:
        self.user_path.parent.mkdir(parents=True, exist_ok=True)
        self.user_path.write_text(text)

    def find(self, **flags: str | None) -> Where:
        return find(self.environ, self.project, **flags)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_each_level_comes_before_the_next(home: Home) -> None:
    assert home.find().store == home.project / ".simrun"
    assert home.find().origin == "default"

    home.user("server: http://user:1\n")
    assert (home.find().server, home.find().origin) == ("http://user:1", str(home.user_path))

    home.project_path.write_text("server: http://project:1\n")
    assert (home.find().server, home.find().level) == ("http://project:1", "project")

    home.environ["SIMRUN_SERVER"] = "http://env:1"
    assert (home.find().server, home.find().origin) == ("http://env:1", "$SIMRUN_SERVER")

    found = home.find(server="http://flag:1")
    assert (found.server, found.origin, found.named) == (
        "http://flag:1",
        "--server",
        " --server http://flag:1",
    )


def test_a_store_of_a_higher_level_beats_a_server_of_a_lower_one(home: Home) -> None:
    home.user("server: http://user:1\n")
    home.environ["SIMRUN_STORE"] = "elsewhere"

    assert (home.find().server, home.find().store) == (None, home.project / "elsewhere")

    home.environ["SIMRUN_SERVER"] = "http://env:1"
    assert home.find().server == "http://env:1"
    assert home.find(store="/there").server is None


def test_paths_in_a_file_are_relative_to_it_and_may_begin_at_home(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.project_path.write_text("store: runs\n")
    assert home.find().store == home.project_path.parent / "runs"

    monkeypatch.setenv("HOME", "/home/anna")
    home.project_path.write_text("store: ~/runs\n")
    assert home.find().store == Path("/home/anna/runs")


@pytest.mark.parametrize("named", ["flag", "environment", "project", "user"])
def test_a_context_may_be_named_at_every_level(home: Home, named: str) -> None:
    chosen = "context: lab\n" if named == "user" else ""
    home.user(
        f"{chosen}contexts:\n  lab: {{server: {SERVER}, group: orbits}}\n  pc: {{store: s}}\n"
    )
    if named == "project":
        home.project_path.write_text("context: lab\n")
    if named == "environment":
        home.environ["SIMRUN_CONTEXT"] = "lab"

    found = home.find(context="lab" if named == "flag" else None)

    assert (found.server, found.group, found.context) == (SERVER, "orbits", "lab")
    assert found.named == (" --context lab" if named == "flag" else "")
    assert home.find(context="pc").store == home.user_path.parent / "s"


def test_a_context_that_nobody_has_defined_is_told_with_the_one_that_was_meant(home: Home) -> None:
    home.user(f"contexts:\n  cluster: {{server: {SERVER}}}\n")

    with pytest.raises(NotFound, match="no context 'clutser', which --context names; did you mean"):
        home.find(context="clutser")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("servr: http://x\n", "1:1", "did you mean 'server'"),
        ("contexts:\n  lab:\n    server: http://x\n    tokenfile: f\n", "4:5", "'token_file'"),
        ("store: a\nserver: http://x\n", "1:1", "give one of them"),
        ("server: lab:8642\n", "1:9", "must be an address"),
        ("server: http://\n", "1:9", "must be an address"),
        ("server: http://[\n", "1:9", "must be an address"),
        ("server: http://lab:99999\n", "1:9", "must be an address"),
        ("server: http://lab/?group=x\n", "1:9", "must be an address"),
        ("contexts:\n  lab: {group: g}\n", "2:", "either server or store"),
        ("max_memmory: 1\n", "1:1", "is not known here"),
        ("- a\n", "1:1", "mapping"),
    ],
)
def test_c61_a_wrong_key_or_value_is_told_with_file_line_and_what_was_meant(
    home: Home, text: str, place: str, words: str
) -> None:
    home.user(text)

    with pytest.raises(InvalidInput) as caught:
        home.find(server=SERVER)

    assert f"{home.user_path}:{place}" in str(caught.value)
    assert words in str(caught.value)


def test_a_file_of_comments_says_nothing(home: Home) -> None:
    home.user("# nothing yet\n\n")

    assert home.find().level == "default"


def test_a_project_can_not_bring_contexts_or_tokens(home: Home) -> None:
    for text in ("token_file: ~/.ssh/id_rsa\n", "contexts: {}\n"):
        home.project_path.write_text(text)
        with pytest.raises(InvalidInput, match="is not known here"):
            home.find()


def test_a_workflow_of_the_name_is_no_configuration(home: Home) -> None:
    (home.project / "simrun.yaml").write_text("tasks: {a: {command: 'true'}}\n")
    home.project_path.write_text(f"server: {SERVER}\n")

    assert home.find().server == SERVER
    (home.project / "simrun.yaml").write_text("store: near\n")
    assert home.find().store == home.project / "near"


def test_a_project_file_of_another_user_is_left_aside(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.project_path.write_text(f"server: {SERVER}\n")
    os.chown(home.project_path, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    found = home.find()

    assert found.level == "default"
    assert found.warnings == (
        f"{home.project_path} is not read: it is a file of another user (12345)",
    )


def test_a_user_without_a_home_has_no_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    del home.environ["XDG_CONFIG_HOME"]

    assert home.find().level == "default"
    assert home.find(store="runs").store == home.project / "runs"


# --- tokens ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(home: Home) -> Home:
    (home.user_path.parent).mkdir(parents=True)
    token = home.user_path.parent / "lab.token"
    token.write_text("of-lab\n")
    token.chmod(0o600)
    home.user(f"contexts:\n  lab: {{server: {SERVER}/, token_file: lab.token}}\n")
    return home


def test_the_token_of_a_context_goes_to_its_server_however_that_is_named(lab: Home) -> None:
    assert lab.find(context="lab").read_token() == "of-lab"
    assert lab.find(server=SERVER).read_token() == "of-lab"
    lab.project_path.write_text(f"server: {SERVER}\n")
    assert lab.find().read_token() == "of-lab"
    assert lab.find(server="http://other:1").read_token() == ""


def test_a_token_of_the_environment_comes_before_files_but_not_before_a_context_that_was_named(
    lab: Home,
) -> None:
    lab.environ["SIMRUN_TOKEN"] = "of-env"

    assert lab.find(server=SERVER).read_token() == "of-env"
    assert lab.find(context="lab").read_token() == "of-lab"
    del lab.environ["SIMRUN_TOKEN"]
    (lab.project / "mine").write_text("of-file")
    lab.environ["SIMRUN_TOKEN_FILE"] = "mine"
    assert lab.find(server="http://other:1").read_token() == "of-file"


def test_a_token_of_the_environment_is_not_sent_where_only_a_project_says(lab: Home) -> None:
    lab.environ["SIMRUN_TOKEN"] = "of-env"
    lab.project_path.write_text("server: http://evil:1\n")

    found = lab.find()

    assert (found.server, found.read_token()) == ("http://evil:1", "")
    assert "is not sent where only" in found.warnings[0]
    lab.environ["SIMRUN_SERVER"] = "http://evil:1"
    assert lab.find().read_token() == "of-env"


def test_a_token_of_two_lines_is_told_without_what_is_in_it(home: Home) -> None:
    home.environ["SIMRUN_TOKEN"] = "secret\nsecret"
    with pytest.raises(InvalidInput, match="must hold one token") as caught:
        home.find(server=SERVER)
    assert "secret" not in str(caught.value)


def test_a_token_that_others_may_read_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "token"
    path.write_text("secret-thing")
    path.chmod(0o640)

    assert token_of(path, "here") == "secret-thing"
    assert f"others may read the token in {path}; chmod 600 {path}" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "two words\n", None])
def test_a_file_without_a_token_is_told_without_what_is_in_it(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)

    with pytest.raises(InvalidInput, match="token_file") as caught:
        token_of(path, "f.yaml")

    assert "two words" not in str(caught.value)
