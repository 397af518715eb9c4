"""`simrun doctor`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.formatting import as_json, clean, plural
from simrun.cli.options import output_option, server_option
from simrun.cli.where import Where, where

if TYPE_CHECKING:
    from simrun.model.cluster import ClusterConfig
    from simrun.service.doctor import Finding


@click.command(
    "doctor", short_help="Look for what keeps runs from working, and for what they left."
)
@server_option
@click.option(
    "--backend",
    type=click.Choice(["local", "kubernetes"]),
    default="local",
    show_default=True,
    help="Look at the cluster too.",
)
@click.option(
    "--cluster", metavar="FILE", type=click.Path(path_type=Path), help="As of `simrun run`."
)
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(path_type=Path), help="As of `simrun run`."
)
@click.option(
    "--index",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="As of `simrun serve`.",
)
@click.option("--fix", is_flag=True, help="Remove what is left over, exactly what is listed.")
@output_option
def command(
    *,
    server: str | None,
    store: str | None,
    backend: Literal["local", "kubernetes"],
    cluster: Path | None,
    kubeconfig: Path | None,
    index: Path | None,
    fix: bool,
    output: str,
) -> int:
    """Look at the store, its file system and clock, the index, the server, and with --backend kubernetes at the cluster, and list what dead
    processes and deleted runs left. Where a server is named, it is asked how it is, instead of the store.

    Nothing is changed without --fix. Exit codes: 0 nothing is wrong, 1 something is, or could not be removed.
    """
    found = where(server, store)
    if fix and found.server is not None:
        raise click.UsageError(
            "--fix works on a store; log in where it is, and name it with --store"
        )
    if backend == "local" and (cluster or kubeconfig):
        raise click.UsageError("--cluster and --kubeconfig need --backend kubernetes")
    from simrun.cli import engine

    config = engine.cluster_config(cluster) if backend == "kubernetes" else None
    findings, fixed = asyncio.run(_examine(found, config, kubeconfig, index, fix=fix))
    if output == "json":
        click.echo(as_json([_data(item, fixed) for item in findings]))
    else:
        click.echo("\n".join(_lines(findings, fixed)))
    wrong = [item for item in findings if item.level == "problem" and not _is_fixed(item, fixed)]
    if output != "json":
        left = sum(item.repair is not None for item in wrong)
        more = f"; --fix removes {plural(left, 'leftover')}" if left and not fix else ""
        click.echo(f"{plural(len(wrong), 'problem')}{more}" if wrong else "nothing is wrong")
    return 1 if wrong else 0


Fixed = dict[int, str | None]
"""By id of a finding: what kept it from being removed, None where it was."""


async def _examine(
    found: Where,
    config: ClusterConfig | None,
    kubeconfig: Path | None,
    index: Path | None,
    *,
    fix: bool,
) -> tuple[list[Finding], Fixed]:
    from simrun.cli.serve import default_index
    from simrun.service import doctor, remains
    from simrun.store.lock import StoreLock
    from simrun.store.runs import RunStore

    if found.server is not None:
        return await _server(found, found.server), {}
    root = found.store
    owner = None
    if config is not None and config.run_as_user is not None:
        group = config.run_as_group
        owner = (config.run_as_user, config.run_as_user if group is None else group)
    findings = doctor.examine(root, index=index or default_index(root), owner=owner)
    lock = StoreLock(root)
    serving = lock.taken()
    holder = lock.holder() if serving else None
    if holder is not None and holder.url is not None:
        findings += await _server(found, holder.url)
    if findings[0].level != "problem":
        findings += list(remains.leftovers(RunStore(root), serving=serving))
    if config is None:
        fixed = await doctor.repair(findings) if fix else []
        return findings, {id(item): error for item, error in fixed}
    from simrun.backends.kubernetes.session import KubeSession
    from simrun.service.clusterdoctor import cluster_remains, examine_cluster

    async with await KubeSession.open(kubeconfig) as kube:
        findings += await examine_cluster(kube, config)
        findings += await cluster_remains(kube, config, RunStore(root))
        fixed = await doctor.repair(findings) if fix else []
    return findings, {id(item): error for item, error in fixed}


async def _server(found: Where, url: str) -> list[Finding]:
    """Ask a server how it is."""
    from importlib.metadata import version

    from simrun.base.errors import SimrunError, Unreachable
    from simrun.client import AsyncClient
    from simrun.service.doctor import Finding

    try:
        async with AsyncClient(url, token=found.read_token(), tries=1) as client:
            about, reasons = await client.server(), await client.ready()
            await client.runs(limit=1)  # what needs a token
    except SimrunError as error:
        remedy = (
            "is it running, and is the address right?" if isinstance(error, Unreachable) else ""
        )
        return [Finding(check="server", level="problem", text=str(error), remedy=remedy)]
    findings = [
        Finding(check="server", level="problem", text=f"{url} is not ready: {reason}")
        for reason in reasons
    ]
    mine, its = version("simrun"), about.get("simrun")
    if mine != its:
        text = f"{url} is simrun {its}, this is {mine}"
        findings.append(Finding(check="server", level="note", text=text))
    text = f"{url} is simrun {its}" if reasons else f"{url} is simrun {its}, and ready"
    return [*findings, Finding(check="server", level="ok", text=text)]


def _is_fixed(item: Finding, fixed: Fixed) -> bool:
    return id(item) in fixed and fixed[id(item)] is None


def _lines(findings: list[Finding], fixed: Fixed) -> list[str]:
    lines = []
    for item in findings:
        word = "removed" if _is_fixed(item, fixed) else item.level
        lines.append(f"{word:<8} {item.check:<9} {clean(item.text)}")
        if item.remedy:
            lines.append(f"{'':<19}-> {clean(item.remedy)}")
        if error := fixed.get(id(item)):
            lines.append(f"{'':<19}not removed: {clean(error)}")
    return lines


def _data(item: Finding, fixed: Fixed) -> dict[str, object]:
    return {
        "check": item.check,
        "level": item.level,
        "text": item.text,
        "remedy": item.remedy,
        "removable": item.repair is not None,
        "removed": _is_fixed(item, fixed),
        "error": fixed.get(id(item)),
    }
