"""`simrun doctor` on a cluster: is there what runs need, may we do what we must, and what is left of runs that are gone.

Several stores may use one namespace, so that a run is not in this store proves nothing. What is removed belonged to a run of this store: one
that was deleted, or one that has ended and is done with.
"""

from __future__ import annotations

from collections.abc import Iterator

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.preflight import Access, Preflight
from simrun.backends.kubernetes.remains import Remnant, Remnants
from simrun.backends.kubernetes.session import METADATA_LIST, KubeSession
from simrun.backends.kubernetes.watching import workflows_path
from simrun.base.errors import (
    BackendError,
    BackendUnavailable,
    DamagedRecord,
    InvalidInput,
    NotFound,
)
from simrun.model.cluster import ClusterConfig
from simrun.service.doctor import Finding
from simrun.store.runs import RunStore

_USEFUL = (
    (Access("list", "workloads", "kueue.x-k8s.io"), "`simrun why` can't say what the queue says"),
    (Access("watch", "workloads", "kueue.x-k8s.io"), "`simrun why` can't say what the queue says"),
    (Access("create", "leases", "coordination.k8s.io"), "several `simrun serve` can't agree on who leads"),
    (Access("list", "nodes"), "no run can have a node of its own"),
    (Access("patch", "nodes"), "no run can have a node of its own"),
)  # fmt: skip
"""What runs go without, and what is missing then."""


async def examine_cluster(kube: KubeSession, config: ClusterConfig) -> list[Finding]:
    """Look for what runs need on a cluster."""
    try:
        return [
            await _argo(kube, config),
            await _permissions(kube, config),
            *await _useful(kube, config),
            *await _placement(kube, config),
        ]
    except BackendUnavailable as error:
        return [_problem(str(error), "check the address, the network and --kubeconfig")]
    except BackendError as error:
        return [_problem(str(error), "check --kubeconfig, and whom it is for")]


async def _argo(kube: KubeSession, config: ClusterConfig) -> Finding:
    try:
        await kube.get(workflows_path(config.namespace), {"limit": "1"}, METADATA_LIST)
    except (errors.NotFound, errors.UnknownResource):
        return _problem("the cluster has no Argo Workflows", "install it with its CRDs")
    except errors.Forbidden:
        pass  # what we may do is asked next
    return Finding(check="cluster", level="ok", text="Argo Workflows is there")


async def _permissions(kube: KubeSession, config: ClusterConfig) -> Finding:
    try:
        await Preflight(kube, config).permissions()
    except BackendUnavailable:
        raise
    except BackendError as error:
        text, _, remedy = str(error).partition("; ")
        return _problem(text, remedy)
    text = f"what runs need is allowed in namespace {config.namespace}"
    return Finding(check="cluster", level="ok", text=text)


async def _useful(kube: KubeSession, config: ClusterConfig) -> list[Finding]:
    preflight = Preflight(kube, config)
    return [
        Finding(check="cluster", level="note", text=f"not allowed: {access}, so {without}")
        for access, without in _USEFUL
        if not await preflight.allowed(access)
    ]


async def _placement(kube: KubeSession, config: ClusterConfig) -> list[Finding]:
    names = {"base_priority": config.base_priority, "extra_priority": config.extra_priority}
    for priority in config.priorities:
        fields, classes = config.priority_fields(priority), config.priority(priority)
        names |= dict(zip(fields, classes, strict=True))
    try:
        await Preflight(kube, config).placement(names)
    except InvalidInput as error:
        return [
            _problem(f"{item.field}: {item.message} ({item.value})", item.remedy or "")
            for item in error.problems
        ]
    text = "queue, priorities, account and claims of the cluster file are there"
    return [Finding(check="cluster", level="ok", text=text)]


async def cluster_remains(
    kube: KubeSession, config: ClusterConfig, store: RunStore
) -> list[Finding]:
    """Find what is left on a cluster of runs that are gone from a store. Looks at the store too, so it blocks."""
    remnants = Remnants(kube, config)
    try:
        found, notes = await remnants.found()
    except (BackendUnavailable, BackendError) as error:
        return [_problem(f"what runs left could not be looked for: {error}", "")]
    return [
        *(Finding(check="cluster", level="note", text=note) for note in notes),
        *_told(remnants, found, store),
    ]


def _told(remnants: Remnants, found: list[Remnant], store: RunStore) -> Iterator[Finding]:
    strangers: dict[str, list[str]] = {}
    for item in found:
        why = _gone(item, store)
        if why == "unknown":
            strangers.setdefault(item.run, []).append(f"{item.kind} {item.name}")
        elif why:

            async def remove(item: Remnant = item) -> None:
                if not _gone(item, store):
                    raise NotFound(f"run {item.run} goes on; {item.kind} {item.name} is left alone")
                await remnants.remove(item)

            text = f"{item.kind} {item.name} of run {item.run}, which {why}"
            yield Finding(check="leftovers", level="problem", text=text, repair=remove)
    for run, things in sorted(strangers.items()):
        yield Finding(
            check="cluster",
            level="note",
            text=f"{', '.join(things[:5])} of run {run}, which this store never had",
            remedy="of another store in the namespace, or of one that was lost; then delete it with kubectl",
        )


def _gone(item: Remnant, store: RunStore) -> str:
    """Say what became of the run that an object names: "" while it may need the object, unknown where it was never here."""
    if store.layout.tombstone(item.run).exists():
        return "was deleted"
    try:
        record = store.read(item.run)
    except NotFound:
        return "unknown"
    except DamagedRecord:
        return ""
    if not record.state.terminal or record.pending:
        return ""
    if item.of not in ("", record.fingerprint):
        return "unknown"  # another run of this id, in another store
    if item.kind == "workflow":
        return ""  # kept until its logs are; it goes by its own time to live
    return f"has ended ({record.state})"


def _problem(text: str, remedy: str) -> Finding:
    return Finding(check="cluster", level="problem", text=text, remedy=remedy)
