"""Who may do what: words that the service and whoever makes tokens share."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, RootModel, field_validator, model_validator

from simrun.base import ids
from simrun.model.base import Model
from simrun.model.faults import Fault, FieldFaults

TOKEN_PREFIX = "simrun_"
EVERY_GROUP = "*"
_SECRET_BYTES = 32
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]{0,61}[A-Za-z0-9])?")


class Scope(StrEnum):
    """What a token allows; `run` includes `read`, `admin` both."""

    READ = "read"
    """See runs, logs, artifacts, plans."""
    RUN = "run"
    """Submit, cancel, retry and delete runs; make snapshots and launch plans."""
    ADMIN = "admin"
    """What concerns everybody: all groups, pausing all schedules."""

    def allows(self, wanted: Scope) -> bool:
        """Whether this scope is enough where `wanted` is asked for."""
        order = list(Scope)
        return order.index(self) >= order.index(wanted)


def _utc(value: datetime) -> datetime:
    """Take a time without a zone as one of UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


class TokenEntry(Model):
    """Whom the server lets in: by a token, of which it keeps all but the token itself, or by who they are on the cluster."""

    name: str
    """Whose it is, or what for; stands in logs."""
    sha256: str | None = None
    """Hash of the token in hexadecimal. Tokens are random, so nothing slower is needed."""
    kubernetes_user: str | None = None
    """In place of `sha256`: a user of the cluster, such as system:serviceaccount:NAMESPACE:NAME, by any token of theirs for simrun."""
    kubernetes_group: str | None = None
    """In place of `sha256`: everybody of a group of the cluster."""
    scope: Scope
    groups: frozenset[str] = frozenset()
    """Whose things it may see and use; `*` for everybody's. Of no use in scope admin, which is for all groups."""
    expires: Annotated[datetime, AfterValidator(_utc)] | None = None
    """When it ends to be good; a date is its first moment, UTC. Never where it is absent."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("must be 1 to 63 letters, digits, '.', '_', '@' or '-'")
        return value

    @field_validator("sha256", mode="before")
    @classmethod
    def _sha256(cls, value: object) -> object:
        if value is None or (isinstance(value, str) and _SHA256.fullmatch(value)):
            return value
        # What stands there may be the token itself, which no error may show
        text = "must be the 64 hexadecimal digits that `simrun token create` printed"
        raise FieldFaults([Fault((), text)])

    @field_validator("groups")
    @classmethod
    def _groups(cls, value: frozenset[str]) -> frozenset[str]:
        problems = [
            f"{group!r} {problem}" for group in value if (problem := ids.group_problem(group))
        ]
        if problems:
            raise ValueError("; ".join(sorted(problems)))
        return value

    @model_validator(mode="after")
    def _admin_has_all(self) -> Self:
        if self.scope is Scope.ADMIN and self.groups:
            remedy = "leave groups out, or take scope run"
            raise FieldFaults(
                [Fault(("groups",), "must be empty: scope admin is for all groups", remedy=remedy)]
            )
        return self

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        ways = (self.sha256, self.kubernetes_user, self.kubernetes_group)
        if sum(way is not None for way in ways) != 1:
            raise ValueError("must have one of sha256, kubernetes_user and kubernetes_group")
        return self

    @property
    def of_all(self) -> bool:
        """Whether it is for the things of every group."""
        return self.scope is Scope.ADMIN or EVERY_GROUP in self.groups


class TokenFile(RootModel[list[TokenEntry]]):
    """The file of `simrun serve --tokens`: a list of entries."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        faults: list[Fault] = []
        for field in ("name", "sha256", "kubernetes_user", "kubernetes_group"):
            seen: set[str] = set()
            for number, entry in enumerate(self.root):
                value = getattr(entry, field)
                if value is not None and value in seen:
                    faults.append(Fault((number, field), "is there twice", value))
                seen.add(value)
        if faults:
            raise FieldFaults(faults)
        return self


def new_token() -> str:
    """Make a token: 32 random bytes as text."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def token_hash(token: str) -> str:
    """Give the hash that stands in a token's entry."""
    return hashlib.sha256(token.encode()).hexdigest()
