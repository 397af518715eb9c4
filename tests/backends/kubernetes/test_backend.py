"""The backend before a fake API server: what it asks for, what it takes for its own, and what it tells when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from simrun.backends.base import Backend, Phase
from simrun.backends.kubernetes import errors, watching
from simrun.backends.kubernetes.backend import KubernetesBackend, open_backend
from simrun.backends.kubernetes.backoff import Timing
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendError, BackendUnavailable, Conflict, InvalidInput
from simrun.model.cluster import ClusterConfig, PriorityClasses
from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run
from tests.backends.kubernetes.fake_api import FURNITURE, FakeApi, furnished_api, is_list
from tests.backends.kubernetes.objects import condition, pod, retry, running, terminated, workload

Json = dict[str, Any]

CONFIG = ClusterConfig(namespace="here", image="image:1")
WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/here/workflows"
PODS = "/api/v1/namespaces/here/pods"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/here/workloads"
NAME = "simrun-r1"
WORKFLOW = f"{WORKFLOWS}/{NAME}"
TYPES = {"sim": TaskType(command=["true"])}
QUICK = Timing(short_s=0.0, first_s=0.01, longest_s=0.05)


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with furnished_api() as api:
        yield api


@pytest.fixture
async def backend(server: FakeApi, kube: KubeSession) -> AsyncIterator[KubernetesBackend]:
    async with KubernetesBackend(CONFIG, kube, timing=QUICK, sweep_s=60, read_s=0.0) as backend:
        await backend.synced()
        await server.watched(3)
        yield backend


def record(**values: Any) -> RunRecord:
    values = {"id": "r1", "fingerprint": "f1", "times": RunTimes(created=0)} | values
    return RunRecord(**values).with_workflow(Workflow(tasks={"sim": Task(type="sim")}))


async def submit(backend: Backend, **values: Any) -> str:
    one = record(**values)
    assert one.workflow is not None
    return await backend.submit(one, plan_run(one.workflow, TYPES, {}, {}), TYPES)


def there(server: FakeApi) -> Json:
    found = server.read(WORKFLOW)
    assert found is not None
    return found


async def put_status(server: FakeApi, **status: Any) -> None:
    """What Argo would do."""
    await server.put(WORKFLOW, there(server) | {"status": status})


async def put_pod(server: FakeApi, uid: str, *args: Any, **values: Any) -> None:
    owner = there(server)["metadata"]["uid"]
    one = pod(*args, uid=uid, workflow=NAME, owner=owner, **values)
    await server.put(f"{PODS}/{one['metadata']['name']}", one)


async def next_event(events: AsyncIterator[str]) -> str:
    async with asyncio.timeout(20):
        return await anext(events)


# --- opening


def kubeconfig(path: Path, server: str) -> Path:
    content = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps(content))
    return path


async def test_a_backend_is_opened_from_a_kubeconfig(server: FakeApi, tmp_path: Path) -> None:
    server.token = "Bearer secret"

    async with open_backend(CONFIG, kubeconfig(tmp_path / "config", server.url)) as backend:
        assert await submit(backend) == NAME


async def test_a_cluster_that_is_not_there_is_told_before_anything_is_begun(
    server: FakeApi, tmp_path: Path
) -> None:
    with pytest.raises(errors.Unreachable):
        async with open_backend(CONFIG, kubeconfig(tmp_path / "config", "http://127.0.0.1:1")):
            pass
    server.fail(404, "404 page not found\n")
    with pytest.raises(errors.UnknownResource, match="are Argo Workflows and Kueue installed"):
        async with open_backend(CONFIG, kubeconfig(tmp_path / "config", server.url)):
            pass


# --- submit


async def test_a_run_becomes_a_workflow_that_says_whose_it_is(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    assert await submit(backend, attempt_base={"sim": 3}) == NAME

    metadata = there(server)["metadata"]
    assert metadata["labels"]["simrun/run"] == "r1"
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "simrun"
    assert metadata["annotations"]["simrun/fingerprint"] == "f1"
    assert metadata["annotations"]["simrun/attempt-base"] == '{"sim": 3}'


async def test_submitting_again_changes_nothing(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    before = there(server)

    assert await submit(backend) == NAME
    assert await submit(backend, workflow_uid=before["metadata"]["uid"]) == NAME

    assert there(server) == before


async def test_a_create_whose_answer_was_lost_is_found_by_the_next_try(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)  # it arrived
    server.fail(504, "", matches=lambda request: request.method == "POST")

    with pytest.raises(BackendUnavailable):
        await submit(backend)
    assert await submit(backend) == NAME


@pytest.mark.parametrize(
    "values",
    [{"fingerprint": "other"}, {"workflow_uid": "of another that had this name"}],
)
async def test_a_name_that_is_taken_is_a_conflict(
    backend: KubernetesBackend, values: dict[str, str]
) -> None:
    await submit(backend)

    with pytest.raises(Conflict):
        await submit(backend, **values)


async def test_a_workflow_that_is_not_simruns_is_a_conflict_and_left_alone(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    foreign = await server.put(WORKFLOW, {"metadata": {"labels": {"simrun/run": "r1"}}})

    for call in (submit(backend), backend.stop(NAME), backend.delete(NAME)):
        with pytest.raises(Conflict, match="not simrun's"):
            await call

    assert there(server) == foreign


async def test_a_workflow_that_is_being_deleted_has_to_go_first(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    dying = there(server)
    dying["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    await server.put(WORKFLOW, dying)

    with pytest.raises(BackendUnavailable, match="being deleted"):
        await submit(backend)


async def test_a_refusal_of_a_webhook_is_final(server: FakeApi, backend: KubernetesBackend) -> None:
    text = '{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "denied the request"}'
    server.fail(403, text, matches=lambda r: r.method == "POST" and r.path == WORKFLOWS)

    with pytest.raises(BackendError, match="denied the request"):
        await submit(backend)


async def test_a_cluster_without_argo_is_told_from_one_without_the_workflow(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    server.fail(404, "404 page not found\n", times=2, matches=lambda r: r.path == WORKFLOW)

    with pytest.raises(errors.UnknownResource, match="Argo"):
        await backend.status(NAME)
    with pytest.raises(errors.UnknownResource):
        await backend.stop(NAME)
    assert await backend.status(NAME) is None


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("localqueues/simrun", "local_queue: there is no such queue in namespace here"),
        ("/priorityclasses/simrun-base", "base_priority: there is no PriorityClass"),
        ("workloadpriorityclasses/simrun-base", "base_priority: there is no WorkloadPriorityClass"),
        ("serviceaccounts/simrun-pod", "service_account: there is none in namespace here"),
        (
            "persistentvolumeclaims/simrun-store",
            "store.persistentVolumeClaim.claimName: there is no",
        ),
        ("/api/v1/namespaces/here", "namespace: does not exist on the cluster"),
    ],
)
async def test_what_the_cluster_lacks_is_named_before_anything_is_made(
    server: FakeApi, backend: KubernetesBackend, missing: str, told: str
) -> None:
    (path,) = [path for path in FURNITURE if path.endswith(missing)]
    await server.remove(path)

    with pytest.raises(InvalidInput) as caught:
        await submit(backend)

    assert told in str(caught.value)
    assert all(problem.remedy for problem in caught.value.problems)
    assert server.read(WORKFLOW) is None


async def test_a_priority_whose_classes_are_missing_or_that_nobody_knows_is_refused(
    server: FakeApi, kube: KubeSession
) -> None:
    config = CONFIG.model_copy(update={"priorities": {"high": PriorityClasses(base="urgent")}})
    async with KubernetesBackend(config, kube) as backend:
        with pytest.raises(InvalidInput) as missing:
            await submit(backend, priority="high")
        with pytest.raises(InvalidInput, match="one of high, normal"):
            await submit(backend, priority="higher")
        for path in FURNITURE:
            if path.endswith("priorityclasses/simrun-base"):
                await server.put(path.replace("simrun-base", "urgent"), {})
        await submit(backend, priority="high")

    told = {(problem.field, problem.value) for problem in missing.value.problems}
    assert told == {("priorities.high.base", "urgent")}
    tasks = there(server)["spec"]["templates"][0]["dag"]["tasks"]
    assert '{"name": "priority", "value": "urgent"}' in json.dumps(tasks)


async def test_all_that_is_missing_is_told_at_once(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    for path in FURNITURE[1:4]:
        await server.remove(path)
    with pytest.raises(InvalidInput) as caught:
        await submit(backend)
    assert {problem.field.partition(".")[0] for problem in caught.value.problems} == {
        "service_account",
        "local_queue",
        "store",
        "snapshots",
    }


async def test_a_run_whose_workflow_exists_is_not_refused_any_more(
    server: FakeApi, backend: KubernetesBackend, kube: KubeSession
) -> None:
    await submit(backend)
    await server.remove(FURNITURE[3])

    async with KubernetesBackend(CONFIG, kube, timing=QUICK) as anew:
        assert await submit(anew) == NAME


async def test_what_we_may_not_look_for_is_taken_as_there(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    for path in FURNITURE:
        await server.remove(path)
    refusal = '{"kind": "Status", "code": 403, "reason": "Forbidden"}'
    server.fail(403, refusal, times=1000, matches=lambda r: r.path in FURNITURE)

    assert await submit(backend) == NAME


async def test_pods_that_may_not_write_results_are_told_before(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    server.denied = {"create workflowtaskresults"}

    with pytest.raises(InvalidInput, match="may not create workflowtaskresults"):
        await submit(backend)


async def test_all_permissions_that_are_missing_are_told_when_the_cluster_is_opened(
    server: FakeApi, tmp_path: Path
) -> None:
    server.denied = {"create workflows", "get pods/log", "get nodes"}

    with pytest.raises(BackendError) as caught:
        async with open_backend(CONFIG, kubeconfig(tmp_path / "config", server.url)):
            pass

    text = "not allowed in namespace here: create workflows.argoproj.io, get pods/log; bind a Role"
    assert text in str(caught.value)


# --- status


async def test_the_state_comes_from_consistent_reads(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    nodes = retry("sim", "Running", [{"phase": "Running"}])
    await put_status(server, phase="Running", nodes={node["id"]: node for node in nodes})
    server.requests.clear()

    status = await backend.status(NAME)

    assert status is not None
    assert status.phase is Phase.RUNNING
    assert status.uid == there(server)["metadata"]["uid"]
    assert set(status.nodes) == {"sim"}
    for request in server.requests:
        assert "resourceVersion" not in request.query


async def test_what_a_pod_said_before_it_went_is_remembered(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    events = backend.events()
    preempted = condition("TerminationTarget", "WorkloadEvictedDueToPreempted", "by a workload")
    await put_pod(server, "p1", "sim(0)", containers=(running(),), conditions=(preempted,))
    await server.remove(f"{PODS}/{NAME}-p1")
    attempt = {"phase": "Error", "message": "pod deleted"}
    nodes = retry("sim", "Running", [attempt])
    for node in nodes:
        node["id"] = node["id"].replace("wf-id", f"{NAME}-id")
    nodes[0]["children"] = [nodes[1]["id"]]
    await put_status(server, phase="Running", nodes={node["id"]: node for node in nodes})

    async with asyncio.timeout(20):
        while True:
            await next_event(events)
            status = await backend.status(NAME)
            if status and status.nodes and status.nodes["sim"].attempts[0].reason == "preempted":
                break

    (told,) = status.nodes["sim"].attempts
    assert "by a workload" in told.message
    assert told.pod_uid == "p1"


async def test_a_status_while_the_server_is_away_is_no_answer(
    server: FakeApi, backend: KubernetesBackend, kube: KubeSession
) -> None:
    await submit(backend)
    for status in (500, 502, 503, 429):
        server.fail(status, "<html>", matches=lambda request: request.path == WORKFLOW)
        with pytest.raises(BackendUnavailable):
            await backend.status(NAME)
    server.fail(503, "", matches=lambda r: is_list(r) and "pods" in r.path)
    with pytest.raises(BackendUnavailable):
        await KubernetesBackend(CONFIG, kube).status(NAME)


async def test_a_pod_that_waits_for_quota_says_what_kueue_says_and_where_it_stands(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    nodes = retry("sim", "Running", [{"phase": "Pending"}])
    for node in nodes:
        node["id"] = node["id"].replace("wf-id", f"{NAME}-id")
    nodes[0]["children"] = [nodes[1]["id"]]
    await put_status(server, phase="Running", nodes={node["id"]: node for node in nodes})
    gated = pod("sim(0)", uid="p1", workflow=NAME, owner=there(server)["metadata"]["uid"])
    gated["status"] = {"phase": "Pending"}
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    await server.put(f"{PODS}/{NAME}-p1", gated)

    async def words() -> str:
        status = await backend.status(NAME)
        assert status is not None
        return status.nodes["sim"].attempts[-1].message

    assert "Kueue has not made a workload" in await words()
    for number, owner in enumerate(("other", "p1")):
        await server.put(f"{WORKLOADS}/w{number}", workload(owner, f"12:0{number}:00"))
    async with asyncio.timeout(20):
        while "more needed" not in (said := await words()):
            await asyncio.sleep(0.01)
    assert (
        said == "queue sims (2 of 2 that wait): insufficient unused quota for cpu, 500m more needed"
    )


async def test_a_preemptor_is_named_by_its_run(server: FakeApi, backend: KubernetesBackend) -> None:
    await submit(backend)
    await put_pod(server, "winner", "sim-w0(0)", run="r2", containers=(running(),))
    await server.put(f"{WORKLOADS}/w1", workload("winner", "12:00:00", uid="aa-bb-01"))
    text = "Preempted to accommodate a workload (UID: aa-bb-01, JobUID: x) due to prioritization"
    told = condition("TerminationTarget", "WorkloadEvictedDueToPreempted", text)
    await put_pod(server, "p1", "sim(0)", containers=(running(),), conditions=(told,))
    nodes = retry("sim", "Running", [{"phase": "Running"}])
    for node in nodes:
        node["id"] = node["id"].replace("wf-id", f"{NAME}-id")
    nodes[0]["children"] = [nodes[1]["id"]]
    await put_status(server, phase="Running", nodes={node["id"]: node for node in nodes})

    async with asyncio.timeout(20):
        while True:
            status = await backend.status(NAME)
            assert status is not None
            (attempt,) = status.nodes["sim"].attempts
            if not attempt.preemptor.startswith("workload"):
                break
            await asyncio.sleep(0.01)

    assert (attempt.leaving, attempt.preemptor) == ("preempted", "run r2, worker sim-w0")


async def test_how_fresh_the_tables_are_can_be_read(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    assert set(backend.statistics()) == {"workflows", "pods", "workloads"}
    assert all(one.drift == 0 for one in backend.statistics().values())
    assert backend.trouble() == []
    age = backend.age_s()
    assert age is not None
    assert age < 20
    assert KubernetesBackend(CONFIG, backend._kube).age_s() is None
    assert KubernetesBackend(CONFIG, backend._kube).trouble() == [
        "workflows were not listed yet",
        "pods were not listed yet",
    ]


async def test_a_cluster_that_goes_away_is_told(
    server: FakeApi, backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FAILING_S", 0.05)
    server.fail(503, "<html>", times=10**6)
    server.reset_connections()
    async with asyncio.timeout(20):
        while not backend.trouble():
            await asyncio.sleep(0.01)

    assert "can't be followed" in backend.trouble()[0]
    server.recover()
    async with asyncio.timeout(20):
        while backend.trouble():
            await asyncio.sleep(0.01)


async def test_a_cluster_without_kueue_is_followed_all_the_same(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(404, "404 page not found\n", matches=lambda r: "kueue" in r.path, times=1000)

    async with KubernetesBackend(CONFIG, kube, timing=QUICK, sweep_s=60) as backend:
        await backend.synced()
        assert backend.trouble() == []
        with pytest.raises(InvalidInput, match="the cluster has no Kueue"):
            await submit(backend)


async def test_what_fails_while_a_backend_is_open_is_raised_as_it_is(
    server: FakeApi, kube: KubeSession
) -> None:
    with pytest.raises(Conflict, match="mine"):
        async with KubernetesBackend(CONFIG, kube, timing=QUICK):
            raise Conflict("mine")


# --- stop and delete


async def test_stopping_sets_the_shutdown_and_stopping_nothing_is_done(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await backend.stop(NAME)
    await submit(backend)

    await backend.stop(NAME)

    assert there(server)["spec"]["shutdown"] == "Terminate"


async def test_a_workflow_that_has_ended_is_not_touched_by_stopping(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    await put_status(server, phase="Succeeded")
    before = there(server)

    await backend.stop(NAME)

    assert there(server) == before


@pytest.mark.parametrize("phase", ["Running", "Failed"])
async def test_stopping_now_ends_the_pods_that_run_and_keeps_the_others(
    server: FakeApi, backend: KubernetesBackend, phase: str
) -> None:
    await submit(backend)
    await put_status(server, phase=phase)
    await put_pod(server, "p1", "sim(0)", phase="Failed")
    await put_pod(server, "p2", "sim(1)", phase="Running")
    await put_pod(server, "p3", "sim(2)", phase="Pending")

    await backend.stop(NAME, now=True)

    left = [server.read(f"{PODS}/{NAME}-{uid}") is not None for uid in ("p1", "p2", "p3")]
    assert left == [True, False, False]
    assert server.deleted_with_grace == {f"{PODS}/{NAME}-p2": 1, f"{PODS}/{NAME}-p3": 1}
    assert there(server)["spec"].get("shutdown") == (None if phase == "Failed" else "Terminate")


async def test_deleting_stops_first_and_takes_the_pods_along(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await backend.delete(NAME)
    await submit(backend)
    await put_pod(server, "p1", "sim(0)")
    server.requests.clear()

    await backend.delete(NAME)

    assert await backend.status(NAME) is None
    assert server.read(f"{PODS}/{NAME}-p1") is None
    methods = [request.method for request in server.requests if request.path == WORKFLOW]
    assert [method for method in methods if method != "GET"] == ["PATCH", "DELETE"]


# --- logs


async def log_of(backend: KubernetesBackend, attempt: int) -> bytes:
    return b"".join([chunk async for chunk in backend.logs(NAME, "sim", attempt)])


async def test_the_log_of_an_attempt_is_that_of_its_pod(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    assert await log_of(backend, 0) == b""
    await submit(backend, attempt_base={"sim": 2})
    await put_pod(server, "p1", "sim(0)", containers=(terminated("main", 143, "Error"),))
    await put_pod(server, "p2", "sim(1)", containers=(running(),), created="12:01:00")
    await put_pod(server, "p3", "sim(1)", containers=(running(),), created="12:02:00")
    await put_pod(server, "p4", "sim(2)")
    server.logs = {f"{NAME}-p1": b"one\x80", f"{NAME}-p2": b"old", f"{NAME}-p3": b"x" * 10**6}

    assert await log_of(backend, 2) == b"one\x80"
    assert await log_of(backend, 3) == b"x" * 10**6  # the younger of two pods of one attempt
    assert await log_of(backend, 4) == b""  # has not started
    assert await log_of(backend, 5) == b""  # was never made


async def test_a_log_that_cannot_be_read_now_is_not_empty(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    await submit(backend)
    await put_pod(server, "p1", "sim(0)")
    server.fail(500, "kubelet is away", matches=lambda request: request.path.endswith("/log"))

    with pytest.raises(BackendUnavailable):
        await log_of(backend, 0)


# --- events


async def test_changes_of_workflows_and_pods_name_their_run(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    events = backend.events()
    await submit(backend)
    assert await next_event(events) == "r1"

    await put_status(server, phase="Running")
    assert await next_event(events) == "r1"
    await put_pod(server, "p1", "sim(0)", run="r1")
    assert await next_event(events) == "r1"
    await server.put(f"{PODS}/foreign", {"metadata": {"labels": {"app": "web"}}})
    await server.put(f"{WORKFLOWS}/foreign", {"metadata": {"labels": {"simrun/run": "r9"}}})
    await server.remove(WORKFLOW)
    assert await next_event(events) == "r1"


async def test_a_listener_is_told_of_what_was_there_before(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    first = backend.events()
    await submit(backend)
    await next_event(first)

    assert await next_event(backend.events()) == "r1"


async def test_a_listener_that_left_is_forgotten(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    events = backend.events()
    await submit(backend)
    await next_event(events)

    await events.aclose()  # type: ignore[attr-defined] # an async generator behind the protocol's iterator

    assert not backend._watches.listeners


async def test_a_sweep_names_every_run_without_a_change(server: FakeApi, kube: KubeSession) -> None:
    async with KubernetesBackend(CONFIG, kube, timing=QUICK, sweep_s=0.05) as backend:
        await backend.synced()
        events = backend.events()
        await submit(backend)

        for _ in range(5):
            assert await next_event(events) == "r1"


async def test_a_workflow_deleted_while_nobody_watched_is_told(
    server: FakeApi, backend: KubernetesBackend
) -> None:
    events = backend.events()
    await submit(backend)
    await next_event(events)
    server.frozen = True
    await server.remove(WORKFLOW)
    server.reset_connections()
    await server.watched(6)
    server.frozen = False
    await server.bookmark()

    assert await next_event(events) == "r1"
    assert await backend.status(NAME) is None


async def test_a_watch_that_breaks_because_of_a_bug_ends_the_backend_loudly(
    server: FakeApi, kube: KubeSession
) -> None:
    odd = {"metadata": {"labels": {"simrun/run": "r"}}, "spec": 5}

    async def follow() -> None:
        async with KubernetesBackend(CONFIG, kube, timing=QUICK) as backend:
            await backend.synced()
            await server.put(f"{PODS}/odd", odd)
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:
        await follow()

    assert raised.group_contains(AttributeError)
