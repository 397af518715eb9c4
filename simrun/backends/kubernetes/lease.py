"""Leadership by a Lease of the cluster: of several services over one store, one acts.

A challenger trusts its own clock alone: it takes the lease when that did not change for its whole duration. The leader renews it every few
seconds and counts its term from before the request it renewed with; when the API hangs or fails it stops leading well before a challenger may
begin. It reads the clock that goes on while the machine sleeps, so that a process that was paused finds its term over. The lease is
given back only once everything that the leader does has ended.

The epoch is `leaseTransitions`. A lease that was deleted starts from a number made from the time, so that epochs never fall.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeVar

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendError
from simrun.base.term import LeadershipLost, Term
from simrun.model.cluster import ClusterConfig

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Seconds. Always lease_s > valid_s > renew_s + call_s, or a slow answer would end a term."""

    lease_s: float = 15.0
    """A challenger waits for as long without a change."""
    valid_s: float = 10.0
    """A term holds for as long after the renewal was asked for; the rest of the lease is the margin for slow writes."""
    renew_s: float = 5.0
    call_s: float = 3.0
    """A request that takes longer has failed."""
    again_s: float = 1.0
    """Between tries, of a leader that could not renew and of a challenger that waits."""


@dataclass(frozen=True, slots=True)
class LeaseFact:
    """A lease as it was read; holder "" for nobody."""

    holder: str
    transitions: int
    version: str
    renewed: str
    duration_s: float


class LeaseTerm:
    """A term that holds until some time after its last renewal."""

    def __init__(self, epoch: int, until: float, clock: Callable[[], float]) -> None:
        self.epoch: int | None = epoch
        self._until = until
        self._clock = clock

    def valid(self) -> bool:
        """Whether the term has not passed."""
        return self._clock() < self._until

    @property
    def left_s(self) -> float:
        """Seconds for which it still holds."""
        return self._until - self._clock()

    def extend(self, until: float) -> None:
        """Let it hold longer, after a renewal."""
        self._until = until

    def end(self) -> None:
        """Let it be over."""
        self._until = float("-inf")


