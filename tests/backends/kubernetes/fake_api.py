"""An API server in memory: enough of lists, watches, patches and preconditions to break them in every way that was seen.

test_fake_api.py and tests/cluster/test_api_contract.py hold it and the real one to the same expectations.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]

KINDS = {
    "/api/v1": {
        "configmaps": "ConfigMap",
        "pods": "Pod",
        "nodes": "Node",
        "serviceaccounts": "ServiceAccount",
        "namespaces": "Namespace",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "/apis/argoproj.io/v1alpha1": {"workflows": "Workflow"},
    "/apis/kueue.x-k8s.io/v1beta2": {
        "workloads": "Workload",
        "localqueues": "LocalQueue",
        "clusterqueues": "ClusterQueue",
        "workloadpriorityclasses": "WorkloadPriorityClass",
    },
    "/apis/scheduling.k8s.io/v1": {"priorityclasses": "PriorityClass"},
    "/apis/coordination.k8s.io/v1": {"leases": "Lease"},
}


FURNITURE = (
    "/api/v1/namespaces/here",
    "/api/v1/namespaces/here/serviceaccounts/simrun-pod",
    "/api/v1/namespaces/here/persistentvolumeclaims/simrun-store",
    "/apis/kueue.x-k8s.io/v1beta2/namespaces/here/localqueues/simrun",
    "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/simrun-base",
    "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/simrun-extra",
    "/apis/scheduling.k8s.io/v1/priorityclasses/simrun-base",
    "/apis/scheduling.k8s.io/v1/priorityclasses/simrun-extra",
)
"""What ClusterConfig names by default."""


@dataclass
class Address:
    """A path taken apart: of a collection, or with a name of one object in it."""

    collection: str
    kind: str
    plural: str
    name: str = ""
    sub: str = ""


@dataclass
class Change:
    version: int
    type: str
    collection: str
    obj: Json
    before: Json | None


@dataclass
class Fault:
    """What to answer instead, for the next `times` requests that match."""

    status: int
    body: str
    matches: Callable[[web.Request], bool]
    times: int
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


def is_watch(request: web.Request) -> bool:
    return "watch" in request.query


def is_list(request: web.Request) -> bool:
    return request.method == "GET" and not is_watch(request)


def anything(request: web.Request) -> bool:
    return True


class FakeApi:
    """The objects, the history of their changes, and the faults that are to come."""

    def __init__(self) -> None:
        self.url = ""
        self.version = 100
        self.oldest = 0
        """Changes up to this version are forgotten."""
        self.token: str | None = None
        """The only bearer token that is accepted; None accepts anybody."""
        self.requests: list[web.Request] = []
        self.ports: list[int] = []
        """Of the client, for each request: the same one is the same connection."""
        self.logs: dict[str, bytes] = {}
        self.deleted_with_grace: dict[str, int] = {}
        self.unbound: set[str] = set()
        """Service accounts that may do nothing."""
        self.denied: set[str] = set()
        """What nobody may: "create workflows"."""
        self.frozen = False
        """Watches stay open and send nothing: what a dead connection looks like."""
        self._objects: dict[str, dict[str, Json]] = {}
        self._changes: list[Change] = []
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._faults: list[Fault] = []
        self._hangs: list[Callable[[web.Request], bool]] = []
        self._changed = asyncio.Condition()
        self._ending = 0
        self._bookmarks = 0
        self._transports: set[asyncio.Transport] = set()

    # --- what tests do to it -------------------------------------------------------------------------------------------

    async def put(self, path: str, obj: Json, *, told: bool = True) -> Json:
        """Create or replace an object as somebody else would; `told`: watches hear of it, as they should."""
        address = self._address(path)
        assert address is not None
        there = self._objects.setdefault(address.collection, {}).get(address.name)
        obj = copy.deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        metadata["name"] = address.name
        metadata.setdefault("uid", there["metadata"]["uid"] if there else str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", "2026-11-30T12:00:00Z")
        made = await self._store("MODIFIED" if there else "ADDED", address, obj, there)
        if not told:
            self._changes = [change for change in self._changes if change.version != self.version]
        return made

    async def remove(self, path: str) -> None:
        """Delete an object as somebody else would."""
        address = self._address(path)
        assert address is not None
        there = self._objects[address.collection].pop(address.name)
        await self._store("DELETED", address, there, there)

    def read(self, path: str) -> Json | None:
        """Give an object as it is now."""
        address = self._address(path)
        assert address is not None
        return self._objects.get(address.collection, {}).get(address.name)

    def compact(self) -> None:
        """Forget the history: watches that ask for it get 410."""
        self.oldest = self.version
        self._pages.clear()

    def fail(
        self,
        status: int,
        body: str = "",
        *,
        matches: Callable[[web.Request], bool] = anything,
        times: int = 1,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer the next matching requests like this."""
        self._faults.append(Fault(status, body, matches, times, content_type, headers or {}))

    def recover(self) -> None:
        """Fail no more."""
        self._faults.clear()

    def hang(self, matches: Callable[[web.Request], bool] | None) -> None:
        """Leave matching requests without an answer from now on; None: those to come get theirs again."""
        self._hangs = [matches] if matches is not None else []

    async def end_watches(self) -> None:
        """Close all watches in good order."""
        self._ending += 1
        await self._wake()

    async def bookmark(self) -> None:
        """Send a bookmark on all watches."""
        self._bookmarks += 1
        await self._wake()

    def reset_connections(self) -> None:
        """Break all open streams."""
        for transport in list(self._transports):
            transport.abort()

    async def watched(self, times: int) -> None:
        """Wait until as many watches have been opened in all."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.watches >= times)

    @property
    def connections(self) -> int:
        """Streams that are open."""
        return sum(not transport.is_closing() for transport in self._transports)

    @property
    def watches(self) -> int:
        return sum(is_watch(request) for request in self.requests)

    @property
    def lists(self) -> int:
        return sum(is_list(request) for request in self.requests)

    # --- the server ------------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if request.transport is not None:
            self.ports.append(request.transport.get_extra_info("peername")[1])
        await self._wake()
        if self.token is not None and request.headers.get("Authorization") != self.token:
            return status(401, "Unauthorized", "Unauthorized")
        other = await self._out_of_order(request)
        if other is not None:
            return other
        address = self._address(request.path)
        if address is None:
            return web.Response(status=404, text="404 page not found\n")
        if request.method == "GET" and not address.name:
            return await (self._watch if is_watch(request) else self._list)(request, address)
        if request.method == "POST":
            return await self._create(request, address)
        there = self._objects.get(address.collection, {}).get(address.name)
        if there is None:
            text = f'{address.plural} "{address.name}" not found'
            return status(404, "NotFound", text, name=address.name)
        if request.method == "GET":
            return self._log(there) if address.sub == "log" else respond(shown(there, request))
        if request.method == "PATCH":
            return await self._patch(request, address, there)
        return await self._delete(request, address, there)

    async def _out_of_order(self, request: web.Request) -> web.StreamResponse | None:
        """What is answered before any object is looked for: faults, and questions that are about none."""
        for hangs in self._hangs:
            if hangs(request):
                await asyncio.Event().wait()
        for fault in self._faults:
            if fault.times > 0 and fault.matches(request):
                fault.times -= 1
                return web.Response(
                    status=fault.status,
                    text=fault.body,
                    content_type=fault.content_type,
                    headers=fault.headers,
                )
        if request.path == "/apis/kueue.x-k8s.io":
            version = {"groupVersion": "kueue.x-k8s.io/v1beta2", "version": "v1beta2"}
            return respond({"kind": "APIGroup", "preferredVersion": version})
        if request.path.endswith("accessreviews"):
            return respond(self._review(await request.json()), code=201)
        return None

    async def _list(self, request: web.Request, address: Address) -> web.StreamResponse:
        limit = int(request.query.get("limit", "0"))
        if token := request.query.get("continue"):
            if token not in self._pages:
                return status(410, "Expired", "The provided continue parameter is too old")
            version, items = self._pages[token]
        else:
            selects = selector(request)
            there = self._objects.get(address.collection, {})
            version = self.version
            items = [there[name] for name in sorted(there) if selects(there[name])]
        following = ""
        if limit and len(items) > limit:
            following = base64.b64encode(uuid.uuid4().bytes).decode()
            self._pages[following] = (version, items[limit:])
            items = items[:limit]
        as_metadata = "as=PartialObjectMetadataList" in request.headers.get("Accept", "")
        kind = "PartialObjectMetadataList" if as_metadata else f"{address.kind}List"
        metadata = {"resourceVersion": str(version), "continue": following}
        shown_items = [partial(item) if as_metadata else item for item in items]
        return respond({"kind": kind, "metadata": metadata, "items": shown_items})

    async def _watch(self, request: web.Request, address: Address) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._transports.add(transport)
        try:
            seconds = float(request.query.get("timeoutSeconds", "1800"))
            async with asyncio.timeout(seconds):
                await self._send_changes(request, address, response)
        except TimeoutError:
            if "allowWatchBookmarks" in request.query:
                await self._send(response, "BOOKMARK", self._bookmark(address))
        except ConnectionError:
            pass
        finally:
            self._transports.discard(transport)
        return response

    async def _send_changes(
        self, request: web.Request, address: Address, response: web.StreamResponse
    ) -> None:
        selects = selector(request)
        sent = int(request.query["resourceVersion"])
        ending, bookmarks = self._ending, self._bookmarks
        if sent < self.oldest:
            text = f"too old resource version: {sent} ({self.version})"
            expired = {
                "kind": "Status",
                "status": "Failure",
                "code": 410,
                "reason": "Expired",
                "message": text,
            }
            await self._send(response, "ERROR", expired)
            return
        while ending == self._ending:
            if not self.frozen:
                for change in [change for change in self._changes if change.version > sent]:
                    sent = change.version
                    if change.collection == address.collection:
                        await self._send_change(request, response, change, selects)
                if bookmarks != self._bookmarks:
                    bookmarks = self._bookmarks
                    await self._send(response, "BOOKMARK", self._bookmark(address))
            async with self._changed:
                await self._changed.wait()

    async def _send_change(
        self,
        request: web.Request,
        response: web.StreamResponse,
        change: Change,
        selects: Callable[[Json], bool],
    ) -> None:
        """Send a change as a watch with this selector sees it: what stops matching is deleted for it."""
        now = change.type != "DELETED" and selects(change.obj)
        before = change.before is not None and selects(change.before)
        if now:
            await self._send(
                response, "MODIFIED" if before else "ADDED", shown(change.obj, request)
            )
        elif before:
            assert change.before is not None
            gone = copy.deepcopy(change.obj if change.type == "DELETED" else change.before)
            gone["metadata"]["resourceVersion"] = str(change.version)
            await self._send(response, "DELETED", shown(gone, request))

    async def _send(self, response: web.StreamResponse, kind: str, obj: Json) -> None:
        await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

    def _bookmark(self, address: Address) -> Json:
        return {"kind": address.kind, "metadata": {"resourceVersion": str(self.version)}}

    async def _create(self, request: web.Request, address: Address) -> web.StreamResponse:
        obj = await request.json()
        name = (obj.get("metadata") or {}).get("name")
        if not name:
            return status(422, "Invalid", "name or generateName is required")
        if name in self._objects.get(address.collection, {}):
            text = f'{address.plural} "{name}" already exists'
            return status(409, "AlreadyExists", text, name=name)
        return respond(await self.put(f"{address.collection}/{name}", obj), code=201)

    async def _patch(
        self, request: web.Request, address: Address, there: Json
    ) -> web.StreamResponse:
        patch = await request.json()
        wanted = patch.get("metadata") or {}
        for key, refusal in (
            ("resourceVersion", (409, "Conflict", "the object has been modified")),
            ("uid", (422, "Invalid", "metadata.uid: field is immutable")),
        ):
            if key in wanted and wanted[key] != there["metadata"][key]:
                return status(*refusal, name=address.name)
        after = merge_patch(there, patch)
        return respond(await self.put(f"{address.collection}/{address.name}", after))

    async def _delete(
        self, request: web.Request, address: Address, there: Json
    ) -> web.StreamResponse:
        options = await request.json() if request.can_read_body else {}
        uid = (options.get("preconditions") or {}).get("uid")
        if uid not in (None, there["metadata"]["uid"]):
            return status(409, "Conflict", "the UID in the precondition does not match")
        if "gracePeriodSeconds" in options:
            self.deleted_with_grace[request.path] = options["gracePeriodSeconds"]
        await self._collect(there["metadata"]["uid"])
        await self.remove(f"{address.collection}/{address.name}")
        return respond({"kind": "Status", "status": "Success"})

    async def _collect(self, owner: str) -> None:
        """Delete what an object owns, as the garbage collector does."""
        for collection, objects in list(self._objects.items()):
            for name, obj in list(objects.items()):
                owners = obj["metadata"].get("ownerReferences") or []
                if any(one["uid"] == owner for one in owners):
                    await self.remove(f"{collection}/{name}")

    def _log(self, pod: Json) -> web.StreamResponse:
        name = pod["metadata"]["name"]
        if name not in self.logs:
            text = f'container "main" in pod "{name}" is waiting to start: ContainerCreating'
            return status(400, "BadRequest", text)
        return web.Response(body=self.logs[name], content_type="text/plain")

    def _review(self, body: Json) -> Json:
        asked = body["spec"]["resourceAttributes"]
        sub = f"/{asked['subresource']}" if asked["subresource"] else ""
        what = f"{asked['verb']} {asked['resource']}{sub}"
        account = str(body["spec"].get("user", "")).rpartition(":")[2]
        allowed = what not in self.denied and account not in self.unbound
        return body | {"status": {"allowed": allowed}}

    async def _store(self, kind: str, address: Address, obj: Json, before: Json | None) -> Json:
        self.version += 1
        obj = copy.deepcopy(obj)
        obj["metadata"]["resourceVersion"] = str(self.version)
        if kind != "DELETED":
            self._objects[address.collection][address.name] = obj
        self._changes.append(Change(self.version, kind, address.collection, obj, before))
        await self._wake()
        return obj

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _address(self, path: str) -> Address | None:
        for root, kinds in KINDS.items():
            if not path.startswith(f"{root}/"):
                continue
            parts = path.removeprefix(f"{root}/").split("/")
            scope = f"{root}/"
            if parts[0] == "namespaces" and len(parts) > 2:
                scope += f"namespaces/{parts[1]}/"
                parts = parts[2:]
            plural, name, sub = [*parts, "", ""][:3]
            if plural in kinds:
                return Address(scope + plural, kinds[plural], plural, name, sub)
        return None


@asynccontextmanager
async def furnished_api() -> AsyncIterator[FakeApi]:
    """Run a fake API server of a cluster that has what runs need in the namespace `here`, as the defaults name it."""
    async with fake_api() as api:
        for path in FURNITURE:
            await api.put(path, {})
        yield api


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    """Run a fake API server on a free port of this machine."""
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await api.end_watches()
        await runner.cleanup()


def respond(obj: Json, code: int = 200) -> web.Response:
    return web.json_response(obj, status=code)


def status(code: int, reason: str, message: str, **details: str) -> web.Response:
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }
    return web.json_response(body, status=code)


def shown(obj: Json, request: web.Request) -> Json:
    """The object, or its metadata alone where that was asked for."""
    as_metadata = "as=PartialObjectMetadata;" in request.headers.get("Accept", "")
    return partial(obj) if as_metadata else obj


def partial(obj: Json) -> Json:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def selector(request: web.Request) -> Callable[[Json], bool]:
    """The label selector of a request: `key=value` and `key`, with commas between."""
    terms = [term for term in request.query.get("labelSelector", "").split(",") if term]

    def selects(obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(
            labels.get(term.split("=")[0]) == term.split("=")[1] if "=" in term else term in labels
            for term in terms
        )

    return selects


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result
