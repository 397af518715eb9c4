"""Snapshots: read-only data sets of the run store, known by their content.

    snapshots/<name>/…                               the files, as they were
    snapshots/<name>/.simrun-snapshot/snapshot.json  what this module's Snapshot says; the snapshot exists when it stands there
    snapshots/<name>/.simrun-snapshot/files.jsonl    one Entry a line, in the order of their paths

The digest is that of the entries, so two directories with the same files have the same digest wherever they lie and whoever made them.
Times and owners of files do not count, of their modes only whether they may be executed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from pydantic import Field

from simrun.base.errors import InvalidInput
from simrun.model.base import StoredModel

OWN_DIRECTORY = ".simrun-snapshot"
"""Directory in a snapshot that is simrun's own; no file of a user may lie in it."""
DIGEST_PREFIX = "sha256:"
NAME_MAX = 63
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FOLDED = re.compile(r"[^A-Za-z0-9._-]+")
_OF_DIGEST = 12
"""Hex digits in a name that nobody chose: 48 bits, and a name that is taken by other content is refused anyway."""


class Snapshot(StoredModel):
    """What is known of a snapshot without looking at its files."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    name: str
    group: str
    owner: str = ""
    """Who made it."""
    digest: str
    """sha256:<hex> of all entries."""
    files: int = 0
    bytes: int = 0
    created: float = 0.0
    """Seconds since 1970 UTC."""


class Entry(NamedTuple):
    """A file of a snapshot, or a directory with nothing in it, for which `sha256` is empty and `path` ends in a slash."""

    path: str
    """Relative, with slashes."""
    size: int
    sha256: str
    executable: bool = False

    @property
    def is_directory(self) -> bool:
        """Whether this is an empty directory."""
        return self.path.endswith("/")

    def line(self) -> bytes:
        """Give the entry as a line of files.jsonl; the digest of a snapshot is made of these."""
        fields = {"path": self.path, "size": self.size, "sha256": self.sha256}
        if self.executable:
            fields["executable"] = True
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"


def entry_of(line: bytes) -> Entry:
    """Read a line of files.jsonl. Raises ValueError, KeyError, TypeError for what is none."""
    fields = json.loads(line)
    path, size, sha256 = fields["path"], fields["size"], fields["sha256"]
    if not isinstance(path, str) or type(size) is not int or not isinstance(sha256, str):
        raise ValueError("is no entry of a snapshot")
    return Entry(path, size, sha256, fields.get("executable") is True)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Give entries in the order that counts: by the bytes of their paths."""
    return sorted(entries, key=lambda entry: entry.path.encode())


def digest_of(entries: Iterable[Entry]) -> str:
    """Give the digest of entries that are in order."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(entry.line())
    return DIGEST_PREFIX + digest.hexdigest()


def name_problem(text: str) -> str | None:
    """Say why `text` can't be the name of a snapshot, or None when it can. A name is a directory, and stands in paths of workflow files."""
    if not _NAME.fullmatch(text):
        return "must be letters, digits, '.', '_' and '-', starting with a letter or digit"
    return (
        f"has {len(text)} characters, at most {NAME_MAX} are allowed"
        if len(text) > NAME_MAX
        else None
    )


def check_name(text: str, field: str = "name") -> str:
    """Give a name that can be one. Raises InvalidInput."""
    if problem := name_problem(text):
        raise InvalidInput.one(
            field, problem, value=text, remedy="choose another name, such as mesh-2"
        )
    return text


def digest_problem(text: str) -> str | None:
    """Say why `text` can't be a digest, or None when it can."""
    return None if _DIGEST.fullmatch(text) else "must be sha256: and 64 hex digits"


def name_for(title: str, group: str, digest: str) -> str:
    """Give the name of a snapshot for which nobody chose one: what it was made from, and what stands for its group and content."""
    end = hashlib.sha256(json.dumps([group, digest]).encode()).hexdigest()[:_OF_DIGEST]
    folded = _FOLDED.sub("-", title).strip("-._")[: NAME_MAX - _OF_DIGEST - 1].rstrip("-._")
    return f"{folded or 'snapshot'}-{end}"
