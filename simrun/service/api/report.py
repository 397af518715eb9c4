"""/api/v1/runs/{run}/report: what a run used against what it was given."""

from __future__ import annotations

from aiohttp import web

from simrun.model.access import Scope
from simrun.service.api.access import SESSION, run_of
from simrun.service.api.routing import Operations, answer
from simrun.service.runreport import RunReport, run_report

operations = Operations("runs")


@operations.get("/api/v1/runs/{run}/report", scope=Scope.READ, answer=RunReport, problems=(404,))
async def report(request: web.Request) -> web.StreamResponse:
    """Sum up a run: per task time, processors and memory used against given, retries by cause, units, and of how many attempts."""
    record = await run_of(request)
    session = request.app[SESSION]

    def read() -> RunReport:
        return run_report(session.store, record, session.store.submission(record.id))

    return answer(await session.in_pool(read))
