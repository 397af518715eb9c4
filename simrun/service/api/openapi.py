"""/openapi.json, made from the operations, and a page to read it, which needs nothing from elsewhere."""

from __future__ import annotations

import html
import inspect
import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from simrun.base.about import VERSION
from simrun.service.api.access import SESSION
from simrun.service.api.problems import CONTENT_TYPE, ProblemDocument
from simrun.service.api.routing import JSON, PARAMETER, NoQuery, Operation, Operations

operations = Operations("service")

_REF = "#/components/schemas/{model}"
_EVERYWHERE = (400, 403, 500, 503)
"""What any operation may answer: a query that is wrong, a page of another site, a bug, a store that does not answer."""
_WITH_TOKEN = (401, 429)
_PATHS = {
    "run": "Id of a run.",
    "task": "Id of a task.",
    "path": "Path of an artifact: `<task>/<path in its output>`.",
    "worker": "A worker: `sweep-w1`.",
    "attempt": "Its attempt, counted from 0.",
    "snapshot": "Name of a snapshot.",
    "plan": "Name of a launch plan.",
    "version": "One of its versions.",
}


@operations.get("/openapi.json", scope=None, content_type=JSON)
async def openapi(request: web.Request) -> web.StreamResponse:
    """Give this description of the API."""
    text = await request.app[SESSION].in_index(request.app[DESCRIPTION].text)
    return web.Response(text=text, content_type=JSON, headers={"Cache-Control": "max-age=300"})


@operations.get("/docs", scope=None, content_type="text/html")
async def docs(request: web.Request) -> web.StreamResponse:
    """Show the description of the API as a page."""
    text = await request.app[SESSION].in_index(request.app[DESCRIPTION].page)
    return web.Response(
        text=text,
        content_type="text/html",
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )


class Description:
    """The description of operations as text and as a page, made when they are asked for the first time: it takes its time."""

    def __init__(self, found: Iterable[Operation]) -> None:
        self._found = list(found)
        self._text = self._page = ""

    def text(self) -> str:
        """Give it; takes a quarter of a second the first time."""
        if not self._text:
            self._text = json.dumps(describe(self._found))
        return self._text

    def page(self) -> str:
        """Give it for people; takes as long the first time."""
        if not self._page:
            self._page = page(self._found)
        return self._page


DESCRIPTION = web.AppKey("description", Description)


def describe(found: Iterable[Operation]) -> dict[str, Any]:
    """Give the OpenAPI 3.1 document of operations."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for operation in found:
        paths.setdefault(operation.template, {})[operation.method.lower()] = _operation(
            operation, schemas
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "simrun",
            "version": VERSION,
            "description": "Runs simulation campaigns. Errors are problem documents (RFC 9457).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    text = inspect.cleandoc(operation.text)
    summary, _, rest = text.partition("\n")
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": summary.rstrip("."),
        "parameters": [
            *_path_parameters(operation),
            *_query(operation, schemas),
            *_header(operation),
        ],
        "responses": _responses(operation, schemas),
    }
    if rest.strip():
        found["description"] = rest.strip()
    if operation.scope is not None:
        found["security"] = [
            {"token": []},
            {},
        ]  # on loopback without tokens nobody is asked for one
        found["x-scope"] = str(operation.scope)
    if operation.body is not None:
        content: dict[str, Any] = {JSON: {"schema": _schema(operation.body, schemas)}}
        content |= {kind: {} for kind in operation.uploads}
        found["requestBody"] = {"required": operation.body_required, "content": content}
    elif operation.uploads:
        found["requestBody"] = {
            "required": True,
            "content": {kind: {} for kind in operation.uploads},
        }
    return found


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATHS[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in PARAMETER.findall(operation.path)
    ]


def _query(operation: Operation, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if operation.query is NoQuery:
        return []
    schema = operation.query.model_json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    needed = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "description": one.pop("description", ""),
            "schema": _without_null(one),
            **({"style": "form", "explode": False} if one.get("type") == "array" else {}),
        }
        for name, one in schema.get("properties", {}).items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop null from a query's parameter: what is absent is not written there."""
    kept = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    found = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    if found.get("default", 0) is None:
        del found["default"]
    return found | (kept[0] if len(kept) == 1 else {"anyOf": kept} if kept else {})


