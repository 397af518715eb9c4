"""Who asks, by what the cluster says of their token: entries of the tokens' file that name users and groups of the cluster.

What the cluster said is believed for a minute, and that it knew nobody for ten seconds, so that a client that asks often is not asked about
each time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from simrun.backends.base import Identity
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import BackendError, BackendUnavailable, Unauthorized
from simrun.model.access import TOKEN_PREFIX, Scope, TokenEntry, token_hash
from simrun.service.auth import Principal, Tokens

BELIEVED_S = 60.0
REFUSED_S = 10.0
KNOWN_MAX = 1000

Review = Callable[[str], Awaitable[Identity | None]]


class Authenticator:
    """Knows callers by the tokens of the file and, where there is a cluster that is asked, by who they are there."""

    def __init__(
        self, tokens: Tokens, review: Review | None = None, clock: Clock | None = None
    ) -> None:
        self._tokens, self._review = tokens, review
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[float, Identity | None]] = {}

    async def principal(self, token: str) -> Principal:
        """Give whose token it is. Raises Unauthorized, BackendUnavailable when the cluster has to be asked and does not answer."""
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
        key, now = token_hash(token), self._clock.monotonic()
        until, known = self._known.get(key, (0.0, None))
        if until > now or self._review is None:
            return known
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
        self._known[key] = (now + (REFUSED_S if found is None else BELIEVED_S), found)
        return found


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
