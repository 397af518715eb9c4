"""What Kueue says of pods that wait: its Workload objects, one for each pod, in a table.

Nobody is woken by them. That a pod waits is known from the pod; what for is read when somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.facts import wall_seconds

_POD_SET = re.compile(r"couldn't assign flavors to pod set [^:]+: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFact:
    """A workload. waiting: Kueue's words on why it has no quota or is not admitted; "" once it is."""

    uid: str
    name: str
    pod_uid: str
    pod: str
    queue: str
    priority: int = 0
    created: float = 0.0
    waiting: str = ""


def workload_fact(obj: JsonObject) -> WorkloadFact:
    """Read a workload."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    owner: Mapping[str, Any] = next(
        (one for one in metadata.get("ownerReferences") or [] if one.get("kind") == "Pod"), {}
    )
    return WorkloadFact(
        uid=metadata["uid"],
        name=metadata["name"],
        pod_uid=str(owner.get("uid", "")),
        pod=str(owner.get("name", "")),
        queue=str(spec.get("queueName") or ""),
        priority=int(spec.get("priority") or 0),
        created=wall_seconds(metadata.get("creationTimestamp")) or 0.0,
        waiting=_waiting(spec, (obj.get("status") or {}).get("conditions") or []),
    )


def _waiting(spec: Mapping[str, Any], conditions: Iterable[Mapping[str, Any]]) -> str:
    by_type = {str(one.get("type")): one for one in conditions}

    def holds(kind: str) -> bool:
        return by_type.get(kind, {}).get("status") == "True"

    def words(kind: str) -> str:
        return str(by_type.get(kind, {}).get("message") or "")

    if holds("Finished") or holds("Admitted"):
        return ""
    if spec.get("active") is False:
        return words("Evicted") or "it was deactivated"
    if holds("QuotaReserved"):
        return words("Admitted") or "quota is reserved; an admission check has not ended"
    text = words("QuotaReserved") or words("Evicted") or "Kueue has not looked at it yet"
    return _POD_SET.sub("", text)


class WorkloadTable:
    """The workloads that exist, by uid."""

    def __init__(self) -> None:
        self._facts: dict[str, WorkloadFact] = {}
        self._by_pod: dict[str, str] = {}

    fact_of = staticmethod(workload_fact)

    def replace(self, facts: Iterable[WorkloadFact]) -> None:
        """Take all workloads that exist."""
        self._facts.clear()
        self._by_pod.clear()
        for fact in facts:
            self._take(fact)

    def upsert(self, obj: JsonObject) -> None:
        """Take a workload that is new or changed."""
        self._take(workload_fact(obj))

    def drop(self, obj: JsonObject) -> None:
        """Take a deletion."""
        fact = self._facts.pop(str(obj["metadata"]["uid"]), None)
        if fact is not None and self._by_pod.get(fact.pod_uid) == fact.uid:
            del self._by_pod[fact.pod_uid]

    def get(self, uid: str) -> WorkloadFact | None:
        """Give a workload by its uid."""
        return self._facts.get(uid)

    def wait_of(self, pod_uid: str) -> str | None:
        """Say which queue a pod waits in, where, and for what; "" when it is admitted, None when it has no workload."""
        fact = self._facts.get(self._by_pod.get(pod_uid, ""))
        if fact is None:
            return None
        if not fact.waiting:
            return ""
        place, count = self._place(fact)
        where = f"queue {fact.queue}" + (f" ({place} of {count} that wait)" if count > 1 else "")
        return f"{where}: {fact.waiting}"

    def _place(self, fact: WorkloadFact) -> tuple[int, int]:
        """Where a workload stands among those of its LocalQueue that wait, as Kueue orders them, and how many there are."""
        waiting = [one for one in self._facts.values() if one.queue == fact.queue and one.waiting]
        waiting.sort(key=lambda one: (-one.priority, one.created, one.uid))
        return waiting.index(fact) + 1, len(waiting)

    def _take(self, fact: WorkloadFact) -> None:
        self._facts[fact.uid] = fact
        self._by_pod[fact.pod_uid] = fact.uid

    def __len__(self) -> int:
        return len(self._facts)
