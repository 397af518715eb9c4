"""`simrun why`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json, clean, plural
from simrun.cli.options import output_option, run_argument, server_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.service.why import RunWhy

NAMED = 3
"""Workers with one reason that are named; of more, how many there are."""


@click.command("why", short_help="Say what a run on a server waits for.")
@run_argument
@server_option
@output_option
def command(*, run: str, server: str | None, store: str | None, output: str) -> None:
    """Say why a run is where it is: what each of its tasks and workers waits for, and what to do about it.

    RUN is an id, the beginning of one, @latest or @latest:NAME.
    """
    from simrun.cli import remote

    async def asked(session: RemoteSession) -> RunWhy:
        found = await remote.find_run(session.client, run)
        return await session.client.why(found.id)

    answer = remote.call(remote.opener(server, store), asked)
    click.echo(as_json(asdict(answer)) if output == "json" else text_of(answer))


def text_of(answer: RunWhy) -> str:
    """Give the answer of the server for people."""
    state = f"is {answer.state}" if not answer.state.terminal else str(answer.state)
    # Of a run that was cancelled nothing more may be known
    text = f": {clean(answer.text)}" if answer.text not in ("", answer.state) else ""
    lines = [f"run {answer.run} {state}{text}"]
    for task in answer.tasks:
        lines += ["", f"{task.task}, {task.state}: {clean(task.text)}"]
        for item in task.workers:
            lines.append(f"  {_who(item.workers)}: {clean(item.text)}")
            if item.remedy:
                lines.append(f"    -> {item.remedy}")
    lines += ["", *(f"note: {clean(note)}" for note in answer.notes)] if answer.notes else []
    return "\n".join(lines)


def _who(workers: Sequence[str]) -> str:
    if len(workers) <= NAMED:
        return ", ".join(map(clean, workers))
    return f"{clean(workers[0])} and {plural(len(workers) - 1, 'other worker')}"
