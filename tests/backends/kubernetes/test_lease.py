"""Leadership: one at a time, given up in time, and never without its end being noticed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.lease import (
    LeaseElector,
    LeaseTerm,
    LeaseTiming,
    holding,
    lease_name,
)
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendError
from simrun.base.term import LeadershipLost
from simrun.model.cluster import ClusterConfig
from tests.backends.kubernetes.fake_api import FakeApi, anything

LEASE = "/apis/coordination.k8s.io/v1/namespaces/here/leases/simrun"
QUICK = LeaseTiming(lease_s=1.5, valid_s=1.1, renew_s=0.2, call_s=0.3, again_s=0.05)


def elector(kube: KubeSession, identity: str, **more: Any) -> LeaseElector:
    return LeaseElector(kube, "here", name="simrun", identity=identity, timing=QUICK, **more)


def spec(server: FakeApi) -> dict[str, Any]:
    lease = server.read(LEASE)
    assert lease is not None
    found: dict[str, Any] = lease["spec"]
    return found


def is_patch(request: web.Request) -> bool:
    return request.method == "PATCH"


@pytest.fixture(autouse=True)
async def in_time() -> Any:
    async with asyncio.timeout(30):
        yield


async def test_the_first_leads_and_writes_who_it_is(server: FakeApi, kube: KubeSession) -> None:
    one = elector(kube, "one")

    async with holding(one, await one.acquire()) as term:
        assert term.valid()
        assert term.epoch == spec(server)["leaseTransitions"]
        assert spec(server)["holderIdentity"] == "one"
        assert one.leader == "one"


async def test_another_waits_until_the_lease_is_given_back_and_has_a_higher_epoch(
    server: FakeApi, kube: KubeSession
) -> None:
    one, two = elector(kube, "one"), elector(kube, "two")
    async with holding(one, await one.acquire()) as first:
        waiting = asyncio.ensure_future(two.acquire())
        await asyncio.sleep(QUICK.lease_s + 0.4)  # it is renewed
        assert not waiting.done()
        assert first.valid()
        assert two.leader == "one"

    second = await waiting

    assert first.epoch is not None
    assert second.epoch == first.epoch + 1
    assert not first.valid()


async def test_a_lease_that_is_not_renewed_is_taken_after_its_duration(
    server: FakeApi, kube: KubeSession
) -> None:
    first = await elector(kube, "one").acquire()  # and then its process died

    begun = asyncio.get_running_loop().time()
    second = await elector(kube, "two").acquire()

    assert asyncio.get_running_loop().time() - begun >= QUICK.lease_s
    assert not first.valid()  # it would have known before
    assert first.epoch is not None
    assert second.epoch == first.epoch + 1


async def test_an_api_that_hangs_ends_the_term_before_anybody_else_may_lead(
    server: FakeApi, kube: KubeSession
) -> None:
    one = elector(kube, "one")
    term = await one.acquire()
    ended: list[bool] = []

    with pytest.raises(LeadershipLost, match="not renewed"):  # noqa: PT012 - all of it is cancelled
        async with holding(one, term):
            begun = asyncio.get_running_loop().time()
            server.hang(anything)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(term.valid())

    took = asyncio.get_running_loop().time() - begun
    assert ended == [False]
    assert took < QUICK.lease_s + QUICK.call_s
    assert spec(server)["holderIdentity"] == "one"  # it isn't ours to give back any more


async def test_an_api_that_fails_for_a_moment_ends_no_term(
    server: FakeApi, kube: KubeSession
) -> None:
    one = elector(kube, "one")
    async with holding(one, await one.acquire()) as term:
        server.fail(503, "<html>", matches=is_patch, times=3)
        await asyncio.sleep(QUICK.valid_s + 0.3)
        assert term.valid()


async def test_a_renewal_whose_answer_was_lost_ends_no_term(
    server: FakeApi, kube: KubeSession
) -> None:
    one = elector(kube, "one")
    async with holding(one, await one.acquire()) as term:
        lease = server.read(LEASE)
        assert lease is not None
        await server.put(LEASE, lease)  # it arrived, and the lease has another version now
        await asyncio.sleep(QUICK.valid_s + 0.3)
        assert term.valid()


async def test_a_lease_that_somebody_took_is_lost_at_once(
    server: FakeApi, kube: KubeSession
) -> None:
    one = elector(kube, "one")
    with pytest.raises(LeadershipLost, match="held by two"):  # noqa: PT012 - all of it is cancelled
        async with holding(one, await one.acquire()) as term:
            taken = {**spec(server), "holderIdentity": "two"}
            await server.put(LEASE, {"spec": taken})
            await asyncio.Event().wait()

    assert not term.valid()
    assert spec(server)["holderIdentity"] == "two"


async def test_a_lease_that_was_deleted_is_lost_and_the_next_epoch_is_higher_all_the_same(
    server: FakeApi, kube: KubeSession
) -> None:
    now = 1_800_000_000.0
    one = elector(kube, "one", wall=lambda: now)
    with pytest.raises(LeadershipLost, match="deleted"):  # noqa: PT012 - all of it is cancelled
        async with holding(one, await one.acquire()) as first:
            await server.remove(LEASE)
            await asyncio.Event().wait()

    second = await elector(kube, "two", wall=lambda: now + 30).acquire()

    assert first.epoch is not None
    assert second.epoch is not None
    assert second.epoch > first.epoch


async def test_the_lease_is_given_back_only_after_what_was_guarded_has_ended(
    server: FakeApi, kube: KubeSession
) -> None:
    one = elector(kube, "one")
    holders: list[str] = []

    async def lead() -> None:
        async with holding(one, await one.acquire()):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.1)  # the last writes
                holders.append(spec(server)["holderIdentity"])

    task = asyncio.ensure_future(lead())
    while server.read(LEASE) is None:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert holders == ["one"]
    assert spec(server)["holderIdentity"] == ""


async def test_what_fails_inside_is_raised_as_it_is_and_the_lease_is_given_back(
    server: FakeApi, kube: KubeSession
) -> None:
    one = elector(kube, "one")
    with pytest.raises(ZeroDivisionError):
        async with holding(one, await one.acquire()):
            raise ZeroDivisionError

    assert spec(server)["holderIdentity"] == ""


async def test_two_that_want_a_free_lease_at_once_do_not_both_get_it(
    server: FakeApi, kube: KubeSession
) -> None:
    await server.put(LEASE, {"spec": {"holderIdentity": "", "leaseTransitions": 5}})
    asked = [asyncio.ensure_future(elector(kube, name).acquire()) for name in ("a", "b", "c")]

    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.3)

    assert sum(task.done() for task in asked) == 1
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert spec(server)["leaseTransitions"] == 6


async def test_a_lease_that_we_took_without_hearing_of_it_is_taken_again_at_once(
    server: FakeApi, kube: KubeSession
) -> None:
    held = {"holderIdentity": "one", "leaseTransitions": 5, "leaseDurationSeconds": 100}
    await server.put(LEASE, {"spec": held})

    term = await elector(kube, "one").acquire()

    assert term.epoch == 6


async def test_a_challenger_waits_out_an_api_that_is_away(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(500, "", times=3)

    assert (await elector(kube, "one").acquire()).valid()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (403, '{"kind": "Status", "code": 403, "reason": "Forbidden"}'),
        (404, '{"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "here"}}'),
    ],
)
async def test_a_lease_that_can_never_be_had_is_an_error_with_the_remedy(
    server: FakeApi, kube: KubeSession, code: int, body: str
) -> None:
    server.fail(code, body, matches=lambda request: request.method == "POST")

    with pytest.raises(BackendError, match="needs get, create and patch on leases"):
        await elector(kube, "one").acquire()


async def test_the_clock_of_the_leader_decides_whatever_time_the_lease_says(
    server: FakeApi, kube: KubeSession
) -> None:
    long_ago = {"renewTime": "2001-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1}
    await server.put(LEASE, {"spec": {"holderIdentity": "skewed", **long_ago}})

    begun = asyncio.get_running_loop().time()
    await elector(kube, "one").acquire()

    assert asyncio.get_running_loop().time() - begun >= 1.0


def test_a_process_that_was_paused_finds_its_term_over() -> None:
    now = 100.0

    def clock() -> float:
        return now

    read: Callable[[], float] = clock
    term = LeaseTerm(5, 110.0, read)
    assert term.valid()

    now = 110.0  # nothing of the process ran meanwhile

    assert not term.valid()


def test_the_times_leave_room_for_a_slow_answer() -> None:
    timing = LeaseTiming()

    assert timing.lease_s == 15
    assert timing.renew_s == 5
    assert timing.renew_s + timing.call_s + timing.again_s < timing.valid_s < timing.lease_s


async def test_nothing_is_given_back_that_was_never_held(
    server: FakeApi, kube: KubeSession
) -> None:
    await elector(kube, "one").release()

    assert server.requests == []
    with pytest.raises(errors.NotFound):
        await kube.get(LEASE)


def test_services_compete_for_a_store_and_not_for_a_namespace() -> None:
    def name(**values: Any) -> str:
        return lease_name(ClusterConfig(**values))

    assert name() == name(image="another", namespace="elsewhere", store_path="/")
    assert name() != name(store_path="other")
    assert name() != name(store={"persistentVolumeClaim": {"claimName": "other"}})
    assert re.fullmatch("simrun-[0-9a-f]{10}", name())
