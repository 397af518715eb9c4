"""Tokens of a file: who they are, when they end to be good, and how a change of the file takes effect."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from simrun.base.errors import Exhausted, InvalidInput, Unauthorized
from simrun.model.access import Scope, new_token, token_hash
from simrun.service import auth
from simrun.service.auth import Tickets, Tokens, load_tokens
from tests.service.world import FakeClock

ANNA, BERT = new_token(), new_token()


def entry(token: str, **fields: object) -> str:
    named = {"sha256": token_hash(token), "scope": "run", **fields}
    return "- {" + ", ".join(f"{key}: {value}" for key, value in named.items()) + "}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.write_text(entry(ANNA, name="anna", groups="[orbits]"))
    return path


def replaced(file: Path, text: str) -> None:
    """As an editor or the kubelet does: another file under the name."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def test_a_token_is_known_by_its_hash_alone(file: Path) -> None:
    tokens = Tokens(file)
    tokens.load()

    who = tokens.principal(ANNA)

    assert (who.name, who.scope, who.groups) == ("anna", Scope.RUN, {"orbits"})
    assert ANNA not in file.read_text()
    for wrong in (BERT, ANNA[:-1], "", token_hash(ANNA)):
        with pytest.raises(Unauthorized):
            tokens.principal(wrong)


@pytest.mark.parametrize(
    "form", ["2027-01-16", "2027-01-16T00:00:00Z", "2027-01-16T01:00:00+01:00"]
)
def test_a_token_ends_at_its_moment(file: Path, clock: FakeClock, form: str) -> None:
    file.write_text(entry(ANNA, name="anna", groups="[orbits]", expires=form))
    tokens = Tokens(file, clock)
    tokens.load()
    left = 1_800_057_600 - clock.wall()  # the first second of 2027-01-16

    clock.advance(left - 1)
    assert tokens.principal(ANNA).name == "anna"
    clock.advance(1)
    with pytest.raises(Unauthorized, match="'anna' was good until 2027-01-16T00:00:00Z"):
        tokens.principal(ANNA)


def test_admins_and_those_of_every_group_see_all(file: Path) -> None:
    file.write_text(
        entry(ANNA, name="anna", scope="admin") + entry(BERT, name="bert", groups="['*']")
    )
    tokens = Tokens(file)
    tokens.load()

    assert tokens.principal(ANNA).groups is None
    assert tokens.principal(BERT).groups is None
    assert tokens.principal(BERT).scope is Scope.RUN


def test_a_token_without_a_group_sees_no_group(file: Path) -> None:
    file.write_text(entry(ANNA, name="prometheus", scope="read"))
    tokens = Tokens(file)
    tokens.load()

    assert not tokens.principal(ANNA).sees("orbits")
    assert tokens.principal(ANNA).only == frozenset()


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1:1", "empty"),
        ("anna: x\n", "1:1", "must be a list"),
        (entry(ANNA, name="'an na'"), "1:", "letters, digits"),
        (entry(ANNA, name="anna", scope="write"), "1:", "'read', 'run' or 'admin'"),
        (entry(ANNA, name="anna", gruops="[a]"), "1:", "did you mean 'groups'"),
        (entry(ANNA, name="anna", scope="admin", groups="[a]"), "1:", "leave groups out"),
        (entry(ANNA, name="anna") + entry(BERT, name="anna"), "2:", "is there twice"),
        (entry(ANNA, name="anna") + entry(ANNA, name="bert"), "2:", "is there twice"),
        (entry(ANNA, name="anna", expires="soon"), "1:", "expires"),
    ],
)
def test_a_fault_in_the_file_is_told_with_its_place(
    file: Path, text: str, place: str, words: str
) -> None:
    file.write_text(text)

    with pytest.raises(InvalidInput) as caught:
        load_tokens(file)

    assert f"{file}:{place}" in str(caught.value)
    assert words in str(caught.value)


def test_a_token_in_place_of_its_hash_is_not_shown(file: Path) -> None:
    file.write_text(f"- {{name: anna, sha256: {ANNA}, scope: run}}\n")

    with pytest.raises(InvalidInput, match="simrun token create") as caught:
        load_tokens(file)

    assert ANNA not in str(caught.value)


def test_a_missing_file_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="simrun token create"):
        load_tokens(tmp_path / "nothing")


def test_a_changed_file_counts_at_once_and_a_broken_one_changes_nothing(file: Path) -> None:
    tokens = Tokens(file)
    tokens.load()
    assert not tokens.reload()

    replaced(file, entry(ANNA, name="anna", groups="[orbits]") + entry(BERT, name="bert"))
    assert not tokens.reload()  # one more: nobody lost anything
    assert tokens.principal(BERT).name == "bert"

    replaced(file, "- {name:")
    assert not tokens.reload()
    assert tokens.principal(BERT).name == "bert"
    assert tokens.failures == 1
    file.unlink()
    assert not tokens.reload()
    assert tokens.principal(ANNA).name == "anna"

    replaced(file, entry(ANNA, name="anna", groups="[tides]"))
    assert tokens.reload()
    assert tokens.principal(ANNA).groups == {"tides"}
    with pytest.raises(Unauthorized):
        tokens.principal(BERT)


async def test_the_file_is_followed_and_a_withdrawal_is_told(file: Path) -> None:
    tokens = Tokens(file)
    tokens.load()
    withdrawn = asyncio.Event()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        following = group.create_task(tokens.follow(withdrawn.set, every_s=0.01))
        replaced(file, "[]")
        await withdrawn.wait()
        following.cancel()

    with pytest.raises(Unauthorized):
        tokens.principal(ANNA)


async def test_the_end_of_a_token_is_told_once_as_a_withdrawal_is(
    file: Path, clock: FakeClock
) -> None:
    file.write_text(entry(ANNA, name="anna", expires="2027-01-16"))
    tokens = Tokens(file, clock)
    tokens.load()
    told = asyncio.Queue[None]()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        following = group.create_task(tokens.follow(lambda: told.put_nowait(None), every_s=0.01))
        await asyncio.sleep(0)  # it begins before the token ends
        clock.advance(1_800_057_600 - clock.wall())
        await told.get()
        replaced(file, "[]")  # the next that is told is this
        await told.get()
        following.cancel()
    assert told.empty()


def test_a_ticket_is_good_once_and_for_a_while(file: Path, clock: FakeClock) -> None:
    tokens = Tokens(file)
    tokens.load()
    anna, tickets = tokens.principal(ANNA), Tickets(clock)

    ticket = tickets.give(anna)
    assert tickets.redeem(ticket) == anna
    with pytest.raises(Unauthorized, match="used"):
        tickets.redeem(ticket)

    late = tickets.give(anna)
    clock.advance(auth.TICKET_S)
    with pytest.raises(Unauthorized):
        tickets.redeem(late)

    lost = tickets.give(anna)
    tickets.withdraw()
    with pytest.raises(Unauthorized):
        tickets.redeem(lost)


def test_tickets_that_nobody_uses_are_bounded(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "TICKETS_MAX", 3)
    tickets = Tickets(clock)
    for _ in range(3):
        tickets.give(auth.ANYBODY)

    with pytest.raises(Exhausted):
        tickets.give(auth.ANYBODY)

    clock.advance(auth.TICKET_S)
    assert tickets.redeem(tickets.give(auth.ANYBODY)) == auth.ANYBODY
