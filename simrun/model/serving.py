"""What a server is told: how much each group may have at once."""

from __future__ import annotations

from pydantic import Field, field_validator

from simrun.base import ids
from simrun.model.base import Model
from simrun.model.quantities import Memory


class GroupLimits(Model):
    """What one group may have at once. A field that is absent or null is no limit."""

    live_runs: int | None = Field(default=None, ge=0)
    """Runs that have not ended."""
    pods: int | None = Field(default=None, ge=0)
    """Workers of all its live runs together, as their workflows ask for them."""
    units: int | None = Field(default=None, ge=0)
    """Units of all its live runs together. Those that a plugin makes in the pod are not known before, and do not count."""
    body: Memory | None = None
    """Bytes of one request, the files of a submission included. Snapshots have limits of their own."""
    requests_per_s: float | None = Field(default=None, gt=0)
    """Requests per second of each token, on average."""
    burst: int = Field(default=50, ge=1)
    """Requests that a token may make at once after it has made none for a while."""

    def over(self, other: GroupLimits) -> GroupLimits:
        """Give these limits, with those of `other` where these say nothing."""
        return other.model_copy(
            update={name: getattr(self, name) for name in self.model_fields_set}
        )


class LimitsFile(Model):
    """The file of `simrun serve --limits`."""

    default: GroupLimits = GroupLimits()
    """Of every group, as far as `groups` does not say otherwise."""
    groups: dict[str, GroupLimits] = {}
    """By group, what is different for it."""

    @field_validator("groups")
    @classmethod
    def _groups(cls, value: dict[str, GroupLimits]) -> dict[str, GroupLimits]:
        problems = [
            f"{group!r} {problem}" for group in value if (problem := ids.group_problem(group))
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return value

    def of(self, group: str) -> GroupLimits:
        """Give the limits of a group."""
        own = self.groups.get(group)
        return self.default if own is None else own.over(self.default)
