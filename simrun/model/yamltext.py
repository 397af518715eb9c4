"""The text of a YAML file before it is taken apart: bytes, control characters, and JSON that YAML's reader would refuse."""

from __future__ import annotations

import re

MAX_BYTES = 64 * 2**20
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)
_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class Refused(Exception):  # noqa: N818 - becomes a problem of the file
    """Raised where reading can't go on."""

    def __init__(self, message: str, line: int, column: int, remedy: str | None = None) -> None:
        self.message, self.line, self.column, self.remedy = message, line, column, remedy
        super().__init__(message)


def decoded(text: str | bytes) -> str:
    """Give the text of a file, JSON made fit for libyaml. Raises Refused."""
    if len(text) > MAX_BYTES:
        raise Refused(f"has more than {MAX_BYTES // 2**20} MiB", 1, 1)
    if isinstance(text, bytes):
        raw = text
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = raw[: error.start].decode()
            line, column = _spot(before, len(before))
            byte = raw[error.start]
            raise Refused(
                f"byte 0x{byte:02x} is no UTF-8", line, column, "save the file as UTF-8"
            ) from error
    text = text.removeprefix("\ufeff")
    if bad := _UNPRINTABLE.search(text):
        line, column = _spot(text, bad.start())
        code = ord(bad.group())
        raise Refused(f"the control character U+{code:04X} is not allowed", line, column)
    return _json_as_yaml(text) if text.lstrip().startswith("{") else text


def _json_as_yaml(text: str) -> str:
    """Take away the two things of JSON that libyaml refuses: tabs before a token, halves of a character as \\u escapes."""
    text = re.sub(r"^[ \t]+", lambda blanks: " " * len(blanks.group()), text, flags=re.MULTILINE)
    return _SURROGATES.sub(
        lambda pair: (
            f"\\U{0x10000 + ((int(pair[1], 16) & 0x3FF) << 10) + (int(pair[2], 16) & 0x3FF):08X}"
        ),
        text,
    )


def _spot(text: str, index: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, index) + 1
    return text.count("\n", 0, index) + 1, index - start + 1
