"""New versions of launch plans: checked whole, with the files they need, and the same version for the same content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, field_validator

from simrun.base import ids
from simrun.base.errors import Conflict, InvalidInput
from simrun.model.base import Model
from simrun.model.launchplan import LaunchPlan, PlanHead, Schedule, Settings, version_problem
from simrun.model.workflow import Submission
from simrun.scheduler.launch_plans import check_plan
from simrun.service.attachments import Attachment, attach
from simrun.service.snapshots import local_data, pinned, uses
from simrun.store.launch_plans import LaunchPlanStore
from simrun.store.layout import RunDir
from simrun.store.snapshots import SnapshotStore

DESCRIPTION_MAX: Final = 10_000
_CHUNK: Final = 2**20
_TRIES: Final = 20


class NewPlan(Model):
    """What a person says of a new version, beside its workflow. Without `version` it gets the next number."""

    name: str
    version: str | None = None
    description: Annotated[str, Field(max_length=DESCRIPTION_MAX)] = ""
    defaults: Settings = {}
    fixed: Settings = {}
    schedule: Schedule | None = None

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if problem := ids.plan_name_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("version")
    @classmethod
    def _version(cls, value: str | None) -> str | None:
        if value is not None and (problem := version_problem(value)):
            raise ValueError(problem)
        return value


@dataclass(frozen=True, slots=True)
class Created:
    """A version, and whether it is new."""

    plan: LaunchPlan
    new: bool


def create(
    plans: LaunchPlanStore,
    snapshots: SnapshotStore,
    new: NewPlan,
    submission: Submission,
    attachments: list[Attachment],
    *,
    by: str,
    now: float,
) -> Created:
    """Make a version (blocking). One that is as the newest is that one, unless another name was asked for.

    Raises InvalidInput with all that is wrong, Conflict for a version that exists with other content, or was deleted.
    """
    named = uses(submission) or local_data(submission)
    with snapshots.held() if named else nullcontext():
        if named:
            # What a run reads in a year is what was there today
            submission = pinned(snapshots, submission)
    files = digests(attachments)
    given = {
        "submission": submission.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "files": files,
        **new.model_dump(mode="json", exclude={"version"}, exclude_defaults=True),
    }
    fingerprint = ids.fingerprint(given)

    def version(name: str) -> LaunchPlan:
        return LaunchPlan(
            group=submission.request.group,
            version=name,
            submission=submission,
            files=files,
            created_at=now,
            created_by=by,
            fingerprint=fingerprint,
            **new.model_dump(exclude={"version"}),
        )

    check_plan(version(new.version or "1"))

    def prepare(directory: Path) -> None:
        attach(RunDir(directory), attachments)

    group = submission.request.group
    if new.version is not None:
        return Created(*plans.create(version(new.version), prepare))
    newest = _newest(plans.heads(group, new.name))
    if newest is not None and newest.fingerprint == fingerprint:
        return Created(plans.read(group, new.name, newest.version), new=False)
    for _ in range(_TRIES):
        try:
            return Created(*plans.create(version(plans.next_version(group, new.name)), prepare))
        except Conflict:
            continue  # somebody else had the number
    raise Conflict(f"versions of launch plan {new.name} are made faster than they can be numbered")


def _newest(heads: list[PlanHead]) -> PlanHead | None:
    return heads[-1] if heads else None


def digests(attachments: Iterable[Attachment]) -> dict[str, str]:
    """Give the SHA-256 of every file by where it goes in a run (blocking). Raises InvalidInput for what can't be read."""
    found = {}
    for item in attachments:
        for path, target in _files(item):
            try:
                found[target] = _digest(path)
            except OSError as error:
                raise InvalidInput.one(target, f"can't be read: {error.strerror}") from error
    return dict(sorted(found.items()))


def _files(item: Attachment) -> list[tuple[Path, str]]:
    if not item.source.is_dir():
        return [(item.source, item.target)]
    return [
        (Path(directory, name), f"{item.target}/{Path(directory, name).relative_to(item.source)}")
        for directory, _, names in os.walk(item.source)
        for name in names
    ]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