def boot_clock() -> float:
    """Give the seconds since boot, those in which the machine slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseElector:
    """Takes one lease, keeps it, and gives it back. For one term: a leader that lost ends, and starts anew as a challenger."""

    def __init__(
        self,
        kube: KubeSession,
        namespace: str,
        *,
        name: str,
        identity: str | None = None,
        timing: LeaseTiming | None = None,
        clock: Callable[[], float] = boot_clock,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._kube = kube
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
        self._timing = timing or LeaseTiming()
        self._clock = clock
        self._wall = wall
        self._seen: LeaseFact | None = None
        self._seen_at = 0.0
        self._version = ""
        self.leader = ""
        """Who leads, as far as is known."""

    async def acquire(self) -> LeaseTerm:
        """Wait until this process leads. Raises BackendError when it never can."""
        while True:
            begun = self._clock()
            try:
                epoch = await self._timed(self._try)
            except (errors.Forbidden, errors.NotFound) as error:
                raise BackendError(
                    f"no lease can be had, so nobody can tell who leads: {error}; the account of simrun needs"
                    " get, create and patch on leases.coordination.k8s.io in a namespace that exists"
                ) from error
            except errors.ApiError as error:
                _log.warning("the lease can't be read", extra={"error": str(error)})
                epoch = None
            if epoch is not None:
                _log.info("leading", extra={"epoch": epoch, "identity": self.identity})
                return LeaseTerm(epoch, begun + self._timing.valid_s, self._clock)
            await asyncio.sleep(self._timing.again_s)

    def holding(self, term: LeaseTerm) -> AbstractAsyncContextManager[Term]:
        """Lead until left; see `holding`."""
        return holding(self, term)

    async def keep(self, term: LeaseTerm) -> NoReturn:
        """Renew the term until it is lost. Raises LeadershipLost."""
        wait = self._timing.renew_s
        while True:
            await asyncio.sleep(max(0.0, min(wait, term.left_s)))
            if not term.valid():
                raise LeadershipLost(
                    f"the lease {self._name} was not renewed for {self._timing.valid_s:.0f} s"
                )
            begun = self._clock()
            try:
                await self._timed(self._renew)
            except errors.ApiError as error:
                _log.warning("the lease is not renewed yet", extra={"error": str(error)})
                wait = self._timing.again_s
            except LeadershipLost:
                term.end()
                raise
            else:
                term.extend(begun + self._timing.valid_s)
                wait = self._timing.renew_s

    async def release(self) -> None:
        """Give the lease back, if it is still ours, so that nobody has to wait for its end."""
        if not self._version:
            return
        body: JsonObject = {
            "metadata": {"resourceVersion": self._version},
            "spec": {"holderIdentity": "", "renewTime": self._time(), "leaseDurationSeconds": 1},
        }
        with suppress(errors.ApiError):
            await self._timed(lambda: self._kube.patch(self._path, body))

    # --- inside --------------------------------------------------------------------------------------------------------

    async def _try(self) -> int | None:
        """Take the lease if nobody has it: the epoch of the new term, None while somebody leads."""
        fact = await self._read()
        if fact is None:
            first = int(self._wall()) // 10
            return await self._write(first, lambda spec: self._kube.create(self._collection, spec))
        self.leader = fact.holder
        if fact != self._seen:
            self._seen, self._seen_at = fact, self._clock()
        waited = self._clock() - self._seen_at
        # Our own name there: a request of ours arrived whose answer did not
        if fact.holder not in ("", self.identity) and waited < max(fact.duration_s, 1.0):
            return None
        return await self._write(
            fact.transitions + 1, lambda body: self._kube.patch(self._path, body), fact.version
        )

    async def _write(
        self, epoch: int, send: Callable[[JsonObject], Awaitable[JsonObject]], version: str = ""
    ) -> int | None:
        now = self._time()
        body: JsonObject = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, round(self._timing.lease_s)),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": epoch,
            },
        }
        if version:
            body["metadata"]["resourceVersion"] = version
        try:
            made = await send(body)
        except errors.Conflict:
            return None  # somebody was quicker
        except errors.NotFound:
            if version:
                return None  # it was deleted meanwhile
            raise  # there is no such namespace
        self._version = str(made["metadata"]["resourceVersion"])
        self.leader = self.identity
        return epoch

    async def _renew(self) -> None:
        body: JsonObject = {
            "metadata": {"resourceVersion": self._version},
            "spec": {"holderIdentity": self.identity, "renewTime": self._time()},
        }
        try:
            made = await self._kube.patch(self._path, body)
        except errors.NotFound as error:
            raise LeadershipLost(f"the lease {self._name} was deleted") from error
        except errors.Conflict:
            await self._look_again()
        else:
            self._version = str(made["metadata"]["resourceVersion"])

    async def _look_again(self) -> None:
        """After a conflict: ours still, when an answer was lost or somebody labelled it; else lost."""
        fact = await self._read()
        if fact is None or fact.holder != self.identity:
            raise LeadershipLost(
                f"the lease {self._name} is held by {fact.holder if fact else 'nobody'}"
            )
        self._version = fact.version
        raise errors.ServerFailure("the lease changed; it is renewed from its new version")

    async def _read(self) -> LeaseFact | None:
        try:
            obj = await self._kube.get(self._path)
        except errors.NotFound:
            return None
        spec = obj.get("spec") or {}
        return LeaseFact(
            holder=str(spec.get("holderIdentity") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
            version=str(obj["metadata"]["resourceVersion"]),
            renewed=str(spec.get("renewTime") or ""),
            duration_s=float(spec.get("leaseDurationSeconds") or 1),
        )

    async def _timed(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a request that may not take longer than a term bears."""
        try:
            async with asyncio.timeout(self._timing.call_s):
                return await call()
        except TimeoutError as error:
            raise errors.Unreachable(
                f"lease {self._name}: no answer within {self._timing.call_s} s"
            ) from error

    @property
    def _path(self) -> str:
        return f"{self._collection}/{self._name}"

    def _time(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@asynccontextmanager
async def holding(elector: LeaseElector, term: LeaseTerm) -> AsyncIterator[Term]:
    """Lead until left.

    When leadership is lost, what runs inside is cancelled and LeadershipLost is raised once it has ended. The lease is
    given back after that, and only while it is ours.
    """
    lost: LeadershipLost | None = None
    failed: Exception | None = None
    try:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(elector.keep(term), name="lease")
            try:
                yield term
            except Exception as error:  # noqa: BLE001 - raised again below, and not in a group of exceptions
                failed = error
            finally:
                keeping.cancel()
    except* LeadershipLost as several:
        lost = _first(several)
    finally:
        if term.valid():
            term.end()
            await elector.release()
    if lost is not None:
        raise lost from failed
    if failed is not None:
        raise failed


def _first(group: BaseExceptionGroup[LeadershipLost]) -> LeadershipLost:
    for error in group.exceptions:
        return _first(error) if isinstance(error, BaseExceptionGroup) else error
    raise AssertionError("an empty group of exceptions")


def lease_name(config: ClusterConfig) -> str:
    """Give the lease of a store: two services compete if they share one, and services of several stores may share a namespace."""
    store = json.dumps([config.store, config.store_path.strip("/")], sort_keys=True)
    return f"simrun-{hashlib.sha256(store.encode()).hexdigest()[:10]}"


@asynccontextmanager
async def open_elector(
    config: ClusterConfig,
    kubeconfig: Path | None = None,
    context: str | None = None,
    timing: LeaseTiming | None = None,
) -> AsyncIterator[LeaseElector]:
    """Connect to a cluster for its lease alone: calls of its own connections never wait behind others."""
    async with await KubeSession.open(kubeconfig, context) as kube:
        yield LeaseElector(kube, config.namespace, name=lease_name(config), timing=timing)
