"""`simrun schedule`: when launch plans run, what became of it, pauses and backfills."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import click

from simrun.cli.options import output_option, quiet_option, server_option
from simrun.cli.times import INSTANT
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.service.api.launch_plans import PlanSummary
    from simrun.service.api.pauses import PauseState
    from simrun.service.api.schedules import SchedulesState
    from simrun.service.backfill import BackfillItem
    from simrun.service.schedule_view import ScheduleView

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


@click.group("schedule", short_help="Show and steer the schedules of launch plans.")
def command() -> None:
    """Show when launch plans run and what became of their instants; pause, resume and backfill them.

    A schedule belongs to a launch plan and is fired while a version of it is active: see `simrun plan`.
    """


def group_option(function: F) -> F:
    """Add --group."""
    return click.option(
        "--group",
        metavar="GROUP",
        help="Group of the plan. [default: as configured, else yours, else default]",
    )(function)


def group_of(given: str | None, server: str | None, store: str | None) -> str | None:
    """Give the group that is meant: the option's, else the configured one; None leaves it to the server."""
    return where(server, store).group if given is None else given


def ask(server: str | None, store: str | None, act: Callable[[RemoteSession], Awaitable[T]]) -> T:
    """Do one thing on the server that is meant."""
    from simrun.cli import remote

    return remote.call(remote.opener(server, store, "schedules are fired by `simrun serve`"), act)


# --- expressions -----------------------------------------------------------------------------------------------------------


@command.command("preview", short_help="Say when an expression fires.")
@click.argument("expression", metavar="EXPR")
@click.option("--tz", "timezone", metavar="ZONE", help="IANA time zone. [default: UTC]")
@click.option(
    "--after", type=INSTANT, metavar="INSTANT", help="Instants after this one. [default: now]"
)
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    default=5,
    show_default=True,
    help="How many instants.",
)
@output_option
def preview(
    *, expression: str, timezone: str | None, after: datetime | None, count: int, output: str
) -> None:
    """Say when EXPR fires: five fields, a descriptor such as @daily, or @every 1h30m. No server is needed.

    With -o json a list of instants of UTC. Exit code 2, with the reason, for an expression that is refused or never fires.
    """
    from simrun.base.clock import SystemClock
    from simrun.model.launchplan import instant_of, instant_text
    from simrun.scheduler.cron import check_date, parse

    timetable = parse(expression, timezone)
    check_date(timetable)
    begin = instant_of(SystemClock().wall()) if after is None else after
    instants = list(islice(timetable.instants(begin), count))
    if output == "json":
        from simrun.cli.formatting import as_json

        click.echo(as_json([instant_text(instant) for instant in instants]))
        return
    from simrun.cli import scheduletext

    click.echo(timetable.describe(), err=True)
    click.echo(scheduletext.timetable_text(instants, timezone))


# --- what there is ---------------------------------------------------------------------------------------------------------


@command.command("list", short_help="List the active schedules.")
@server_option
@click.option("--group", metavar="GROUP", help="Only of this group.")
@click.option("--all", "everything", is_flag=True, help="Those that are not active too.")
@output_option
def list_(
    *, server: str | None, store: str | None, group: str | None, everything: bool, output: str
) -> None:
    """List the schedules of launch plans with their next instants."""
    from simrun.cli import scheduletext
    from simrun.cli.formatting import as_json, table

    async def asked(session: RemoteSession) -> tuple[list[PlanSummary], SchedulesState]:
        plans = [plan async for plan in session.client.all_plans(group=group)]
        return plans, await session.client.schedules()

    plans, state = ask(server, store, asked)
    shown = [plan for plan in plans if plan.schedule and (plan.active or everything)]
    if state.all_paused.paused:
        by = f" by {state.all_paused.by}" if state.all_paused.by else ""
        click.echo(f"all schedules are paused{by}; `simrun schedule resume --all`", err=True)
    if output == "json":
        click.echo(as_json([plan.model_dump(mode="json") for plan in shown]))
    elif shown:
        heads = ("group", "plan", "version", "schedule", "zone", "next", "state")
        click.echo(table(heads, [scheduletext.cells(plan) for plan in shown]))
    else:
        click.echo("no schedules", err=True)


