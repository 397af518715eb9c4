"""What the shell offers for a half-typed word. It waits for nothing longer than a person does, and is silent where nothing can be found."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from simrun.base.errors import SimrunError
from simrun.cli.configpaths import files_of
from simrun.cli.where import Where, where

ANSWER_S = 1.0
MOST = 50
LATEST = "@latest"


def contexts(incomplete: str) -> list[CompletionItem]:
    """Give the contexts of the user's file."""
    try:
        known = files_of(os.environ, Path.cwd()).user.contexts
    except SimrunError:
        return []
    return [
        CompletionItem(name, help=item.server or item.store)
        for name, item in known.items()
        if name.startswith(incomplete)
    ]


def runs(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Give ids of runs that begin so, the highest first, which are those of new runs."""
    try:
        found = where(ctx.params.get("server"), ctx.params.get("store"), ctx)
        known = _of_server(found, incomplete) if found.server else _of_store(found.store)
    except (SimrunError, OSError, TimeoutError):
        return []
    names = [*sorted(known, reverse=True), *([LATEST] if incomplete.startswith("@") else [])]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:MOST]


def _of_store(store: Path) -> list[str]:
    return [name for name in os.listdir(store / "runs") if not name.startswith(".")]


def _of_server(found: Where, incomplete: str) -> list[str]:
    import asyncio

    from simrun.client import AsyncClient

    async def asked() -> list[str]:
        async with (
            asyncio.timeout(ANSWER_S),
            AsyncClient(found.server, token=found.read_token(), tries=1) as client,
        ):
            page = await client.runs(limit=MOST, prefix=incomplete or None)
        return [row.id for row in page.runs]

    return asyncio.run(asked())