def _header(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string"},
        }
        for name, text in operation.headers.items()
        if name.lower() not in ("accept", "content-type", "authorization")
    ]


def _responses(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in (operation.status, *operation.also):
        entry: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if operation.answer is not None:
            entry["content"] = {JSON: {"schema": _schema(operation.answer, schemas)}}
        elif status not in (204, 304):
            entry["content"] = {operation.content_type: {}}
        found[str(status)] = entry
    document = _schema(ProblemDocument, schemas)
    with_token = () if operation.scope is None else _WITH_TOKEN
    for status in sorted({*_EVERYWHERE, *with_token, *operation.problems}):
        content = {CONTENT_TYPE: {"schema": document}}
        if str(status) in found:  # what says no in its own words, as readiness does
            content |= found[str(status)]["content"]
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return found


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Give a reference to, or the schema of, a type; what it refers to is put among the components."""
    schema = TypeAdapter(kind).json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    title = getattr(kind, "__name__", "")
    if schema.get("type") == "object" and title:
        schemas[title] = schema
        return {"$ref": _REF.format(model=title)}
    return schema


# --- the page --------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
summary { cursor: pointer; padding: 0.3rem 0; }
summary b { display: inline-block; width: 4.5rem; }
dt { font-family: ui-monospace, monospace; } dd { margin: 0 0 0.4rem 1.5rem; }
pre { overflow: auto; padding: 0.8rem; border: 1px solid #8884; border-radius: 6px; }
"""


def page(found: Iterable[Operation]) -> str:
    """Give the description of operations as a page of HTML, whole in itself."""
    document = describe(found)
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            by_tag.setdefault(one["tags"][0], []).append(_entry(path, method, one))
    parts = [f"<h2>{html.escape(tag)}</h2>{''.join(entries)}" for tag, entries in by_tag.items()]
    models = "".join(
        f'<details id="{html.escape(name)}"><summary><code>{html.escape(name)}</code></summary>{_pre(schema)}</details>'
        for name, schema in document["components"]["schemas"].items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>simrun: the API</title><style>{_STYLE}</style><h1>simrun {html.escape(document['info']['version'])}</h1>"
        "<p>For programs: <a href='openapi.json'>openapi.json</a>. Errors are problem documents (RFC 9457).</p>"
        f"{''.join(parts)}<h2>models</h2>{models}"
    )


def _kind(parameter: Mapping[str, Any]) -> str:
    """Give where a parameter stands, and what is taken where it does not: `query, 50 if absent, at most 500`."""
    schema = parameter["schema"]
    said = [parameter["in"]]
    if parameter["required"] and parameter["in"] == "query":
        said.append("needed")
    if (default := schema.get("default")) not in (None, "", [], ()):
        said.append(f"{json.dumps(default)} if absent")
    if "maximum" in schema:
        said.append(f"at most {schema['maximum']}")
    return ", ".join(said)


def _entry(path: str, method: str, one: Mapping[str, Any]) -> str:
    parameters = "".join(
        f"<dt>{html.escape(p['name'])} <small>({html.escape(_kind(p))})</small></dt><dd>{html.escape(p['description'])}</dd>"
        for p in one["parameters"]
    )
    answers = "".join(
        f"<dt>{status}</dt><dd>{html.escape(entry['description'])} {_models(entry)}</dd>"
        for status, entry in one["responses"].items()
    )
    scope = f"<p>Scope: {html.escape(one['x-scope'])}</p>" if "x-scope" in one else ""
    body = f"<p>Body: {_models(one['requestBody'])}</p>" if "requestBody" in one else ""
    return (
        f"<details><summary><b>{method.upper()}</b> <code>{html.escape(path)}</code> {html.escape(one['summary'])}</summary>"
        f"<p>{html.escape(one.get('description', ''))}</p>{scope}{body}<dl>{parameters}{answers}</dl></details>"
    )


def _models(entry: Mapping[str, Any]) -> str:
    links = []
    for kind, content in entry.get("content", {}).items():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        links.append(
            f'<a href="#{html.escape(name)}">{html.escape(name)}</a>' if name else html.escape(kind)
        )
    return ", ".join(links)


def _pre(schema: Any) -> str:
    return f"<pre>{html.escape(json.dumps(schema, indent=2))}</pre>"
