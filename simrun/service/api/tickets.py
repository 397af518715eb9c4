"""/api/v1/tickets: what a browser opens a stream of events with."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel

from simrun.model.access import Scope
from simrun.service.api.access import TICKETS, principal_of
from simrun.service.api.routing import Operations, answer
from simrun.service.auth import TICKET_S

operations = Operations("service")


class Ticket(BaseModel):
    """Opens one stream as whoever asked for it: `?ticket=…`. Works once."""

    ticket: str
    expires_in_s: float
    """Seconds within which the stream has to be opened; it may last longer."""


@operations.post("/api/v1/tickets", scope=Scope.READ, answer=Ticket, status=201)
async def give_ticket(request: web.Request) -> web.StreamResponse:
    """Give a ticket for one stream of events: browsers can't send a token with theirs."""
    ticket = request.app[TICKETS].give(principal_of(request))
    found = Ticket(ticket=ticket, expires_in_s=TICKET_S)
    return answer(found, status=201, headers={"Cache-Control": "no-store"})
