"""Changing the user's file as text, so that comments and order stay; what comes out is read again before it is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from simrun.base.errors import InvalidInput, Problem
from simrun.cli.configfile import UserConfig, parsed
from simrun.worker import files

_INDENT = "  "


def edit(path: Path, changes: Mapping[str, str | None]) -> None:
    """Set keys at the top of the user's file, or remove those whose value is None. Raises InvalidInput, and nothing is written then."""
    text = _read(path)
    for key, value in changes.items():
        text = _without(text, key, path) if value is None else _with(text, key, value, path)
    _write(path, text)


def add_context(path: Path, name: str, fields: Mapping[str, str]) -> None:
    """Add a context, or put one in the place of that which has its name. Raises InvalidInput, and nothing is written then."""
    text = _read(path)
    known = _value(_root(text, path), "contexts")
    if known is not None and name in _keys(known):
        text = _removed(text, *_span(known, name))
        known = _value(_root(text, path), "contexts")
    lines = [f"{_scalar(name)}:", *(f"{_INDENT}{key}: {_scalar(fields[key])}" for key in fields)]
    if isinstance(known, yaml.MappingNode) and known.value and not known.flow_style:
        first = known.value[0][0].start_mark
        start = first.index - first.column
        block = "".join(f"{' ' * first.column}{line}\n" for line in lines)
        text = text[:start] + block + text[start:]
    elif known is None or not getattr(known, "value", None):
        text = _without(text, "contexts", path) if known is not None else text
        block = "".join(f"{_INDENT}{line}\n" for line in lines)
        text = f"{_ended(text)}contexts:\n{block}"
    else:
        raise _by_hand(path, "contexts")
    _write(path, text)


def _with(text: str, key: str, value: str, path: Path) -> str:
    node = _value(_root(text, path), key)
    if node is None:
        return f"{_ended(text)}{key}: {_scalar(value)}\n"
    if not isinstance(node, yaml.ScalarNode):
        raise _by_hand(path, key)
    return f"{text[: node.start_mark.index]}{_scalar(value)}{text[node.end_mark.index :]}"


def _without(text: str, key: str, path: Path) -> str:
    root = _root(text, path)
    return text if root is None or key not in _keys(root) else _removed(text, *_span(root, key))


def _removed(text: str, start: int, end: int) -> str:
    """Take whole lines away."""
    start = text.rfind("\n", 0, start) + 1
    if end > start and text[end - 1] != "\n":
        found = text.find("\n", end)
        end = len(text) if found < 0 else found + 1
    return text[:start] + text[end:]


def _root(text: str, path: Path) -> yaml.Node | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise _by_hand(path, "")
    return root


def _keys(node: yaml.Node) -> list[str]:
    return [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []


def _value(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for key, value in pairs if key.value == name), None)


def _span(node: yaml.Node, name: str) -> tuple[int, int]:
    """Give where a key begins and where its value ends in the text."""
    key, value = next((key, value) for key, value in node.value if key.value == name)
    if isinstance(value, yaml.MappingNode) and not value.flow_style:
        # The mark of its end is that of whatever comes next; comments before that are not its own
        last = value.value[-1][1] if value.value else key
        return key.start_mark.index, last.end_mark.index
    return key.start_mark.index, value.end_mark.index


def _scalar(value: str) -> str:
    """Write a text so that it is read as that text."""
    return (
        yaml.safe_dump(value, width=10_000, allow_unicode=True).removesuffix("...\n").rstrip("\n")
    )


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _by_hand(path: Path, key: str) -> InvalidInput:
    remedy = "change it with an editor: simrun keeps what it can't write the same way"
    return InvalidInput([Problem(key, "is not written as lines", None, remedy, str(path))])


def _read(path: Path) -> str:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return ""
    parsed(UserConfig, text, path)  # what is wrong already is told, not built upon
    return text


def _write(path: Path, text: str) -> None:
    """Write whole or not at all, readable by the owner alone; through a link, as those who keep such files elsewhere have it."""
    parsed(UserConfig, text, path)
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = files.temporary_name(target.parent)
        files.write_synced(part, text.encode())
        try:
            part.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o600)
            os.replace(part, target)
        except OSError:
            part.unlink()
            raise
    except OSError as error:
        raise InvalidInput(
            [Problem("", f"can't be written: {error.strerror}", place=str(path))]
        ) from error
