"""What a cluster must have before a run is worth submitting: permissions, a queue, priorities, a service account, claims.

Without them nothing fails: pods wait for ever, gated or unbound, and a workflow whose executor may not write its results never ends. So each is
asked for before the workflow is made, and what is missing is named by its field of the cluster file. What we may not ask about is taken as
there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendError, InvalidInput, Problem
from simrun.model.cluster import ClusterConfig

_log = logging.getLogger(__name__)

FRESH_S = 60.0
"""For as long, what was found is not looked for again."""
KUEUE = "/apis/kueue.x-k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1"


class Access(NamedTuple):
    """A thing to be allowed. group: of the API, "" for the core."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        """Give it as an administrator would say it."""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"


NEEDED = (
    *(
        Access(verb, "workflows", "argoproj.io")
        for verb in ("create", "get", "list", "watch", "patch", "delete")
    ),
    *(Access(verb, "pods") for verb in ("list", "watch", "delete")),
    Access("get", "pods/log"),
)
NEEDED_IN_PODS = (
    Access("create", "workflowtaskresults", "argoproj.io"),
    Access("patch", "workflowtaskresults", "argoproj.io"),
)


class Preflight:
    """Looks for what runs need on a cluster, in one namespace."""

    def __init__(self, kube: KubeSession, config: ClusterConfig) -> None:
        self._kube = kube
        self._config = config
        self._found_at: dict[tuple[str, ...], float] = {}
        self._kueue: str | None = None

    async def kueue_path(self) -> str:
        """Give where Kueue's objects are, in the version that the cluster prefers. Raises ApiError."""
        if self._kueue is None:
            group = await self._kube.get(KUEUE)
            try:
                self._kueue = f"{KUEUE}/{group['preferredVersion']['version']}"
            except (KeyError, TypeError) as error:
                raise errors.Nonsense(f"GET {KUEUE}: the answer names no version") from error
        return self._kueue

    async def permissions(self) -> None:
        """Ask whether we may do what we must. Raises BackendError that names everything that we may not."""
        async with _results() as group:
            asked = [group.create_task(self._may(access)) for access in NEEDED]
        denied = [access for access, task in zip(NEEDED, asked, strict=True) if not task.result()]
        if denied:
            raise BackendError(
                f"not allowed in namespace {self._config.namespace}: {', '.join(map(str, denied))};"
                " bind a Role with these verbs to the account that simrun uses (`kubectl auth whoami` names it)"
            )

    async def allowed(self, access: Access) -> bool:
        """Whether we may do something; also when we may not ask."""
        return await self._may(access)

    async def placement(self, priorities: Mapping[str, str]) -> None:
        """Look for what the cluster file names. Raises InvalidInput with everything that is missing.

        priorities: names of priority classes by the field of the cluster file that names them.
        """
        now = asyncio.get_running_loop().time()
        key = tuple(sorted(priorities.values()))
        found_at = self._found_at.get(key)
        if found_at is not None and now - found_at < FRESH_S:
            return
        async with _results() as group:
            tasks = [
                group.create_task(self._namespace()),
                group.create_task(self._queue()),
                group.create_task(self._service_account()),
                *(
                    group.create_task(self._priority(field, name, kind))
                    for field, name in priorities.items()
                    for kind in ("PriorityClass", "WorkloadPriorityClass")
                ),
                *(
                    group.create_task(self._claim(field))
                    for field in ("store", "snapshots", "scratch")
                ),
            ]
        problems = [problem for task in tasks if (problem := task.result()) is not None]
        missing = [problem for problem in problems if problem.field == "namespace"]
        if problems:
            raise InvalidInput(missing or problems)
        self._found_at[key] = now

    # --- one question each ---------------------------------------------------------------------------------------------

    async def _namespace(self) -> Problem | None:
        name = self._config.namespace
        if await self._exists(f"/api/v1/namespaces/{name}"):
            return None
        return Problem(
            "namespace", "does not exist on the cluster", name, f"kubectl create namespace {name}"
        )

    async def _queue(self) -> Problem | None:
        name, namespace = self._config.local_queue, self._config.namespace
        try:
            path = f"{await self.kueue_path()}/namespaces/{namespace}/localqueues/{name}"
        except errors.UnknownResource:
            remedy = "install Kueue, which admits the pods"
            return Problem("local_queue", "the cluster has no Kueue", name, remedy)
        if await self._exists(path):
            return None
        remedy = f"make a LocalQueue {name} there, or name one of `kubectl -n {namespace} get localqueues`"
        return Problem(
            "local_queue", f"there is no such queue in namespace {namespace}", name, remedy
        )

    async def _service_account(self) -> Problem | None:
        name, namespace = self._config.service_account, self._config.namespace
        if not await self._exists(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"):
            remedy = f"kubectl -n {namespace} create serviceaccount {name}"
            return Problem(
                "service_account", f"there is none in namespace {namespace}", name, remedy
            )
        async with _results() as group:
            asked = [group.create_task(self._pods_may(access)) for access in NEEDED_IN_PODS]
        denied = [
            access for access, task in zip(NEEDED_IN_PODS, asked, strict=True) if not task.result()
        ]
        if not denied:
            return None
        text = f"may not {' and '.join(map(str, denied))}, so workflows would never end"
        remedy = f"bind a Role with these verbs to it in namespace {namespace}"
        return Problem("service_account", text, name, remedy)

    async def _priority(self, field: str, name: str, kind: str) -> Problem | None:
        if kind == "PriorityClass":
            path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"
        else:
            try:
                path = f"{await self.kueue_path()}/workloadpriorityclasses/{name}"
            except errors.UnknownResource:
                return None  # told by the queue
        if await self._exists(path):
            return None
        return Problem(
            field,
            f"there is no {kind} of this name",
            name,
            f"make a {kind} {name}, or name another",
        )

    async def _claim(self, field: str) -> Problem | None:
        source: Mapping[str, Any] = getattr(self._config, field).get("persistentVolumeClaim") or {}
        name, namespace = source.get("claimName"), self._config.namespace
        if not name or await self._exists(
            f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
        ):
            return None
        text = f"there is no PersistentVolumeClaim of this name in namespace {namespace}"
        return Problem(
            f"{field}.persistentVolumeClaim.claimName", text, str(name), "make it, or name another"
        )

    # --- asking --------------------------------------------------------------------------------------------------------

    async def _exists(self, path: str) -> bool:
        """Whether an object exists; also when we may not know. Raises Unavailable, and Refused for anything odd."""
        try:
            await self._kube.get(path)
        except errors.NotFound:
            return False
        except errors.Forbidden:
            _log.debug("not allowed to look, taken as there", extra={"path": path})
        return True

    async def _may(self, access: Access) -> bool:
        path = f"{_REVIEWS}/selfsubjectaccessreviews"
        return await self._review(path, "SelfSubjectAccessReview", access, {})

    async def _pods_may(self, access: Access) -> bool:
        namespace = self._config.namespace
        who: JsonObject = {
            "user": f"system:serviceaccount:{namespace}:{self._config.service_account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
        }
        path = f"{_REVIEWS}/namespaces/{namespace}/localsubjectaccessreviews"
        return await self._review(path, "LocalSubjectAccessReview", access, who)

    async def _review(self, path: str, kind: str, access: Access, who: JsonObject) -> bool:
        """Whether something is allowed; also when we may not ask."""
        resource, _, sub = access.resource.partition("/")
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"namespace": self._config.namespace} if who else {},
            "spec": {
                **who,
                "resourceAttributes": {
                    "namespace": self._config.namespace,
                    "verb": access.verb,
                    "group": access.group,
                    "resource": resource,
                    "subresource": sub,
                },
            },
        }
        try:
            answer = await self._kube.create(path, body)
        except errors.Refused:
            return True
        return (answer.get("status") or {}).get("allowed") is not False


@asynccontextmanager
async def _results() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of questions; the first failure is raised as it is, not in a group of exceptions."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
