"""Who asks: bearer tokens of a file that is read again when it changes.

The file holds hashes. It is looked at every two seconds by what stat says of it, in a thread: in a pod it is a mounted Secret, which is
replaced as a whole. A file that is wrong or gone leaves the tokens as they were, and the log says so: a slip of the pen must not lock
everybody out, and nobody gets in by it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simrun.aio.threads import Pool
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import Exhausted, InvalidInput, SimrunError, Unauthorized
from simrun.model.access import Scope, TokenEntry, TokenFile, token_hash
from simrun.model.load import load_settings

log = logging.getLogger(__name__)

LOOK_S = 2.0
TICKET_S = 30.0
TICKETS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever made a request. groups: whose things they may see and use; None: everybody's."""

    name: str
    scope: Scope
    groups: frozenset[str] | None

    def sees(self, group: str) -> bool:
        """Whether things of a group are there for this caller."""
        return self.groups is None or group in self.groups

    @property
    def only(self) -> frozenset[str] | None:
        """The groups to which lists are held; None for all."""
        return self.groups


ANYBODY = Principal("", Scope.ADMIN, None)
"""Who may reach a server without tokens, which listens on loopback only, may do everything."""

NOBODY = Principal("", Scope.READ, frozenset())
"""Who asks a server with tokens for what is open to everybody."""


def load_tokens(file: Path) -> tuple[TokenEntry, ...]:
    """Read a file of tokens (blocking). Raises InvalidInput with all that is wrong."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise InvalidInput.one(
            "--tokens",
            f"can't be read: {error.strerror}",
            value=str(file),
            remedy="make an entry for it with `simrun token create`",
        ) from error
    return tuple(load_settings(TokenFile, text, file=str(file)).root)


class Tokens:
    """The tokens of a file, as it is now."""

    def __init__(self, file: Path, clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock or SystemClock()
        self._entries: tuple[TokenEntry, ...] = ()
        self._seen: tuple[int, ...] | None = None
        self.failures = 0
        """Changes of the file that could not be taken over."""

    @property
    def entries(self) -> tuple[TokenEntry, ...]:
        """What the file held when it was last good."""
        return self._entries

    def load(self) -> None:
        """Read the file (blocking). Raises InvalidInput."""
        seen = self._look()
        self._entries = load_tokens(self._file)
        self._seen = seen
        if not self._entries:
            log.warning("no token in %s: nobody may use this server", self._file)

    def reload(self) -> bool:
        """Read the file again if it is another than before (blocking); whether a token was taken away or changed."""
        if (seen := self._look()) == self._seen:
            return False
        before = self._entries
        try:
            self.load()
        except SimrunError as error:
            self._seen = seen  # said once for each state of the file
            self.failures += 1
            log.warning("the tokens are left as they were: %s", error)
            return False
        log.info("read %d tokens from %s", len(self._entries), self._file)
        return not set(before) <= set(self._entries)

    async def follow(self, on_withdrawn: Callable[[], None], every_s: float = LOOK_S) -> None:
        """Take over changes of the file until cancelled; `on_withdrawn` is called when a token is no longer what it was, or has expired."""
        pool, over = Pool("tokens", 1), self._over()
        try:
            while True:
                await asyncio.sleep(every_s)
                withdrawn, before = await pool.run(self.reload), over
                over = self._over()
                if withdrawn or not over <= before:
                    on_withdrawn()
        finally:
            pool.close()

    def principal(self, token: str) -> Principal:
        """Give whose token it is. Raises Unauthorized."""
        digest, found = token_hash(token), None
        for entry in self._entries:  # all of them, so that time tells nothing
            if entry.sha256 is not None and hmac.compare_digest(digest, entry.sha256):
                found = entry
        if found is None:
            raise Unauthorized("the token is not known here; it may have been withdrawn")
        if found.expires is not None and self.is_over(found):
            at = found.expires.astimezone(UTC)
            raise Unauthorized(f"the token {found.name!r} was good until {_text(at)}")
        return Principal(found.name, found.scope, None if found.of_all else found.groups)

    def is_over(self, entry: TokenEntry) -> bool:
        """Whether an entry has ended to be good."""
        return entry.expires is not None and entry.expires.timestamp() <= self._clock.wall()

    def _over(self) -> set[TokenEntry]:
        return {entry for entry in self._entries if self.is_over(entry)}

    def _look(self) -> tuple[int, ...] | None:
        try:
            seen = os.stat(self._file)
        except OSError:
            return None
        return (seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


class Tickets:
    """What a browser opens a stream with, where it can't send a token: good once, and for half a minute."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._given: dict[str, tuple[Principal, float]] = {}

    def give(self, principal: Principal) -> str:
        """Make a ticket for whoever asks. Raises Exhausted when too many were not used."""
        now = self._clock.monotonic()
        if len(self._given) >= TICKETS_MAX:
            self._given = {key: item for key, item in self._given.items() if item[1] > now}
            if len(self._given) >= TICKETS_MAX:
                raise Exhausted("too many tickets are not used yet", retry_after_s=TICKET_S)
        ticket = secrets.token_urlsafe(32)
        self._given[token_hash(ticket)] = (principal, now + TICKET_S)
        return ticket

    def redeem(self, ticket: str) -> Principal:
        """Give whose ticket it is, which it is no longer. Raises Unauthorized."""
        principal, until = self._given.pop(token_hash(ticket), (None, 0.0))
        if principal is None or until <= self._clock.monotonic():
            raise Unauthorized(
                f"the ticket is used or older than {TICKET_S:.0f} s; POST /api/v1/tickets gives another"
            )
        return principal

    def withdraw(self) -> None:
        """Take back all that are not used, since whoever has one may have lost the token it came from."""
        self._given.clear()
