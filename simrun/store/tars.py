"""Reads tar archives that come from outside: files and directories, one after the other, and nothing else.

The standard library's reader follows what an archive says of itself: headers of any length are read into memory, offsets may lead
backwards, and links, devices and sparse maps are features. Here each of these is refused by name, but for a hard link to what came
before it; what a header may say is bounded, and the archive is read once from its beginning to its end. Known are ustar, pax (`path`, `linkpath`, `size`) and GNU's long
names, which is what tar programs write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from simrun.base.errors import InvalidInput

BLOCK = 512
EXTENDED_MAX = 2**16
"""Bytes of an extended header; it holds a path and a few numbers."""
_CHUNK = 2**20
_REFUSED = {
    b"2": ("a symbolic link", "make the archive with `tar -h`, which puts in what it points to"),
    b"3": ("a device", "leave it out"),
    b"4": ("a device", "leave it out"),
    b"6": ("a FIFO", "leave it out"),
    b"S": ("a sparse file", "make the archive without --sparse"),
}
_EXECUTE = 0o111


class Member(NamedTuple):
    """A file or directory of an archive. `path` as it stands there, but without `./` at its beginning and `/` at its end.

    same_as: path of an earlier member that this is a hard link to; tar makes them also of files that links lead to.
    """

    path: str
    size: int
    executable: bool
    is_directory: bool
    same_as: str | None = None


Read = Callable[[int], bytes]
"""Gives the next bytes of a member, at most so many; none at its end."""


def members(archive: BinaryIO) -> Iterator[tuple[Member, Read]]:
    """Yield each file and directory with what reads its content, which has to happen before the next one is asked for.

    Raises InvalidInput for an archive that is none, is cut, or holds what is neither file nor directory.
    """
    reader = _Reader(archive)
    while (found := reader.next()) is not None:
        yield found


class _Reader:
    def __init__(self, archive: BinaryIO) -> None:
        self._archive = archive
        self._left = 0
        """Bytes of the present member that nobody has read."""
        self._padding = 0
        self._first = True

    def next(self) -> tuple[Member, Read] | None:
        """Go to the next file or directory; None at the end of the archive."""
        said: dict[str, str] = {}
        while True:
            self._skip()
            header = self._header()
            if header is None:
                return None
            kind, name, size = header[156:157], _name_of(header), _number(header[124:136], "size")
            if kind in (b"x", b"L", b"K"):
                content = self._extended(size)
                key = {b"L": "path", b"K": "linkpath"}.get(kind)
                said |= {key: _text(content.rstrip(b"\0"))} if key else _records(content)
                continue
            if kind == b"g":  # of all members: a comment, mostly
                self._extended(size)
                continue
            name, size = said.get("path", name), _size(said.get("size"), size)
            if kind == b"1":
                target = said.get("linkpath", _text(header[157:257].partition(b"\0")[0]))
                return Member(_plain(name), 0, False, False, _plain(target)), self._read
            executable = bool(_number(header[100:108], "mode") & _EXECUTE)
            return self._member(kind, name, size, executable), self._read

    def _member(self, kind: bytes, name: str, size: int, executable: bool) -> Member:
        if kind in _REFUSED:
            what, remedy = _REFUSED[kind]
            raise InvalidInput.one("file", f"is {what}", value=name, remedy=remedy)
        is_directory = kind == b"5" or (kind == b"\0" and name.endswith("/"))
        if not is_directory and kind not in (b"0", b"\0", b"7"):
            raise InvalidInput.one("file", f"is of a kind that is not known ({kind!r})", value=name)
        if is_directory:
            size = 0
        self._left, self._padding = size, -size % BLOCK
        return Member(_plain(name), size, executable, is_directory)

    def _read(self, count: int) -> bytes:
        data = self._archive.read(min(count, self._left))
        if not data and self._left and count:
            raise _cut()
        self._left -= len(data)
        return data

    def _skip(self) -> None:
        while self._read(_CHUNK):
            pass  # what nobody wanted of the member before
        self._exactly(self._padding)
        self._padding = 0

    def _extended(self, size: int) -> bytes:
        if size > EXTENDED_MAX:
            raise _no_archive(f"a header in it has {size} bytes, more than {EXTENDED_MAX}")
        content = self._exactly(size)
        self._exactly(-size % BLOCK)
        return content

    def _header(self) -> bytes | None:
        block = self._exactly(BLOCK)
        if self._first and block[:2] == b"\x1f\x8b":
            raise _no_archive("it is compressed")
        self._first = False
        if not block.strip(b"\0"):
            return None
        said = _number(block[148:156], "checksum")
        if said != sum(block[:148]) + sum(block[156:]) + 8 * ord(" "):
            raise _no_archive("a header in it has a wrong checksum")
        return block

    def _exactly(self, count: int) -> bytes:
        data = self._archive.read(count) if count else b""
        if len(data) < count:
            raise _cut()
        return data


def _plain(name: str) -> str:
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name.rstrip("/")


def _name_of(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0]
    if header[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return _text(name)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput.one(
            "file",
            "has a name that is not UTF-8",
            value=data.decode(errors="replace"),
            remedy="rename it",
        ) from error


def _number(field: bytes, what: str) -> int:
    """Read a number: octal digits, or GNU's binary form."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0") or b"0"
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise _no_archive(f"the {what} of a header in it is no number")
    return int(digits, 8)


def _records(content: bytes) -> dict[str, str]:
    """Read the records of a pax header, `<length> <key>=<value>\\n` each; those that matter."""
    found = {}
    while content:
        length, blank, _ = content[:20].partition(b" ")
        if not blank or not length.isdigit() or not len(length) + 3 <= int(length) <= len(content):
            raise _no_archive("an extended header in it can't be read")
        record, content = content[: int(length)], content[int(length) :]
        key, _, value = record[len(length) + 1 : -1].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            what, remedy = _REFUSED[b"S"]
            raise InvalidInput.one("file", f"is {what}", remedy=remedy)
        if key in (b"path", b"linkpath", b"size"):
            found[key.decode()] = _text(value)
    return found


def _size(said: str | None, size: int) -> int:
    if said is None:
        return size
    if not said.isascii() or not said.isdigit() or len(said) > 18:
        raise _no_archive("the size in an extended header is no number")
    return int(said)


def _cut() -> InvalidInput:
    return InvalidInput.one(
        "file", "the archive ends in the middle", remedy="send it again, all of it"
    )


def _no_archive(why: str) -> InvalidInput:
    return InvalidInput.one(
        "file", f"is no tar archive: {why}", remedy="make one with `tar -cf - DIR`, not compressed"
    )
