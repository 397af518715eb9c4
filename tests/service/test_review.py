"""Who asks by what the cluster says: entries for users and groups of the cluster beside those with a token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from simrun.backends.base import Identity
from simrun.base.errors import (
    BackendError,
    BackendUnavailable,
    Exhausted,
    InvalidInput,
    Unauthorized,
)
from simrun.model.access import Scope, new_token, token_hash
from simrun.service.auth import Tokens, load_tokens
from simrun.service.review import (
    AT_ONCE,
    BELIEVED_S,
    REFUSED_S,
    WAITING_MAX,
    Authenticator,
)
from tests.service.world import FakeClock

OWN = new_token()
RUNNER = "system:serviceaccount:ci:runner"
ENTRIES = [
    {"name": "anna", "sha256": token_hash(OWN), "scope": "run", "groups": ["orbits"]},
    {"name": "ci", "kubernetes_user": RUNNER, "scope": "run", "groups": ["ci"]},
    {"name": "lab", "kubernetes_group": "lab", "scope": "read", "groups": ["orbits", "tides"]},
    {"name": "orbits", "kubernetes_group": "orbits", "scope": "run", "groups": ["orbits"]},
    {"name": "ebb", "kubernetes_group": "ebb", "scope": "run", "groups": ["tides"]},
    {"name": "ops", "kubernetes_group": "ops", "scope": "admin"},
]


class Cluster:
    """Knows some tokens, and how often it was asked."""

    def __init__(self, **known: Identity) -> None:
        self.known = known
        self.asked = 0
        self.trouble: Exception | None = None

    async def review(self, token: str) -> Identity | None:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return self.known.get(token)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.write_text(json.dumps(ENTRIES))
    return path


def authenticator(file: Path, cluster: Cluster, clock: FakeClock | None = None) -> Authenticator:
    tokens = Tokens(file, clock)
    tokens.load()
    return Authenticator(tokens, cluster.review, clock)


def who(user: str, *groups: str) -> Identity:
    return Identity(user, frozenset(groups))


@pytest.mark.parametrize(
    ("identity", "scope", "groups"),
    [
        (who(RUNNER, "ops"), Scope.RUN, {"ci"}),
        (who("anna", "lab"), Scope.READ, {"orbits", "tides"}),
        (who("anna", "lab", "orbits"), Scope.RUN, {"orbits"}),
        (who("anna", "ebb", "orbits"), Scope.RUN, {"orbits", "tides"}),
        (who("olga", "ops", "lab"), Scope.ADMIN, None),
    ],
)
async def test_somebody_may_what_their_own_entry_says_or_those_of_their_groups(
    file: Path, identity: Identity, scope: Scope, groups: set[str] | None
) -> None:
    found = await authenticator(file, Cluster(t=identity)).principal("t")

    assert (found.name, found.scope, found.groups) == (identity.user, scope, groups)


async def test_many_with_one_token_are_asked_about_a_few_times_and_floods_not_without_end(
    file: Path,
) -> None:
    cluster, gate = Cluster(t=who(RUNNER)), asyncio.Event()

    async def slowly(token: str) -> Identity | None:
        found = await cluster.review(token)
        await gate.wait()
        return found

    tokens = Tokens(file)
    tokens.load()
    slow = Authenticator(tokens, slowly)
    async with asyncio.TaskGroup() as group:
        same = [group.create_task(slow.principal("t")) for _ in range(WAITING_MAX)]
        while cluster.asked < AT_ONCE:
            await asyncio.sleep(0)
        with pytest.raises(Exhausted):
            await slow.principal("one more")
        gate.set()

    assert {task.result().name for task in same} == {RUNNER}
    assert cluster.asked == AT_ONCE
    with pytest.raises(Unauthorized):
        await slow.principal("one more")


async def test_who_has_no_entry_and_whom_the_cluster_does_not_know_is_refused(file: Path) -> None:
    known = authenticator(file, Cluster(t=who("eve", "system:authenticated")))

    with pytest.raises(Unauthorized, match="eve is known to the cluster, but has no entry"):
        await known.principal("t")
    with pytest.raises(Unauthorized, match="audience simrun"):
        await known.principal("other")


async def test_tokens_of_simrun_are_never_shown_to_the_cluster(file: Path) -> None:
    cluster = Cluster()
    known = authenticator(file, cluster)

    assert (await known.principal(OWN)).name == "anna"
    with pytest.raises(Unauthorized):
        await known.principal(new_token())
    assert cluster.asked == 0


async def test_the_cluster_is_not_asked_where_no_entry_is_of_it(tmp_path: Path) -> None:
    file, cluster = tmp_path / "tokens.yaml", Cluster(t=who("anna", "ops"))
    file.write_text(json.dumps(ENTRIES[:1]))

    with pytest.raises(Unauthorized):
        await authenticator(file, cluster).principal("t")
    assert cluster.asked == 0


async def test_an_answer_is_believed_for_a_while(file: Path, clock: FakeClock) -> None:
    cluster = Cluster(t=who(RUNNER))
    known = authenticator(file, cluster, clock)
    await known.principal("t")
    cluster.known.clear()
    clock.advance(BELIEVED_S - 1)
    assert (await known.principal("t")).groups == {"ci"}
    clock.advance(1)
    with pytest.raises(Unauthorized):
        await known.principal("t")
    assert cluster.asked == 2

    cluster.known["t"] = who(RUNNER)
    clock.advance(REFUSED_S - 1)
    with pytest.raises(Unauthorized):
        await known.principal("t")
    clock.advance(1)
    assert (await known.principal("t")).groups == {"ci"}


async def test_an_entry_ends_to_be_good_whatever_the_cluster_says(
    file: Path, clock: FakeClock
) -> None:
    entry = {**ENTRIES[1], "expires": "2027-01-16"}
    file.write_text(json.dumps([entry]))
    known = authenticator(file, Cluster(t=who(RUNNER)), clock)
    assert (await known.principal("t")).groups == {"ci"}

    clock.advance(48 * 3600)
    with pytest.raises(Unauthorized):
        await known.principal("t")


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (BackendUnavailable("no connection"), "no connection"),
        (BackendError("forbidden"), "simrun needs `create` on tokenreviews"),
    ],
)
async def test_a_cluster_that_does_not_answer_is_no_refusal(
    file: Path, trouble: Exception, words: str
) -> None:
    cluster = Cluster(t=who(RUNNER))
    cluster.trouble = trouble
    known = authenticator(file, cluster)
    with pytest.raises(BackendUnavailable, match=words):
        await known.principal("t")

    cluster.trouble = None
    assert (await known.principal("t")).name == RUNNER


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "x", "scope": "run"},
        {"name": "x", "scope": "run", "kubernetes_user": "u", "kubernetes_group": "g"},
        {"name": "x", "scope": "run", "kubernetes_user": "u", "sha256": "a" * 64},
    ],
)
def test_an_entry_has_one_way_in(tmp_path: Path, entry: dict[str, str]) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(json.dumps([entry]))

    with pytest.raises(InvalidInput, match="must have one of sha256, kubernetes_user"):
        load_tokens(file)
