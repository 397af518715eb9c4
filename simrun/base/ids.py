"""Ids: their forms, and how a new one is made.

The forms are narrow on purpose. An id becomes a directory name, a DAG node, part of a pod name and a label value; what is
refused here never becomes a refusal of the API server that nobody reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9._-]+")
# `a-w0` as a task and worker 0 of the task `a` would be one node of the DAG
_RESERVED_TASK_END = re.compile(r"-(w[0-9]+|extra|merge)$")
# `x-r1` as a run and round 1 of the run `x` would be one workflow
_RESERVED_RUN_END = re.compile(r"-r[0-9]+$")
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"

TASK_ID_MAX = 48
RUN_ID_MAX = 40
NAME_MAX = 63
GROUP_MAX = 200
TITLE_MAX = 200


def task_id_problem(text: str) -> str | None:
    """Say why `text` can't be a task id, or None when it can."""
    if problem := _name_problem(text, TASK_ID_MAX):
        return problem
    if match := _RESERVED_TASK_END.search(text):
        return f"must not end in {match.group()!r}, the form of the names of workers"
    return None


def run_id_problem(text: str) -> str | None:
    """Say why `text` can't be a run id, or None when it can."""
    if problem := _name_problem(text, RUN_ID_MAX):
        return problem
    if match := _RESERVED_RUN_END.search(text):
        return f"must not end in {match.group()!r}, the form of a round of a run"
    return None


def plan_name_problem(text: str) -> str | None:
    """Say why `text` can't be the name of a launch plan, or None when it can."""
    if problem := _name_problem(text, NAME_MAX):
        return problem
    if match := _RESERVED_TASK_END.search(text):
        return f"must not end in {match.group()!r}"
    return None


def version_problem(text: str) -> str | None:
    """Say why `text` can't be the version of a launch plan, or None when it can."""
    if not _VERSION.fullmatch(text) or text in (".", ".."):
        return "must be letters, digits, '.', '_' or '-'"
    return f"has more than {NAME_MAX} characters" if len(text) > NAME_MAX else None


def group_problem(text: str) -> str | None:
    """Say why `text` can't be a group, or None when it can. Groups are free text, of any characters but one."""
    if not text:
        return "must not be empty"
    if len(text) > GROUP_MAX:
        return f"has {len(text)} characters, at most {GROUP_MAX} are allowed"
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        return "must not contain a null character or half of a character"
    return "must not contain ':'" if ":" in text else None


def title_problem(text: str) -> str | None:
    """Say why `text` can't be what a run or a workflow is called, or None when it can. Titles are free text."""
    if len(text) > TITLE_MAX:
        return f"has {len(text)} characters, at most {TITLE_MAX} are allowed"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    return None


def new_run_id(wall: float, randomness: bytes | None = None) -> str:
    """Make a run id: a lower-case ULID, 26 characters that sort by time.

    `wall` is the time in seconds since 1970, `randomness` ten bytes (drawn from the system when not given).
    """
    number = (int(wall * 1000) << 80) | int.from_bytes(randomness or os.urandom(10), "big")
    digits = []
    for _ in range(26):
        number, digit = divmod(number, 32)
        digits.append(_CROCKFORD[digit])
    return "".join(reversed(digits))


def keyed_run_id(group: str, key: str) -> str:
    """Give the run id that an idempotency key stands for within a group."""
    digest = hashlib.sha256(json.dumps([group, key]).encode()).hexdigest()
    return "k" + digest[:19]


def fingerprint(submission: object) -> str:
    """Give a digest of a submission (anything that JSON can say), equal for equal content."""
    text = json.dumps(submission, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _name_problem(text: str, longest: int) -> str | None:
    if not _NAME.fullmatch(text):
        return (
            "must be lower-case letters, digits and '-', starting and ending with a letter or digit"
        )
    return (
        f"has {len(text)} characters, at most {longest} are allowed"
        if len(text) > longest
        else None
    )
