"""Operations: what the API answers, said once; routes, checks of queries and bodies, and /openapi.json are made from it.

A module of a resource has one `Operations` and decorates its handlers:

    operations = Operations("runs")

    @operations.get("/api/v1/runs", scope=Scope.READ, query=RunQuery, answer=RunPage)
    async def list_runs(request: web.Request) -> web.StreamResponse:
        query = query_of(request, RunQuery)
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from simrun.base.errors import InvalidInput, Problem
from simrun.model.access import Scope
from simrun.service.api.bodies import whole

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Decorator = Callable[[Handler], Handler]

PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
"""A parameter in the path of an operation: its name, and what it may be where that is said."""
JSON = "application/json"
EVENT_STREAM = "text/event-stream"
BYTES = "application/octet-stream"


class BadQuery(InvalidInput):
    """Raised when a query or a header is wrong: 400, where a wrong body is 422."""


class Query(BaseModel):
    """What may stand behind the `?` of an operation; what is not a field of it is refused."""

    # The docstring of a field is its description in /openapi.json
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    repeated: ClassVar[frozenset[str]] = frozenset()
    """Fields that may be given more than once: as often as they have values, which may stand between commas too."""


Q = TypeVar("Q", bound=Query)


class NoQuery(Query):
    """Nothing may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    scope: what the caller's token must allow, None for what everybody may ask. answer: the type of the body of a good answer, None
    where it is no JSON; its status is `status`, `also` lists further good ones. body: the type of a JSON body; `uploads` says that
    other content types carry it too. problems: what is refused beside what every operation may answer (400, 401, 403, 429, 500, 503).
    """

    method: str
    path: str
    handler: Handler
    tag: str
    scope: Scope | None
    query: type[Query] = NoQuery
    body: Any = None
    body_required: bool = True
    uploads: tuple[str, ...] = ()
    answer: Any = None
    content_type: str = JSON
    status: int = 200
    also: tuple[int, ...] = ()
    problems: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers that mean something: name -> what."""

    @property
    def name(self) -> str:
        """Its name, once in the API: that of the handler."""
        return getattr(self.handler, "__name__", "")

    @property
    def template(self) -> str:
        """Its path without the patterns of its parameters: `/api/v1/runs/{run}`."""
        return PARAMETER.sub(r"{\1}", self.path)

    @property
    def text(self) -> str:
        """What it does, in the words of the handler's docstring."""
        return self.handler.__doc__ or ""


OPERATIONS: web.AppKey[dict[Handler, Operation]] = web.AppKey("operations", dict)
"""The operations of an application by their handlers."""


class Operations:
    """The operations of one resource."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Operation] = []

    def add(self, method: str, path: str, **how: Any) -> Decorator:
        """Say that the decorated handler answers a method of a path; `how`: the fields of Operation."""

        def decorate(handler: Handler) -> Handler:
            self.all.append(
                Operation(method=method, path=path, handler=handler, tag=self.tag, **how)
            )
            return handler

        return decorate

    def get(self, path: str, **how: Any) -> Decorator:
        """Say that the decorated handler answers GET."""
        return self.add("GET", path, **how)

    def post(self, path: str, **how: Any) -> Decorator:
        """Say that the decorated handler answers POST."""
        return self.add("POST", path, **how)

    def put(self, path: str, **how: Any) -> Decorator:
        """Say that the decorated handler answers PUT."""
        return self.add("PUT", path, **how)

    def delete(self, path: str, **how: Any) -> Decorator:
        """Say that the decorated handler answers DELETE."""
        return self.add("DELETE", path, **how)


def add_operations(app: web.Application, groups: Iterable[Operations]) -> None:
    """Make routes of operations; HEAD goes with GET where the answer has an end."""
    found = app[OPERATIONS] = {
        operation.handler: operation for group in groups for operation in group.all
    }
    for operation in found.values():
        if operation.method == "GET":
            head = operation.content_type != EVENT_STREAM
            app.router.add_get(operation.path, operation.handler, allow_head=head)
        else:
            app.router.add_route(operation.method, operation.path, operation.handler)


def operation_of(request: web.Request) -> Operation | None:
    """Give the operation that answers a request; None where no operation does (404, 405)."""
    return request.app[OPERATIONS].get(request.match_info.handler)


def query_of(request: web.Request, model: type[Q]) -> Q:
    """Read what stands behind the `?`. Raises BadQuery that names field, value and what is allowed."""
    given = {key: request.query.getall(key) for key in request.query}
    once = given.keys() - model.repeated
    if twice := sorted(key for key in once if len(given[key]) > 1):
        raise BadQuery([Problem(twice[0], "is given more than once")])
    try:
        return model.model_validate({key: ",".join(values) for key, values in given.items()})
    except ValidationError as error:
        raise BadQuery(_problems(error)) from error


async def body_of(request: web.Request, kind: Any, *, required: bool = True) -> Any:
    """Read a JSON body of a type. Raises InvalidInput with all that is wrong; no body counts as {} where none is required."""
    raw = await whole(request)
    if not raw and not required:
        raw = b"{}"
    elif request.content_type != JSON:
        raise web.HTTPUnsupportedMediaType(
            text=f"the body must be {JSON}, not {request.content_type}"
        )
    try:
        return TypeAdapter(kind).validate_json(raw)
    except ValidationError as error:
        raise InvalidInput(_problems(error)) from error


def answer(
    body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Give a JSON answer of a model, a dataclass, or what JSON can say."""
    if isinstance(body, (dict, list)):
        data = json.dumps(body, separators=(",", ":")).encode()
    else:
        data = TypeAdapter(type(body)).dump_json(body)
    return web.Response(body=data, status=status, content_type=JSON, headers=headers)


def _problems(error: ValidationError) -> list[Problem]:
    return [
        Problem(
            ".".join(map(str, item["loc"])),
            item["msg"].removeprefix("Value error, "),
            None if item["type"] == "missing" else repr(item.get("input"))[:200],
        )
        for item in error.errors(include_url=False)
    ]
