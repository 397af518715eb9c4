"""`simrun plan`: launch plans, their versions, and which of them is active."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from simrun.cli.options import output_option, params_option, server_option
from simrun.cli.plancreate import create
from simrun.cli.schedule import ask, group_of, group_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.launchplan import Active, LaunchPlan
    from simrun.model.record import RunRecord
    from simrun.service.api.launch_plans import PlanDetail, PlanSummary
    from simrun.service.api.plan_diff import Diff


@click.group("plan", short_help="Make launch plans, activate and launch them.")
def command() -> None:
    """Make launch plans: workflows under a name, in versions that never change, with settings and perhaps a schedule.

    At most one version of a plan is active; while one is, its schedule is fired.
    """


command.add_command(create)


@command.command("list", short_help="List launch plans.")
@server_option
@click.option("--group", metavar="GROUP", help="Only of this group.")
@output_option
def list_(*, server: str | None, store: str | None, group: str | None, output: str) -> None:
    """List the launch plans on the server."""
    from simrun.cli.formatting import as_json, table

    async def asked(session: RemoteSession) -> list[PlanSummary]:
        return [plan async for plan in session.client.all_plans(group=group)]

    plans = ask(server, store, asked)
    if output == "json":
        click.echo(as_json([plan.model_dump(mode="json") for plan in plans]))
    elif plans:
        heads = ("group", "plan", "versions", "active", "schedule")
        rows = [
            (
                plan.group,
                plan.name,
                str(plan.versions),
                plan.version if plan.active else "-",
                plan.schedule or "-",
            )
            for plan in plans
        ]
        click.echo(table(heads, rows, right=(2,)))
    else:
        click.echo("no launch plans", err=True)


@command.command("show", short_help="Show a launch plan, or one of its versions.")
@click.argument("name")
@click.argument("version", required=False)
@server_option
@group_option
@output_option
def show(
    *,
    name: str,
    version: str | None,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
) -> None:
    """Show the versions of launch plan NAME, or all of VERSION."""
    group = group_of(group, server, store)
    from simrun.cli.formatting import as_json, table
    from simrun.model.launchplan import instant_of

    async def asked(session: RemoteSession) -> PlanDetail | LaunchPlan:
        if version is not None:
            return await session.client.plan_version(name, version, group=group)
        return await session.client.plan(name, group=group)

    found = ask(server, store, asked)
    if output == "json" or version is not None:
        click.echo(as_json(found.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
        return
    plan: Any = found
    active = plan.active.version if plan.active is not None else None
    rows = [
        (
            head.version,
            "active" if head.version == active else "",
            f"{instant_of(head.created_at):%Y-%m-%d %H:%M}",
            head.created_by or "-",
            head.schedule.expression if head.schedule else "-",
            head.description,
        )
        for head in plan.versions
    ]
    click.echo(table(("version", "", "created", "by", "schedule", "description"), rows))


@command.command("diff", short_help="Say how two versions differ.")
@click.argument("name")
@click.argument("before", required=False)
@click.argument("after", required=False)
@server_option
@group_option
@output_option
def diff(
    *,
    name: str,
    before: str | None,
    after: str | None,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
) -> None:
    """Say how version AFTER of launch plan NAME differs from BEFORE: the active one from the one made before it, where none is named."""
    group = group_of(group, server, store)
    from simrun.cli.formatting import as_json

    async def asked(session: RemoteSession) -> Diff:
        return await session.client.diff_plan(name, before=before, after=after, group=group)

    found = ask(server, store, asked)
    if output == "json":
        click.echo(as_json(found.model_dump(mode="json")))
        return
    if not found.differences:
        click.echo(f"versions {found.before} and {found.after} do not differ", err=True)
    for item in found.differences:
        if item.only != "after":
            click.echo(f"- {item.path}: {as_json(item.before)}")
        if item.only != "before":
            click.echo(f"+ {item.path}: {as_json(item.after)}")


@command.command("activate", short_help="Make a version the active one.")
@click.argument("name")
@click.argument("version")
@server_option
@group_option
@output_option
def activate(
    *,
    name: str,
    version: str,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
) -> None:
    """Make VERSION of launch plan NAME the active one: its schedule is fired from now on."""
    group = group_of(group, server, store)
    from simrun.cli.formatting import as_json

    async def asked(session: RemoteSession) -> Active:
        return await session.client.activate_plan(name, version, group=group)

    active = ask(server, store, asked)
    if output == "json":
        click.echo(as_json(active.model_dump(mode="json", exclude={"schema_"})))
    else:
        click.echo(f"version {version} of {name} is active")


@command.command("deactivate", short_help="Let no version be active.")
@click.argument("name")
@server_option
@group_option
@output_option
def deactivate(
    *, name: str, server: str | None, store: str | None, group: str | None, output: str
) -> None:
    """Let no version of launch plan NAME be active: nothing more is fired. Runs that were begun go on."""
    group = group_of(group, server, store)
    from simrun.cli.formatting import as_json

    async def asked(session: RemoteSession) -> Active:
        return await session.client.deactivate_plan(name, group=group)

    active = ask(server, store, asked)
    if output == "json":
        click.echo(as_json(active.model_dump(mode="json", exclude={"schema_"})))
    else:
        click.echo(f"no version of {name} is active")


@command.command("delete", short_help="Delete a version, or all.")
@click.argument("name")
@click.argument("version", required=False)
@click.option("--all", "everything", is_flag=True, help="All versions.")
@server_option
@group_option
def delete(
    *,
    name: str,
    version: str | None,
    everything: bool,
    server: str | None,
    store: str | None,
    group: str | None,
) -> None:
    """Delete VERSION of launch plan NAME, or all of them. The active one has to be deactivated first; runs stay."""
    group = group_of(group, server, store)
    if (version is None) != everything:
        raise click.UsageError("name a version, or say --all")

    async def asked(session: RemoteSession) -> list[str]:
        versions = [version] if version is not None else []
        if version is None:
            detail = await session.client.plan(name, group=group)
            versions = [head.version for head in detail.versions]
        for item in versions:
            await session.client.delete_plan(name, item, group=group)
        return versions

    for item in ask(server, store, asked):
        click.echo(f"version {item} of {name} deleted")


@command.command("launch", short_help="Run a launch plan now.")
@click.argument("name")
@click.option("--version", metavar="VERSION", help="Which one. [default: the active one]")
@params_option
@click.option("--name", "run_name", metavar="NAME", default="", help="Name of the run.")
@click.option("--id", "run_id", metavar="ID", help="Id of the run. [default: a new one]")
@server_option
@group_option
@output_option
def launch(
    *,
    name: str,
    version: str | None,
    params: tuple[str, ...],
    run_name: str,
    run_id: str | None,
    server: str | None,
    store: str | None,
    group: str | None,
    output: Literal["table", "json"],
) -> None:
    """Run launch plan NAME now, with --param over its defaults, and print the id of the run."""
    group = group_of(group, server, store)
    from simrun.cli.formatting import as_json
    from simrun.cli.workflowfile import parse_params

    settings = parse_params(params)

    async def asked(session: RemoteSession) -> RunRecord:
        return await session.client.launch_plan(
            name,
            version=version,
            settings=settings,
            run_name=run_name,
            run_id=run_id,
            group=group,
        )

    record = ask(server, store, asked)
    click.echo(as_json(record.model_dump(mode="json")) if output == "json" else record.id)
