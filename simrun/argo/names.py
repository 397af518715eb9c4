"""Names of workflows, and label values made of free text.

Both keep what they are given as long as it is fit, so that people find their own words again, and end in a hash of the
whole text where something had to be changed, so that two texts never share a value.
"""

from __future__ import annotations

import hashlib
import re

LABEL_MAX = 63
"""Characters of a label value. A workflow's name is one too: Argo writes it into a label of every pod."""

_HASH_DIGITS = 12
_PREFIX = "simrun-"
_FIT = re.compile(r"[a-z0-9]([-a-z0-9_.]*[a-z0-9])?")
_FIT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NOT_ALPHANUMERIC_ENDS = "-_."


def workflow_name(run_id: str) -> str:
    """Give the name of the workflow of a run, a DNS label; later rounds of a run ask with `<run>-r<round>`."""
    longest = LABEL_MAX - len(_PREFIX)
    if len(run_id) <= longest and _FIT_NAME.fullmatch(run_id):
        return _PREFIX + run_id
    return _PREFIX + _changed(re.sub(r"[^a-z0-9-]", "-", run_id.lower()), run_id, longest)


def run_workflow_name(run_id: str, round_: int) -> str:
    """Give the name of the workflow of one round of a run."""
    return workflow_name(f"{run_id}-r{round_}" if round_ else run_id)


def label_value(text: str) -> str:
    """Give a valid label value for free text: the text itself when it is one in lower case, else a likeness with a hash."""
    if len(text) <= LABEL_MAX and _FIT.fullmatch(text):
        return text
    return _changed(re.sub(r"[^a-z0-9_.-]", "-", text.lower()), text, LABEL_MAX)


def _changed(likeness: str, text: str, longest: int) -> str:
    """Give the likeness of a text, shortened to make room for the text's hash."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
    kept = likeness[: longest - _HASH_DIGITS - 1].strip(_NOT_ALPHANUMERIC_ENDS)
    return f"{kept}-{digest}" if kept else digest
