"""Label values made of free text.

They keep what they are given as long as it is fit, so that people find their own words again, and end in a hash of the
whole text where something had to be changed, so that two texts never share a value.
"""

from __future__ import annotations

import hashlib
import re

LABEL_MAX = 63
"""Characters of a label value. A workflow's name is one too: Argo writes it into a label of every pod."""

_HASH_DIGITS = 12
_FIT = re.compile(r"[a-z0-9]([-a-z0-9_.]*[a-z0-9])?")
_NOT_ALPHANUMERIC_ENDS = "-_."


def label_value(text: str) -> str:
    """Give a valid label value for free text: the text itself when it is one in lower case, else a likeness with a hash.

    Made of a label value it is that value again, so a value that was read from a directory or a label is safe to give.
    """
    if len(text) <= LABEL_MAX and _FIT.fullmatch(text):
        return text
    return shortened(re.sub(r"[^a-z0-9_.-]", "-", text.lower()), text, LABEL_MAX)


def shortened(likeness: str, text: str, longest: int) -> str:
    """Give the likeness of a text, shortened to make room for the text's hash."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
    kept = likeness[: longest - _HASH_DIGITS - 1].strip(_NOT_ALPHANUMERIC_ENDS)
    return f"{kept}-{digest}" if kept else digest