@command.command("show", short_help="Show what is to come of a schedule, and what became of it.")
@click.argument("plan")
@server_option
@group_option
@click.option(
    "--next", "following", type=click.IntRange(0, 100), default=5, help="Instants to come. [5]"
)
@click.option("--last", type=click.IntRange(0, 100), default=5, help="Instants that were. [5]")
@output_option
def show(
    *,
    plan: str,
    server: str | None,
    store: str | None,
    group: str | None,
    following: int,
    last: int,
    output: str,
) -> None:
    """Show the schedule of PLAN: its next instants, and the last ones with the state and lateness of their runs."""
    group = group_of(group, server, store)
    from simrun.cli import scheduletext
    from simrun.cli.formatting import as_json

    async def asked(session: RemoteSession) -> ScheduleView:
        return await session.client.schedule(plan, following=following, last=last, group=group)

    view = ask(server, store, asked)
    if output == "json":
        click.echo(as_json(view.model_dump(mode="json")))
    else:
        click.echo("\n".join(scheduletext.told(view)))


# --- pauses ----------------------------------------------------------------------------------------------------------------


@command.command("pause", short_help="Fire nothing until it is resumed.")
@click.argument("plan", required=False)
@click.option("--all", "everything", is_flag=True, help="All schedules; for administrators.")
@server_option
@group_option
@output_option
def pause(
    *,
    plan: str | None,
    everything: bool,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
) -> None:
    """Fire nothing of the schedule of PLAN, or of any, until it is resumed. What falls into a pause was not missed."""
    group = group_of(group, server, store)
    _one_or_all(plan, everything)

    async def asked(session: RemoteSession) -> PauseState:
        if plan is None:
            return await session.client.pause_all_schedules()
        return await session.client.pause_schedule(plan, group=group)

    _say_paused(ask(server, store, asked), plan, output)


@command.command("resume", short_help="End a pause.")
@click.argument("plan", required=False)
@click.option("--all", "everything", is_flag=True, help="All schedules; for administrators.")
@server_option
@group_option
@output_option
def resume(
    *,
    plan: str | None,
    everything: bool,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
) -> None:
    """End the pause of the schedule of PLAN, or that of all. Those that were paused one by one are resumed one by one."""
    group = group_of(group, server, store)
    _one_or_all(plan, everything)

    async def asked(session: RemoteSession) -> PauseState:
        if plan is None:
            return await session.client.resume_all_schedules()
        return await session.client.resume_schedule(plan, group=group)

    _say_paused(ask(server, store, asked), plan, output)


def _one_or_all(plan: str | None, everything: bool) -> None:
    if (plan is None) != everything:
        raise click.UsageError("name a plan, or say --all")


def _say_paused(state: PauseState, plan: str | None, output: str) -> None:
    from simrun.cli.formatting import as_json

    if output == "json":
        click.echo(as_json(state.model_dump(mode="json")))
        return
    what = "all schedules are" if plan is None else f"the schedule of {plan} is"
    click.echo(f"{what} {'paused' if state.paused else 'no longer paused'}")


# --- backfill --------------------------------------------------------------------------------------------------------------


@command.command("backfill", short_help="Give instants of the past their runs.")
@click.argument("plan")
@click.option("--from", "first", type=INSTANT, metavar="INSTANT", required=True, help="The first.")
@click.option("--to", "last", type=INSTANT, metavar="INSTANT", help="The last. [default: now]")
@click.option("--only-missing", is_flag=True, help="Only those that have no run.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--limit", type=click.IntRange(min=1), help="Most instants. [default: all]")
@server_option
@group_option
@output_option
@quiet_option
def backfill(
    *,
    plan: str,
    first: datetime,
    last: datetime | None,
    only_missing: bool,
    dry_run: bool,
    limit: int | None,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
    quiet: bool,
) -> int:
    """Give the instants of PLAN from --from to --to, both included, their runs: what was dropped, skipped, given up, or came before its activation.

    Those that have their run keep it, so this may be done again. Exit code 1 when an instant could not be given its run.
    """
    group = group_of(group, server, store)
    from simrun.cli.formatting import as_json, table

    async def asked(session: RemoteSession) -> list[BackfillItem]:
        found: list[BackfillItem] = []
        begin: datetime | None = first
        while begin is not None and (limit is None or len(found) < limit):
            page = await session.client.backfill(
                plan,
                begin,
                last,
                only_missing=only_missing,
                dry_run=dry_run,
                limit=100 if limit is None else min(100, limit - len(found)),
                group=group,
            )
            found += page.items
            begin = None if page.next is None else datetime.fromisoformat(page.next)
            if begin is not None and not quiet:
                click.echo(f"{len(found)} done, {page.left} instants left to look at", err=True)
        return found

    items = ask(server, store, asked)
    if output == "json":
        click.echo(as_json([item.model_dump(mode="json") for item in items]))
    elif items:
        rows = [(item.instant, item.state, item.run, item.error) for item in items]
        click.echo(table(("instant", "state", "run", "error"), rows))
    elif not quiet:
        click.echo("no instants to fill", err=True)
    return int(any(item.state == "failed" for item in items))
