"""/api/v1/runs: the list, newest first, page by page, with filters."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, ClassVar

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema, field_validator

from simrun.model.access import Scope
from simrun.model.record import RunState
from simrun.service.api.access import SESSION, principal_of
from simrun.service.api.paging import cursor_of, position_of
from simrun.service.api.routing import JSON, Operations, Query, query_of
from simrun.service.runquery import Position, RunFilter
from simrun.service.runrow import RunRow

PAGE = 50
PAGE_MAX = 500
LABELS_MAX = 8
_LATEST = 253402300800.0
"""The year 10000: times in milliseconds are a mistake."""

operations = Operations("runs")


def _listed(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _instant(value: object) -> object:
    """Give the wall seconds that a text says: ISO 8601 with a zone, or seconds since 1970."""
    if not isinstance(value, str):
        return value
    try:
        seconds = float(value)
    except ValueError:
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                "must be ISO 8601 with a zone (2026-11-30T18:00:00Z) or seconds since 1970"
            ) from None
        if time.tzinfo is None:
            raise ValueError("has no zone; add Z or an offset such as %2B01:00") from None
        seconds = time.timestamp()
    if not 0 <= seconds < _LATEST:
        raise ValueError("must be seconds since 1970, before the year 10000")
    return seconds


Instant = Annotated[
    float,
    BeforeValidator(_instant),
    WithJsonSchema({"type": "string", "examples": ["2026-11-30T18:00:00Z", "1796061600"]}),
]


class RunQuery(Query):
    """Which runs are listed."""

    repeated: ClassVar[frozenset[str]] = frozenset({"state", "label"})

    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    """How many at most."""
    cursor: str | None = Field(
        default=None, description="Where the page before this one ended, as that said."
    )
    state: Annotated[tuple[RunState, ...], BeforeValidator(_listed)] = Field(
        default=(), description="In one of these states."
    )
    group: str | None = Field(default=None, description="Of this group.")
    name: str | None = Field(default=None, description="Of this name.")
    label: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        default=(),
        description="With all of these labels, each as key=value.",
        max_length=LABELS_MAX,
    )
    created_after: Instant | None = Field(
        default=None,
        description="Created then or later: ISO 8601 with a zone, or seconds since 1970.",
    )
    created_before: Instant | None = Field(default=None, description="Created before then.")
    prefix: str | None = Field(
        default=None, description="With an id that begins so.", max_length=64
    )

    @field_validator("label")
    @classmethod
    def _pairs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        keys = [item.partition("=")[0] for item in value]
        if wrong := next(
            (item for item in value if not item.partition("=")[0] or "=" not in item), None
        ):
            raise ValueError(f"must be key=value, not {wrong!r}")
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise ValueError(f"names the key {twice!r} more than once")
        return value

    def wanted(self, groups: frozenset[str] | None) -> RunFilter:
        """Give the filter, for a caller who sees these groups."""
        return RunFilter(
            states=tuple(map(str, self.state)),
            group=self.group,
            groups=groups,
            name=self.name,
            labels=dict(item.split("=", 1) for item in self.label),
            created_after=self.created_after,
            created_before=self.created_before,
            prefix=self.prefix,
        )


class RunPage(BaseModel):
    """Some runs, newest first, and where to go on; no cursor on the last page."""

    runs: list[RunRow]
    cursor: str | None


@operations.get("/api/v1/runs", scope=Scope.READ, query=RunQuery, answer=RunPage)
async def list_runs(request: web.Request) -> web.StreamResponse:
    """List runs, newest first."""
    query = query_of(request, RunQuery)
    identity = _identity(query)
    after = None
    if query.cursor is not None:
        after = Position(*position_of(query.cursor, identity, float, str))
    texts = await request.app[SESSION].page(
        query.wanted(principal_of(request).only), limit=query.limit + 1, after=after
    )
    cursor = None
    if len(texts) > query.limit:
        del texts[query.limit :]
        last = json.loads(texts[-1])
        cursor = cursor_of(identity, [last["created"], last["id"]])
    # Put together from what the index keeps: 300 pages a second leave no time to make 15,000 rows
    body = f'{{"runs":[{",".join(texts)}],"cursor":{json.dumps(cursor)}}}'
    return web.Response(body=body.encode(), content_type=JSON)


def _identity(query: RunQuery) -> dict[str, Any]:
    """Give what makes this list another than others: everything but the place in it and the size of a page."""
    given = query.model_dump(mode="json", exclude={"limit", "cursor"})
    return {**given, "state": sorted(given["state"]), "label": sorted(given["label"])}
