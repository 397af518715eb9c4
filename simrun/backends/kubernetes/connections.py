"""What a session asks of aiohttp: pools of connections, streams that are left, errors in words."""

from __future__ import annotations

import aiohttp

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.access import Access


def client(access: Access, connections: int) -> aiohttp.ClientSession:
    """Give a pool of connections; 0 for any number of them."""
    tls = access.tls if access.tls is not None else True
    connector = aiohttp.TCPConnector(limit=connections, ssl=tls)
    # No cookies, and above no redirects: the API uses neither, and both could carry a token elsewhere. The environment's
    # proxy was looked up with the access; aiohttp's own way would read ~/.netrc on the event loop at each request
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def error_of(what: str, response: aiohttp.ClientResponse, body: bytes) -> errors.ApiError:
    """Make the error of an answer that is no success."""
    after, sent = response.headers.get("Retry-After"), response.headers.get("Date")
    return errors.error_of(what, response.status, body, after, sent)


def hang_up(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of a stream that is left early: a goodbye by TLS waits for a peer that may be dead."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def describe(error: BaseException) -> str:
    """Say what failed; timeouts of aiohttp have no text of their own."""
    return str(error) or type(error).__name__
