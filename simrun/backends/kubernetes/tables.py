"""The tables that reflectors keep: workflows and pods, and which runs a change concerns.

Synchronous throughout: asyncio runs nothing else during an update, so a reader never sees half of one. A change puts a run id on the
hints and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Self

from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.facts import (
    PodFact,
    WorkflowFact,
    merged,
    pod_fact,
    workflow_fact,
)


class Hints(AsyncIterator[str]):
    """Ids of runs to look at, each at most once until it is taken; for one reader."""

    def __init__(self) -> None:
        self._runs: dict[str, None] = {}
        self._filled = asyncio.Event()

    def add(self, run: str) -> None:
        """Note that something of a run changed."""
        self._runs[run] = None
        self._filled.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Give the run that has waited longest, as soon as there is one."""
        while not self._runs:
            self._filled.clear()
            await self._filled.wait()
        run = next(iter(self._runs))
        del self._runs[run]
        return run


class WorkflowTable:
    """The workflows of simrun that exist, by name.

    What their metadata say is significant: phase, completion, deletion. That Argo wrote one for another reason is `minor`; it
    depends on what the pods say whether that is worth a look.
    """

    def __init__(
        self,
        notify: Callable[[str], None],
        minor: Callable[[WorkflowFact], None] = lambda _fact: None,
    ) -> None:
        self._notify = notify
        self._minor = minor
        self._facts: dict[str, WorkflowFact] = {}
        self.synced = False
        """Whether a whole list was seen: before it, absence means nothing."""

    fact_of = staticmethod(workflow_fact)

    def replace(self, facts: Iterable[WorkflowFact]) -> None:
        """Take all workflows that exist."""
        listed = {fact.name: fact for fact in facts}
        for name in [name for name in self._facts if name not in listed]:
            self._notify(self._facts.pop(name).run)
        for fact in listed.values():
            self._take(fact)
        self.synced = True

    def upsert(self, obj: JsonObject) -> None:
        """Take a workflow that is new or changed."""
        self._take(workflow_fact(obj))

    def drop(self, obj: JsonObject) -> None:
        """Take a deletion."""
        fact = workflow_fact(obj)
        self._facts.pop(fact.name, None)
        self._notify(fact.run)

    def get(self, name: str) -> WorkflowFact | None:
        """Give a workflow by its name."""
        return self._facts.get(name)

    def exists(self, name: str, uid: str) -> bool:
        """Whether this very workflow is in the table."""
        fact = self._facts.get(name)
        return fact is not None and fact.uid == uid

    def runs(self) -> set[str]:
        """Give the ids of all runs that have a workflow."""
        return {fact.run for fact in self._facts.values()}

    def __len__(self) -> int:
        return len(self._facts)

    def _take(self, fact: WorkflowFact) -> None:
        old = self._facts.get(fact.name)
        if old == fact:
            return
        self._facts[fact.name] = fact
        if old is not None and replace(old, version=fact.version) == fact:
            self._minor(fact)
        else:
            self._notify(fact.run)


class PodTable:
    """The pods of runs, by uid: those that exist, and those that are gone for as long as their workflow is not.

    The second kind is evidence: why a pod was told to leave stands nowhere else once it is deleted.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._facts: dict[str, PodFact] = {}
        self._of_workflow: dict[str, set[str]] = {}

    fact_of = staticmethod(pod_fact)

    def replace(self, facts: Iterable[PodFact]) -> None:
        """Take all pods that exist; the others are gone."""
        listed = {fact.uid: fact for fact in facts}
        for uid, fact in list(self._facts.items()):
            if uid not in listed:
                self._take(replace(fact, gone=True))
        for fact in listed.values():
            self._take(fact)

    def upsert(self, obj: JsonObject) -> None:
        """Take a pod that is new or changed."""
        self._take(pod_fact(obj))

    def drop(self, obj: JsonObject) -> None:
        """Take the last state of a deleted pod."""
        self._take(replace(pod_fact(obj), gone=True))

    def uids(self, workflow: str) -> frozenset[str]:
        """Give the uids of all known pods of a workflow; for `learn`, to be asked before its list is."""
        return frozenset(self._of_workflow.get(workflow, ()))

    def of(self, workflow: str) -> list[PodFact]:
        """Give all that is known of the pods of a workflow, gone ones too."""
        return [self._facts[uid] for uid in self._of_workflow.get(workflow, ())]

    def learn(
        self, workflow: str, objects: Iterable[JsonObject], before: frozenset[str]
    ) -> list[PodFact]:
        """Take a consistent list of the pods of one workflow, and give all that is known of them, gone ones too.

        A pod that was known `before` the list was asked for and is not in it is gone; one that turned up while it was
        under way is younger than the list. Tells nobody: whoever asked for the list is about to look.
        """
        listed = {fact.uid: fact for fact in map(pod_fact, objects)}
        for uid, fact in listed.items():
            self._keep(merged(self._facts[uid], fact) if uid in self._facts else fact)
        return [
            replace(fact, gone=True) if fact.uid in before and fact.uid not in listed else fact
            for fact in self.of(workflow)
        ]

    def whose(self, uid: str) -> str:
        """Say whose a pod is, in words; "" for one that is not known."""
        fact = self._facts.get(uid)
        return f"run {fact.run}, worker {fact.worker}" if fact is not None else ""

    def forget_without(self, exists: Callable[[str, str], bool]) -> int:
        """Drop the pods that are gone together with their workflow; `exists` is asked for name and uid of the latter."""
        stale = [
            uid
            for uid, fact in self._facts.items()
            if fact.gone and not exists(fact.workflow, fact.owner)
        ]
        for uid in stale:
            workflow = self._facts.pop(uid).workflow
            self._of_workflow[workflow].discard(uid)
            if not self._of_workflow[workflow]:
                del self._of_workflow[workflow]
        return len(stale)

    def runs(self) -> set[str]:
        """Give the ids of all runs that have a pod."""
        return {fact.run for fact in self._facts.values() if not fact.gone}

    def __len__(self) -> int:
        return len(self._facts)

    def _take(self, fact: PodFact) -> None:
        old = self._facts.get(fact.uid)
        new = fact if old is None else merged(old, fact)
        if new != old:
            self._keep(new)
            self._notify(fact.run)

    def _keep(self, fact: PodFact) -> None:
        self._facts[fact.uid] = fact
        self._of_workflow.setdefault(fact.workflow, set()).add(fact.uid)
