"""Limits of groups: told before a run exists, with what is there, what is allowed and when to ask again."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from simrun.backends.scripted import ScriptedBackend
from simrun.base.errors import Exhausted, InvalidInput
from simrun.model.access import Scope
from simrun.model.load import load_settings
from simrun.model.serving import LimitsFile
from simrun.service.attachments import Attachment
from simrun.service.auth import Principal
from simrun.service.limits import Demand, Limits, demand_of, tables_of
from simrun.service.opening import open_session
from tests.service.api.guarded import Guarded, guarded, one
from tests.service.world import SWEEP_THEN_PLOT, FakeClock, submission

ORBITS = Principal("anna", Scope.RUN, frozenset({"orbits"}))

LARGE = " " * 2**20
"""A MiB that means nothing in JSON."""


def limits(clock: FakeClock | None = None, **default: Any) -> Limits:
    return Limits(LimitsFile.model_validate({"default": default}), clock=clock)


def run(group: str = "orbits", pods: int = 1, units: int = 0) -> Demand:
    return Demand(group, pods, units)


# --- what a submission asks for ----------------------------------------------------------------------------------------


def test_workers_and_units_are_counted_from_the_submission() -> None:
    assert demand_of(SWEEP_THEN_PLOT) == Demand("default", 4, 5)


def test_units_of_a_table_are_counted_from_the_file_that_came_along(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n2\n3\n")
    split = {"workers": 2, "units": {"table": "t.csv"}, "replicates": 10}
    what = submission({"a": {"type": "t"}}, {"t": {"command": ["true"], "split": split}})

    assert demand_of(what, tables_of([Attachment(tmp_path / "t.csv", "code/t.csv")])).units == 30
    assert demand_of(what).units == 0


# --- runs ----------------------------------------------------------------------------------------------------------------


async def test_a_run_too_many_is_told_with_what_there_is_and_when_to_ask_again() -> None:
    some = limits(live_runs=2)
    assert await some.admit("a", run())
    assert await some.admit("b", run())

    with pytest.raises(Exhausted, match=r"'orbits' has 2 live runs.* more than the 2") as caught:
        await some.admit("c", run())

    assert caught.value.retry_after_s == 30
    assert some.refusals["live_runs"] == 1
    assert await some.admit("c", run("tides"))
    some.ended("a")
    assert await some.admit("c2", run())


async def test_a_run_that_is_counted_already_is_let_through_and_counts_once() -> None:
    some = limits(live_runs=1)
    assert await some.admit("a", run())

    assert not await some.admit("a", run())


@pytest.mark.parametrize("name", ["pods", "units"])
async def test_pods_and_units_are_summed_over_the_live_runs_of_a_group(name: str) -> None:
    some = limits(**{name: 10})
    await some.admit("a", run(**{name: 6}))

    with pytest.raises(Exhausted, match=f"has 6 {name}, and with this run's 5"):
        await some.admit("b", run(**{name: 5}))
    assert await some.admit("c", run(**{name: 4}))


@pytest.mark.parametrize("name", ["pods", "units"])
async def test_a_run_that_can_never_fit_is_wrong_input_with_the_remedy(name: str) -> None:
    some = limits(**{name: 10})

    with pytest.raises(InvalidInput, match=f"asks for 11 {name}, more than the 10") as caught:
        await some.admit("a", run(**{name: 11}))

    assert caught.value.problems[0].field == "workflow"
    assert "ask for fewer" in (caught.value.problems[0].remedy or "")


async def test_a_group_has_its_own_where_they_are_said() -> None:
    file = LimitsFile.model_validate(
        {
            "default": {"live_runs": 1, "pods": 5},
            "groups": {"orbits": {"live_runs": 2}, "tides": {"pods": None}},
        }
    )

    assert (file.of("orbits").live_runs, file.of("orbits").pods) == (2, 5)
    assert (file.of("tides").live_runs, file.of("tides").pods) == (1, None)
    assert file.of("others") == file.default


async def test_what_ended_while_the_store_was_read_counts_no_more() -> None:
    some = limits(live_runs=1)
    reading, go = asyncio.Event(), asyncio.Event()

    async def load() -> dict[str, Demand]:
        reading.set()
        await go.wait()
        return {"old": run()}

    some.load = load
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        asked = group.create_task(some.admit("new", run()))
        await reading.wait()
        some.ended("old")
        go.set()
    assert asked.result()


# --- requests ------------------------------------------------------------------------------------------------------------


def test_requests_may_come_in_a_burst_and_then_at_their_rate(clock: FakeClock) -> None:
    some = limits(clock, requests_per_s=2, burst=3)
    for _ in range(3):
        some.request(ORBITS)

    with pytest.raises(Exhausted, match="2 times a second") as caught:
        some.request(ORBITS)
    assert caught.value.retry_after_s == pytest.approx(0.5)
    some.request(Principal("bert", Scope.RUN, frozenset({"orbits"})))

    clock.advance(0.5)
    some.request(ORBITS)
    with pytest.raises(Exhausted):
        some.request(ORBITS)
    assert some.refusals["requests"] == 2


def test_who_is_in_several_groups_has_the_most_generous_limits() -> None:
    some = Limits(
        LimitsFile.model_validate(
            {"default": {"body": "1Mi"}, "groups": {"tides": {"body": "2Mi"}, "x": {"body": None}}}
        )
    )

    assert some.body_of(ORBITS) == 2**20
    assert some.body_of(Principal("b", Scope.RUN, frozenset({"orbits", "tides"}))) == 2 * 2**20
    assert some.body_of(Principal("c", Scope.RUN, frozenset({"orbits", "x"}))) is None
    assert some.body_of(Principal("ops", Scope.ADMIN, None)) == 2**20


# --- the file ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("default: {live_run: 3}", "did you mean 'live_runs'"),
        ("default: {live_runs: -1}", "must be at least 0"),
        ("default: {requests_per_s: 0}", "must be more than 0"),
        ("groups: {'a:b': {}}", "must not contain ':'"),
        ("default: {body: huge}", "such as 512Mi"),
    ],
)
def test_a_fault_in_the_file_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=r"limits\.yaml:1:") as caught:
        load_settings(LimitsFile, text, file="limits.yaml")

    assert words in str(caught.value)


# --- a server ------------------------------------------------------------------------------------------------------------

WHO = {
    "anna": {"scope": "run", "groups": ["orbits"]},
    "bert": {"scope": "run", "groups": ["tides"]},
}
FILE = {
    "default": {"live_runs": 2, "body": "1Mi"},
    "groups": {"tides": {"requests_per_s": 0.01, "burst": 3}},
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, WHO, limits=Limits(LimitsFile.model_validate(FILE))) as made:
        yield made


async def test_a_submission_over_the_limit_makes_nothing_and_is_tried_again_later(
    served: Guarded,
) -> None:
    for run_id in ("one", "two"):
        assert (await served.submit(run_id, "orbits", "anna")).status == 201

    refused = await served.submit("three", "orbits", "anna")
    assert refused.status == 429
    assert refused.headers["Retry-After"] == "30"
    assert "more than the 2" in refused.body["detail"]
    assert (await served.ask("GET", "/api/v1/runs/three", who="anna")).status == 404
    assert (await served.submit("one", "orbits", "anna")).status == 200

    await served.ask("POST", "/api/v1/runs/one/cancel", who="anna")
    assert (await served.submit("three", "orbits", "anna")).status == 201
    again = await served.ask("POST", "/api/v1/runs/one/retry", who="anna")
    assert again.status == 429


async def test_of_submissions_at_the_same_moment_no_more_than_allowed_are_let_through(
    served: Guarded,
) -> None:
    replies = await asyncio.gather(
        *(served.submit(f"run-{number}", "orbits", "anna") for number in range(8))
    )

    assert sorted(reply.status for reply in replies) == [201] * 2 + [429] * 6


@pytest.mark.parametrize("parts", [False, True])
async def test_a_body_that_does_not_say_its_length_is_held_to_the_limit_too(
    served: Guarded, parts: bool
) -> None:
    text = json.dumps(one("orbits")) + LARGE
    kind = "application/json"
    if parts:
        kind = "multipart/form-data; boundary=XX"
        head = 'Content-Disposition: form-data; name="submission"'
        text = f"--XX\r\n{head}\r\n\r\n{text}\r\n--XX--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        yield text.encode()

    refused = await served.ask(
        "POST", "/api/v1/runs", who="anna", data=pieces(), headers={"Content-Type": kind}
    )
    assert refused.status == 413
    assert "1048576 are allowed" in refused.body["detail"]
    assert served.session.limits.refusals["body"] == 1


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(served: Guarded) -> None:
    body = {"id": "big", "submission": one("orbits")}

    headers = {"Content-Type": "application/json"}
    data = io.BytesIO((json.dumps(body) + LARGE).encode())
    reply = await served.ask("POST", "/api/v1/runs", who="anna", data=data, headers=headers)

    assert reply.status == 413
    assert "1048576 are allowed" in reply.body["detail"]


async def test_files_without_a_length_are_counted_as_they_come(served: Guarded) -> None:
    import aiohttp

    async def content() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 2**16

    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("file", content(), filename="code/big.bin")

    reply = await served.ask("POST", "/api/v1/runs", who="anna", data=form)

    assert reply.status == 422
    assert "more bytes of files" in reply.text


async def test_who_asks_too_often_is_told_when_to_ask_again(served: Guarded) -> None:
    replies = [await served.ask("GET", "/api/v1/runs", who="bert") for _ in range(4)]

    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert 0 < int(replies[-1].headers["Retry-After"]) <= 100
    assert (await served.ask("GET", "/healthz", who="bert")).status == 200
    assert (await served.ask("GET", "/api/v1/runs", who="anna")).status == 200


async def test_a_new_process_counts_what_lives_in_the_store(tmp_path: Path) -> None:
    """Whatever makes a run is held to the same: this is how schedules make theirs."""
    backend = ScriptedBackend()

    def opened() -> Any:
        some = Limits(LimitsFile.model_validate({"default": {"live_runs": 1}}))
        return open_session(tmp_path / "store", lambda _store, _pool: backend, limits=some)

    what = submission({"a": {"type": "t"}}, {"t": {"command": ["true"]}}, group="orbits")
    async with opened() as session:
        await session.submit(what, [], "one")

    async with opened() as session:
        with pytest.raises(Exhausted):
            await session.submit(what, [], "two")
        await session.cancel("one")
        assert await session.submit(what, [], "two") == "two"
