"""LaunchPlanStore: the versions of launch plans, and which of them is active.

    launch-plans/<group>/<name>/<version>.json      by link, so that of two creations one is; never changed
                                <version>.files/    the local files that came with it, there before the version
                                <version>.deleted   its name is not used again: the ids of its runs stand for what it was
                                active.json         by rename: a reader sees the one or the other version, whole

Blocking, like RunStore. Calls for one plan take turns: in this process by a lock, among processes where the file system locks directories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from simrun.base import ids
from simrun.base.errors import Conflict, DamagedRecord, NotFound
from simrun.base.labeltext import label_value
from simrun.model.launchplan import Active, LaunchPlan, PlanHead, version_problem
from simrun.store import codec, flocks
from simrun.store import files as store_files
from simrun.store.keylocks import KeyLocks
from simrun.store.layout import PlanDir, StoreLayout
from simrun.store.pauses import note_change
from simrun.worker import files, trees

_VERSION_END, _TOMBSTONE_END = ".json", ".deleted"

Signature = tuple[int, int, int]
"""What tells one active.json from another without opening it: inode, time of the last write in nanoseconds, size."""


Overview = tuple[PlanHead, Active | None, int]
"""Of a plan: the version that is told of it, what is active, and how many versions there are."""


@dataclass(frozen=True, slots=True)
class PlanPlace:
    """Where a plan is: the directory of its group, which is the label value of the group, and its name."""

    group_dir: str
    name: str


class LaunchPlanStore:
    """The launch plans in a run store."""

    def __init__(self, root: Path) -> None:
        self._layout = StoreLayout(root)
        self._locks = KeyLocks()
        self._last: tuple[PlanPlace, PlanDir] | None = None

    def _at(self, place: PlanPlace) -> PlanDir:
        """Give the directory at a place; a start asks three times for each of thousands, and joining paths is what costs then."""
        last = self._last
        if last is None or last[0] is not place:
            last = place, self._layout.launch_plan(place.group_dir, place.name)
            self._last = last
        return last[1]

    # --- versions ----------------------------------------------------------------------------------------------------

    def create(
        self, plan: LaunchPlan, prepare: Callable[[Path], None] | None = None
    ) -> tuple[LaunchPlan, bool]:
        """Make a version exist, or give the one that does when it is the same; and whether this call made it.

        `prepare` fills the directory of its files. Raises Conflict for a version that is another one, or was deleted.
        """
        place = self._dir(plan.group, plan.name)
        files.make_directory(place.root)
        with self._alone(place):
            self._refuse_deleted(place, plan.version)
            if (there := self._find(LaunchPlan, place, plan.version)) is not None:
                return _same(there, plan), False
            if prepare is not None:
                store_files.remove_tree(place.files(plan.version))  # of a creation that was cut off
                files.make_directory(place.files(plan.version))
                prepare(place.files(plan.version))
                trees.sync(place.files(plan.version))
            if not files.create(place.version(plan.version), codec.encode(plan)):
                return _same(self.read(plan.group, plan.name, plan.version), plan), False
            if self._deleted(place, plan.version):  # meanwhile, by a process that takes no turns
                place.version(plan.version).unlink(missing_ok=True)
                self._refuse_deleted(place, plan.version)
        return plan, True

    def read(self, group: str, name: str, version: str) -> LaunchPlan:
        """Give a version. Raises NotFound, DamagedRecord."""
        return self._read(LaunchPlan, group, name, version)

    def head(self, group: str, name: str, version: str) -> PlanHead:
        """Give a version without its workflow. Raises NotFound, DamagedRecord."""
        return self._read(PlanHead, group, name, version)

    def head_at(self, place: PlanPlace, version: str) -> PlanHead:
        """Give the head of a version of the plan at a place. Raises NotFound, DamagedRecord."""
        head = self._find(PlanHead, self._at(place), version)
        if head is None:
            raise NotFound(f"no version {version!r} of launch plan {place.name!r}")
        return head

    def heads(self, group: str, name: str) -> list[PlanHead]:
        """Give the versions of a plan without their workflows, oldest first; none for an unknown plan. Damaged ones are left out."""
        found = []
        for version in self.versions(group, name):
            with suppress(NotFound, DamagedRecord):
                found.append(self.head(group, name, version))
        return sorted(found, key=lambda head: (head.created_at, head.version))

    def versions(self, group: str, name: str) -> list[str]:
        """Give the names of the versions of a plan."""
        return _versions(files.listing(self._dir(group, name).root))

    def next_version(self, group: str, name: str) -> str:
        """Give a version that was never used: the highest number and one."""
        used = files.listing(self._dir(group, name).root)
        names = [*_versions(used), *_ending(used, _TOMBSTONE_END)]
        numbers = [int(text) for text in names if text.isascii() and text.isdigit()]
        return str(max(numbers, default=0) + 1)

    def files_of(self, plan: LaunchPlan) -> Path:
        """Give the directory of the files that came with a version."""
        return self._dir(plan.group, plan.name).files(plan.version)

    def delete(self, group: str, name: str, version: str) -> None:
        """Take a version away. Raises NotFound, Conflict when it is the active one."""
        place = self._dir(group, name)
        with self._alone(place):
            there = place.version(version).name in files.listing(place.root)
            if version_problem(version) or not there:  # half of it may have gone before
                raise NotFound(f"no version {version!r} of launch plan {name!r}")
            if (active := self._active(place)) is not None and active.version == version:
                raise Conflict(f"version {version} of launch plan {name} is active; deactivate it")
            files.create(place.tombstone(version), b"")
            place.version(version).unlink(missing_ok=True)
            store_files.remove_tree(place.files(version))

    # --- which is active ---------------------------------------------------------------------------------------------

    def active(self, group: str, name: str) -> Active | None:
        """Give what active.json says now; None where there never was one. Raises DamagedRecord."""
        return self._active(self._dir(group, name))

    def active_at(self, place: PlanPlace) -> Active | None:
        """Give what active.json of the plan at a place says now. Raises DamagedRecord."""
        return self._active(self._at(place))

    def activate(self, group: str, name: str, version: str, *, by: str, now: float) -> Active:
        """Make a version the active one. The one that is active already keeps the time of its activation.

        Raises NotFound, DamagedRecord for the version; an active.json that can't be read is replaced: this heals it.
        """
        place = self._dir(group, name)
        self.read(group, name, version)
        with self._alone(place):
            if version not in self.versions(group, name):
                raise NotFound(f"no version {version!r} of launch plan {name!r}")
            with suppress(DamagedRecord):
                active = self._active(place)
                if active is not None and active.version == version:
                    return active
            active = Active(version=version, activated_at=now, by=by)
            self._put(place, active)
        return active

    def deactivate(
        self, group: str, name: str, *, by: str, now: float, version: str | None = None
    ) -> Active:
        """Let no version be active; with `version` only when that one is. What active.json says then."""
        place = self._dir(group, name)
        if not self.versions(group, name):
            raise NotFound(f"no launch plan {name!r} in group {group!r}")
        with self._alone(place):
            active: Active | None = None
            with suppress(DamagedRecord):
                active = self._active(place) or Active(activated_at=now)
            if active is not None and (
                active.version is None or version not in (None, active.version)
            ):
                return active
            active = Active(version=None, activated_at=now, by=by)
            self._put(place, active)
        return active

    def _put(self, place: PlanDir, active: Active) -> None:
        files.replace(place.active, codec.encode(active))
        note_change(self._layout)

    # --- lists -------------------------------------------------------------------------------------------------------

    def overview(self, place: PlanPlace) -> Overview | None:
        """Give the active version of a plan, or the newest where none is, what is active, and how many versions there are.

        None for a plan of which no version can be read.
        """
        directory = self._at(place)
        versions = _versions(files.listing(directory.root))
        active: Active | None = None
        with suppress(DamagedRecord):
            active = self._active(directory)
        wanted = versions if active is None or active.version is None else [active.version]
        found = []
        for version in wanted:
            with suppress(NotFound, DamagedRecord):
                found.append(self.head_at(place, version))
        if not found:
            return None
        return max(found, key=lambda head: (head.created_at, head.version)), active, len(versions)

    def places(self, group_dir: str | None = None) -> Iterator[PlanPlace]:
        """Give every plan of every group, or of one, also those whose versions were all deleted; sorted."""
        groups = files.listing(self._layout.launch_plans) if group_dir is None else {group_dir}
        for group in sorted(groups):
            for name in sorted(files.listing(self._layout.launch_plans / group)):
                yield PlanPlace(group, name)

    def signature(self, place: PlanPlace) -> Signature | None:
        """Give what changes whenever active.json of a plan does; None where there is none."""
        path = self._at(place).active
        try:
            seen = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    # --- within ------------------------------------------------------------------------------------------------------

    def _dir(self, group: str, name: str) -> PlanDir:
        """Give the directory of a plan that a user named; what can't be a name becomes no path."""
        if ids.plan_name_problem(name):
            raise NotFound(f"no launch plan {name!r} in group {group!r}")
        return self._layout.launch_plan(label_value(group), name)

    def _read(self, kind: type[codec.M], group: str, name: str, version: str) -> codec.M:
        found = self._find(kind, self._dir(group, name), version)
        # A group that is named like the label value of another has no share in it
        if found is None or getattr(found, "group", None) != group:
            if self.versions(group, name):
                raise NotFound(f"no version {version!r} of launch plan {name!r}")
            raise NotFound(f"no launch plan {name!r} in group {group!r}")
        return found

    def _find(self, kind: type[codec.M], place: PlanDir, version: str) -> codec.M | None:
        if version_problem(version):
            return None
        path = place.version(version)
        found = codec.find(kind, path)
        if found is not None and getattr(found, "version", version) != version:
            raise DamagedRecord(f"{path}: is version {getattr(found, 'version', '')!r}")
        return found

    def _active(self, place: PlanDir) -> Active | None:
        return codec.find(Active, place.active)

    def _deleted(self, place: PlanDir, version: str) -> bool:
        return place.tombstone(version).name in files.listing(place.root)

    def _refuse_deleted(self, place: PlanDir, version: str) -> None:
        if self._deleted(place, version):
            raise Conflict(
                f"version {version} of launch plan {place.root.name} was deleted; take another name"
            )

    @contextmanager
    def _alone(self, place: PlanDir) -> Iterator[None]:
        with self._locks.held(str(place.root)), ExitStack() as stack:
            try:
                stack.enter_context(flocks.alone_in(place.root))
            except FileNotFoundError as error:
                raise NotFound(f"no launch plan {place.root.name!r}") from error
            yield


def _same(there: LaunchPlan, plan: LaunchPlan) -> LaunchPlan:
    if there.group != plan.group or there.fingerprint != plan.fingerprint:
        raise Conflict(
            f"version {plan.version} of launch plan {plan.name} exists and is another one; versions never change: "
            "leave the version out, or name a new one"
        )
    return there


def _versions(names: set[str]) -> list[str]:
    """Give the versions among names; one whose deletion was cut off is gone."""
    deleted = set(_ending(names, _TOMBSTONE_END))
    return [
        text
        for text in _ending(names, _VERSION_END)
        if text not in deleted and not version_problem(text)
    ]


def _ending(names: set[str], end: str) -> list[str]:
    return sorted(name.removesuffix(end) for name in names if name.endswith(end))
