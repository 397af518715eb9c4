"""No website may use a person's browser to reach a simrun on that person's machine.

A page from anywhere can make a browser send a form to 127.0.0.1, or point its own name there (DNS rebinding); here that would be a run with
commands of its own. Browsers say where a request comes from, so those from elsewhere are refused; other clients don't, and are not concerned.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from simrun.service.api.problems import problem
from simrun.service.api.routing import Handler

LOOPBACK_ONLY = web.AppKey("loopback_only", bool)
"""Whether the process listens on loopback alone, where every honest request names a loopback address or localhost."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, by its address or as localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@web.middleware
async def same_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what a browser sends for a page of another origin."""
    if request.app[LOOPBACK_ONLY] and not is_loopback(_hostname(request.host)):
        return problem(
            403, "forbidden", f"this server is for this machine alone, not for {request.host!r}"
        )
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and _netloc(origin) != request.host:
        return problem(403, "forbidden", f"a page of {origin!r} may not use this server")
    if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        return problem(403, "forbidden", "a page of another site may not use this server")
    return await handler(request)


def _netloc(origin: str) -> str | None:
    """Give host and port of an Origin header; None for what is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _hostname(host: str) -> str:
    """Give the host of a Host header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
