"""Requests to the API server: one pool of connections for calls, one for watches, and every failure as an ApiError.

aiohttp's exceptions end here. A call has a total time limit, a stream one on silence: a connection that died without a word is the usual
failure of long streams, and nothing but a clock notices it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from simrun.aio.threads import Pool
from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.access import Access, load_access
from simrun.backends.kubernetes.connections import client, describe, error_of, hang_up
from simrun.backends.kubernetes.errors import JsonObject
from simrun.base.errors import BackendError

_log = logging.getLogger(__name__)

CALL_S = 60.0
"""Limit of a whole call; the API server itself ends a list after as long."""
CALL_SILENCE_S = 20.0
"""Limit of the silence within a call: whoever asks how a run is over a connection that died unnoticed shall ask again soon."""
CONNECT_S = 5.0
PATIENCE_S = 10.0
"""For as long a call that the server turns away is made again when the server says it may be; whoever made it is told after that."""
_CONNECTIONS = 32
FRESH_S = 300.0
"""Age at which a token is read again. Those of pods live an hour and are renewed after 48 minutes."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
"""Only the metadata of objects, whatever the size of the rest. For one object, or the events of a watch."""
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

Query = Mapping[str, str]


class KubeSession:
    """Connections to one API server. Use as a context manager; makes no requests by itself."""

    def __init__(
        self,
        access: Access,
        reload: Callable[[], Access] | None = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._access = access
        self._patience_s = patience_s
        self._reload = reload
        self._loaded_at = asyncio.get_running_loop().time()
        self._renewing = asyncio.Lock()
        self._pool = Pool("kubernetes-access", 1)
        self._calls = client(access, connections=_CONNECTIONS)
        # A watch holds its connection for minutes: in a pool of its own it never makes a call wait
        self._streams = client(access, connections=0)
        self._retired: list[aiohttp.ClientSession] = []

    @classmethod
    async def open(cls, kubeconfig: Path | None = None, context: str | None = None) -> KubeSession:
        """Read how to reach the cluster and make a session; raises BackendError when there is no cluster configured."""

        def load() -> Access:
            return load_access(kubeconfig, context)

        pool = Pool("kubernetes-access", 1)
        try:
            access = await pool.run(load)
        finally:
            pool.close()
        return cls(access, load)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        self._pool.close()
        for one in (self._calls, self._streams, *self._retired):
            await one.close()
        await asyncio.sleep(0)  # streams that were hung up are closed in the loop's next turn

    async def get(self, path: str, query: Query | None = None, accept: str = JSON) -> JsonObject:
        """Read an object or a list."""
        return await self.call("GET", path, query=query, accept=accept)

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """Make an object; raises AlreadyExists when its name is taken."""
        return await self.call("POST", path, body=body)

    async def patch(self, path: str, body: JsonObject) -> JsonObject:
        """Merge `body` into an object. A metadata.resourceVersion in it is a precondition: Conflict when it is outdated."""
        return await self.call("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace_s: int | None = None,
    ) -> JsonObject:
        """Delete an object, only the one with this uid if given: Conflict when another has its name by now.

        grace_s: of a pod, instead of its own.
        """
        options: JsonObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return await self.call("DELETE", path, body=options)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: JsonObject | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> JsonObject:
        """Make one request and give the document that it answers with; raises an ApiError otherwise.

        One that an overloaded server refuses and wants to see again in a while is made again then.
        """
        headers = {"Accept": accept}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        left = self._patience_s
        while True:
            try:
                return await self._call_once(method, path, query, data, headers)
            except errors.Unavailable as error:
                wait = error.after
                if wait is None or wait > left:
                    raise
            left -= wait + 0.1  # no server is asked without end, though it says 0
            await asyncio.sleep(wait)

    async def _call_once(
        self,
        method: str,
        path: str,
        query: Query | None,
        data: bytes | None,
        headers: dict[str, str],
    ) -> JsonObject:
        what = f"{method} {path}"
        try:
            async with await self._send(
                False,
                method,
                path,
                headers,
                params=query,
                data=data,
                timeout=aiohttp.ClientTimeout(
                    total=CALL_S, sock_connect=CONNECT_S, sock_read=CALL_SILENCE_S
                ),
            ) as response:
                raw = await response.read()
                if response.status >= 300:
                    raise error_of(what, response, raw)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise errors.Unreachable(f"{what}: {describe(error)}") from error
        try:
            document = json.loads(raw)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise errors.Nonsense(f"{what}: the answer is no JSON object: {raw[:100]!r}")
        return document

    async def stream(
        self,
        path: str,
        query: Query | None = None,
        *,
        accept: str = JSON,
        silence_s: float,
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes]:
        """Yield the body of an answer in chunks as they come; raises Unreachable after `silence_s` seconds without any.

        `on_open` is called once the server has begun to answer.
        Close it (contextlib.aclosing) when leaving early, or its connection stays open until collected.
        """
        what = f"GET {path}"
        # identity: a compressed stream holds events back until a block is full
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        timeout = aiohttp.ClientTimeout(
            total=None, connect=2 * CONNECT_S, sock_connect=CONNECT_S, sock_read=silence_s
        )
        try:
            async with await self._send(
                True, "GET", path, headers, params=query, timeout=timeout
            ) as response:
                if response.status >= 300:
                    raise error_of(what, response, await response.read())
                on_open()
                try:
                    async for chunk in response.content.iter_any():
                        yield chunk
                finally:
                    hang_up(response)
        except (aiohttp.ClientError, OSError) as error:
            raise errors.Unreachable(f"{what}: {describe(error)}") from error

    async def _send(
        self,
        stream: bool,
        method: str,
        path: str,
        headers: dict[str, str],
        **arguments: Any,
    ) -> aiohttp.ClientResponse:
        """Send a request as who we are now; once more with fresh credentials when they aren't accepted."""
        loaded_at = self._loaded_at
        known = self._access.authorization or self._access.certificate
        if known and asyncio.get_running_loop().time() - loaded_at > FRESH_S:
            await self._renew(loaded_at)
            loaded_at = self._loaded_at
        response = await self._send_once(stream, method, path, headers, **arguments)
        if response.status == 401 and self._reload is not None:
            response.release()
            await self._renew(loaded_at)
            response = await self._send_once(stream, method, path, headers, **arguments)
        return response

    async def _send_once(
        self,
        stream: bool,
        method: str,
        path: str,
        headers: dict[str, str],
        **arguments: Any,
    ) -> aiohttp.ClientResponse:
        access = self._access
        if access.authorization is not None:
            headers = {**headers, "Authorization": access.authorization}
        connections = self._streams if stream else self._calls
        return await connections.request(
            method,
            access.server + path,
            headers=headers,
            proxy=access.proxy,
            server_hostname=access.tls_server_name,
            allow_redirects=False,
            **arguments,
        )

    async def _renew(self, loaded_at: float) -> None:
        """Read the credentials again, unless it happened since `loaded_at`.

        What can't be read leaves the old ones, and the server judges them.
        """
        async with self._renewing:
            if self._reload is None or self._loaded_at != loaded_at:
                return
            try:
                found = await self._pool.run(self._reload)
            except BackendError as error:
                _log.warning("credentials can't be read again", extra={"error": str(error)})
            else:
                self._take(found)
            self._loaded_at = asyncio.get_running_loop().time()

    def _take(self, found: Access) -> None:
        """Go on as who `found` says. The address stays; so do connections, unless another client certificate has to be shown."""
        if found.certificate == self._access.certificate:
            self._access = replace(self._access, authorization=found.authorization)
            return
        self._access = replace(found, server=self._access.server)
        # Not closed: what is under way on them may come to its end
        self._retired += [self._calls, self._streams]
        self._calls = client(found, connections=_CONNECTIONS)
        self._streams = client(found, connections=0)
