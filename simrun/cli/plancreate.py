"""`simrun plan create`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from simrun.cli.options import output_option, params_option, server_option
from simrun.cli.schedule import ask, group_option
from simrun.cli.times import INSTANT

if TYPE_CHECKING:
    from collections.abc import Callable

    from simrun.cli.remote import RemoteSession
    from simrun.model.launchplan import Active, LaunchPlan, Schedule


_SCHEDULE_OPTIONS = (
    click.option("--cron", metavar="EXPR", help="Five fields, or a descriptor such as @daily."),
    click.option("--every", metavar="DURATION", help="A fixed rate: 1h30m; at least 1m."),
    click.option("--tz", "timezone", metavar="ZONE", help="IANA time zone. [default: UTC]"),
    click.option(
        "--anchor", type=INSTANT, metavar="INSTANT", help="Where the grid of --every begins."
    ),
    click.option(
        "--time-param", metavar="TASK.KEY", help="The parameter that receives the scheduled time."
    ),
    click.option(
        "--catch-up",
        type=click.Choice(["all", "latest", "none"]),
        help="What is made up for after an outage. [default: all]",
    ),
    click.option(
        "--catch-up-cap",
        type=click.IntRange(1, 1_000_000),
        help="Of `all` at most so many, the latest. [default: 1000]",
    ),
    click.option(
        "--overlap",
        type=click.Choice(["allow", "skip", "queue", "cancel"]),
        help="What happens while an earlier run is going. [default: allow]",
    ),
    click.option("--not-before", type=INSTANT, metavar="INSTANT", help="No instant before it."),
    click.option("--not-after", type=INSTANT, metavar="INSTANT", help="No instant after it."),
)


def schedule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what is said of a schedule."""
    for option in reversed(_SCHEDULE_OPTIONS):
        function = option(function)
    return function


@click.command("create", short_help="Make a version of a launch plan.")
@click.argument("name")
@click.argument("file")
@click.option("--version", metavar="VERSION", help="Its name. [default: the next number]")
@click.option("--description", metavar="TEXT", default="", help="What it is for.")
@params_option
@click.option(
    "--fixed",
    metavar="TASK.KEY=VALUE",
    multiple=True,
    help="Set a parameter that no launch may change. May be given again.",
)
@schedule_options
@click.option("--activate", is_flag=True, help="Activate it at once.")
@server_option
@group_option
@output_option
def create(
    *,
    name: str,
    file: str,
    version: str | None,
    description: str,
    params: tuple[str, ...],
    fixed: tuple[str, ...],
    activate: bool,
    server: str | None,
    store: str | None,
    group: str | None,
    output: str,
    **schedule: str | int | datetime | None,
) -> None:
    """Make a version of launch plan NAME of the workflow in FILE (YAML or JSON; - for stdin), with the files it names.

    --param sets parameters that a launch may give otherwise. The same content again gives the version that exists.
    """
    from simrun.cli.formatting import as_json
    from simrun.cli.where import where
    from simrun.cli.workflowfile import base_of, parse_params, read_workflow, submission_of
    from simrun.service.attachments import attachments_of

    loaded = read_workflow(file, check_syntax=False)
    submission = submission_of(
        loaded, group=group, name=None, run_id=None, place=where(server, store)
    )
    made_schedule = _schedule(schedule)
    base = base_of(file)
    attachments = attachments_of(submission, base)

    async def asked(session: RemoteSession) -> tuple[LaunchPlan, Active | None]:
        made = await session.client.create_plan(
            name,
            await session.client.with_local_data(submission, base),
            attachments,
            version=version,
            description=description,
            defaults=parse_params(params),
            fixed=parse_params(fixed),
            schedule=made_schedule,
        )
        if not activate:
            return made, None
        return made, await session.client.activate_plan(name, made.version, group=made.group)

    made, active = ask(server, store, asked)
    if output == "json":
        click.echo(as_json(made.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
    else:
        click.echo(f"{made.group}/{made.name} version {made.version}")
    if active is not None:
        click.echo("it is active", err=True)


def _schedule(given: dict[str, str | int | datetime | None]) -> Schedule | None:
    """Give the schedule that options say, None for none. Raises InvalidInput that names the option."""
    from pydantic import ValidationError

    from simrun.model.launchplan import Schedule
    from simrun.model.wording import invalid

    said = {key: value for key, value in given.items() if value is not None}
    if not said:
        return None
    try:
        return Schedule.model_validate(said)
    except ValidationError as error:
        raise invalid(
            error,
            model=Schedule,
            data=said,
            field_of=lambda path: _option(str(path[0])) if path else "schedule",
        ) from error


def _option(field: str) -> str:
    return "--tz" if field == "timezone" else f"--{field.replace('_', '-')}"
