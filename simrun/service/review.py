"""Who asks, by what the cluster says of their token: entries of the tokens' file that name users and groups of the cluster.

What the cluster said is believed for a minute, and that it knew nobody for ten seconds, so that a client that asks often is not asked about
each time. Anybody may send tokens, so only a few are asked about at a time: the connections to the cluster are for the runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from simrun.backends.base import Identity
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import BackendError, BackendUnavailable, Exhausted, Unauthorized
from simrun.model.access import TOKEN_PREFIX, Scope, TokenEntry, token_hash
from simrun.service.auth import Principal, Tokens

BELIEVED_S = 60.0
REFUSED_S = 10.0
KNOWN_MAX = 1000
AT_ONCE = 4
WAITING_MAX = 200
"""Requests that wait for their turn to be asked about."""

Review = Callable[[str], Awaitable[Identity | None]]


class Authenticator:
    """Knows callers by the tokens of the file and, where there is a cluster that is asked, by who they are there."""

    def __init__(
        self, tokens: Tokens, review: Review | None = None, clock: Clock | None = None
    ) -> None:
        self._tokens, self._review = tokens, review
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[float, Identity | None]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def principal(self, token: str) -> Principal:
        """Give whose token it is.

        Raises Unauthorized, Exhausted when too many wait, BackendUnavailable when the cluster has to be asked and does not answer.
        """
        asked = [entry for entry in self._tokens.entries if entry.sha256 is None]
        if self._review is None or not asked or token.startswith(TOKEN_PREFIX):
            return self._tokens.principal(token)
        identity = await self._identity(token)
        if identity is None:
            raise Unauthorized(
                "the cluster does not know this token, or it was not made for the audience simrun"
            )
        good = [entry for entry in asked if not self._tokens.is_over(entry)]
        return _principal(identity, good)

    async def _identity(self, token: str) -> Identity | None:
        key = token_hash(token)
        if not self._is_known(key):
            if self._waiting >= WAITING_MAX:
                raise Exhausted("the cluster is asked about many tokens now", retry_after_s=1.0)
            self._waiting += 1
            try:
                async with self._turn:
                    if not self._is_known(key):  # else another request with it had its turn
                        await self._ask(token, key)
            finally:
                self._waiting -= 1
        return self._known[key][1]

    def _is_known(self, key: str) -> bool:
        return self._known.get(key, (0.0, None))[0] > self._clock.monotonic()

    async def _ask(self, token: str, key: str) -> None:
        assert self._review is not None
        try:
            found = await self._review(token)
        except BackendUnavailable:
            raise
        except BackendError as error:
            raise BackendUnavailable(
                f"the cluster can't be asked whose token it is: {error}; simrun needs `create` on tokenreviews"
            ) from error
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        lasts_s = REFUSED_S if found is None else BELIEVED_S
        self._known[key] = (self._clock.monotonic() + lasts_s, found)


def _principal(identity: Identity, entries: Iterable[TokenEntry]) -> Principal:
    """Give what somebody may: as their own entry says, else as those of their groups with the highest scope do.

    Entries of different scopes are never put together: to see one group's runs and to make another's is not to make both.
    """
    entries = list(entries)
    own = [entry for entry in entries if entry.kubernetes_user == identity.user]
    found = own or [entry for entry in entries if entry.kubernetes_group in identity.groups]
    if not found:
        raise Unauthorized(f"{identity.user} is known to the cluster, but has no entry here")
    order = list(Scope)
    scope = max((entry.scope for entry in found), key=order.index)
    found = [entry for entry in found if entry.scope is scope]
    groups = frozenset[str]().union(*(entry.groups for entry in found))
    return Principal(identity.user, scope, None if any(e.of_all for e in found) else groups)
