"""`simrun token create`, and what `simrun serve` does with what it made."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest

from simrun.model.access import Scope, token_hash
from simrun.service.auth import Tokens
from tests.cli.store import simrun


def test_the_entry_can_be_appended_and_lets_the_token_in(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    made = {}
    for name, options in (("anna", ["--group", "orbits"]), ("ops", ["--scope", "admin"])):
        done = simrun("token", "create", "--name", name, *options)
        assert done.exit_code == 0, done.stderr
        assert "simrun_" not in done.stdout
        made[name] = done.stderr.split("once: ")[1].split()[0]
        with file.open("a") as stream:
            stream.write(done.stdout)

    tokens = Tokens(file)
    tokens.load()

    assert tokens.principal(made["anna"]).groups == {"orbits"}
    assert tokens.principal(made["ops"]).scope is Scope.ADMIN


def test_json_has_both_for_programs() -> None:
    done = simrun(
        "token", "create", "--name", "ci", "--scope", "read", "--expires", "90d", "-o", "json"
    )

    found = json.loads(done.stdout)
    assert found["entry"]["sha256"] == token_hash(found["token"])
    ends = datetime.fromisoformat(found["entry"]["expires"]).timestamp()
    assert 0 <= time.time() + 90 * 86400 - ends < 300


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--name", "anna"], "--group"),
        (["--name", "an na", "--group", "g"], "--name"),
        (["--name", "anna", "--group", "a:b"], "--group"),
        (["--name", "anna", "--scope", "admin", "--group", "g"], "--group"),
        (["--name", "anna", "--group", "g", "--expires", "soon"], "--expires"),
    ],
)
def test_what_can_not_be_an_entry_is_refused(options: list[str], field: str) -> None:
    done = simrun("token", "create", *options)

    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {field}: ")
    assert done.stdout == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_server_without_tokens_takes_no_address_but_one_of_loopback(
    tmp_path: Path, host: str
) -> None:
    store = tmp_path / "store"

    done = simrun("serve", "--store", store, "--host", host)

    assert done.exit_code == 2
    assert "--tokens FILE" in done.stderr
    assert not store.exists()


def test_tokens_that_are_wrong_are_told_before_anything_is_made(tmp_path: Path) -> None:
    file, store = tmp_path / "tokens.yaml", tmp_path / "store"
    file.write_text("- {name: anna}\n")

    done = simrun("serve", "--store", store, "--tokens", file)

    assert done.exit_code == 2
    assert f"error: {file}:1:" in done.stderr
    assert not store.exists()
