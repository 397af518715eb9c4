"""The text of a YAML (or JSON) file as a tree that knows where everything stands.

Built from libyaml's events by hand, for four reasons. Every value keeps its line and column. A key that is given twice is an
error, not the last word. Nothing recurses, nesting and the growth by aliases are bounded. And words are read as YAML 1.2
reads them, as people mean them: `no` is a word, `1e3` a number, `12:30` no count of minutes. Where the older and the newer rules
disagree on a value, `doubt` says so; who can't tell from the context what is meant refuses it.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import yaml

from simrun.base.errors import InvalidInput, Problem
from simrun.model.faults import dotted
from simrun.model.scalars import resolve
from simrun.model.yamltext import Refused, decoded
from simrun.model.yamltree import Node, Tree

MAX_DEPTH = 100
"""Levels of nesting; a workflow needs about eight."""
MAX_ALIASED = 100_000
"""Values that aliases may bring in, all together: against files that unfold a thousandfold."""

_TAG = "tag:yaml.org,2002:"


def parse(text: str | bytes, file: str) -> Tree:
    """Read a file that has one document. Raises InvalidInput where that can't be done."""
    builder = _Builder(file)
    try:
        builder.read(decoded(text))
    except Refused as error:
        builder.refuse(error)
    except yaml.MarkedYAMLError as error:
        builder.report_syntax(error)
    if builder.root is None:
        if not builder.problems:
            builder.report("the file is empty", 1, 1)
        raise InvalidInput(builder.problems)
    return Tree(file, builder.root, tuple(builder.problems), builder.doubtful)


def parse_value(text: str) -> Any:
    """Read a single value as a file would have it. Raises ValueError with a plain text."""
    builder = _Builder("value")
    try:
        builder.read(text)
    except Refused as error:
        raise ValueError(error.message) from error
    except yaml.YAMLError as error:
        raise ValueError("is no value that YAML can read; put it in quotes") from error
    if builder.problems:
        raise ValueError(builder.problems[0].message)
    if builder.root is None:
        return None
    for _, node in builder.root.walk():
        if node.doubt:
            raise ValueError(node.doubt)
    return builder.root.value


class _Builder:
    """Takes events and makes nodes. `_open` holds the collections that are being read, outermost first."""

    def __init__(self, file: str) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self.doubtful = False
        self._file = file
        self._open: list[Node] = []
        self._pending: list[tuple[str, int, int] | None] = []
        """By open collection: the key whose value comes next."""
        self._merges: dict[int, list[Node]] = {}
        self._anchors: dict[str, Node] = {}
        self._aliased = 0
        self._documents = 0
        self._text = ""

    def refuse(self, error: Refused) -> None:
        """Keep what made reading stop; nothing after it was seen."""
        self.root = None
        place = f"{self._file}:{error.line}:{error.column}"
        self.problems.append(Problem("", error.message, None, error.remedy, place))

    def report(
        self, message: str, line: int, column: int, remedy: str | None = None, value: str = ""
    ) -> None:
        """Keep a problem at a place."""
        path: list[str | int] = []
        for node, pending in zip(self._open, self._pending, strict=True):
            if isinstance(node.items, list):
                path.append(len(node.items))
            elif pending:
                path.append(pending[0])
        if value:
            path.append(value)
        place = f"{self._file}:{line}:{column}"
        self.problems.append(Problem(dotted(path), message, None, remedy, place))

    def report_syntax(self, error: yaml.MarkedYAMLError) -> None:
        """Keep what libyaml could not read; nothing after it was seen."""
        self.root = None
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = error.problem or "is no YAML"
        if error.context and error.context_mark:
            what += f" ({error.context} that begins on line {error.context_mark.line + 1})"
        remedy = None
        if "cannot start any token" in what:
            found = self._text.splitlines()[line - 1][column - 1 : column]
            what = f"{found!r} can't stand here"
            remedy = "indent with spaces, not tabs" if found == "\t" else "put it in quotes"
        elif "could not find expected ':'" in what or "mapping values are not allowed" in what:
            remedy = "a key needs ': ' after it; put text that holds ': ' in quotes"
        place = f"{self._file}:{line}:{column}"
        self.problems.append(Problem("", f"cannot be read: {what}", None, remedy, place))

    def read(self, text: str) -> None:
        """Read all events."""
        self._text = text
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event, is_mapping=kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                self._documents += 1
                if self._documents > 1:
                    raise Refused("a second document begins here", *_start(event))

    def _scalar(self, event: Any) -> None:
        line, column = _start(event)
        plain = event.implicit[0]
        if self._open and self._pending[-1] is None and isinstance(self._open[-1].items, dict):
            self._key(event.value, line, column, is_merge=plain and event.value == "<<")
            return
        node = Node(event.value, line, column, event.value)
        if plain:
            node.value, node.doubt = resolve(event.value)
        elif event.tag is not None and event.tag not in ("!", _TAG + "str"):
            self._tagged(node, event.tag)
        if node.doubt:
            self.doubtful = True
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add(node)

    def _tagged(self, node: Node, tag: str) -> None:
        value, doubt = resolve(node.text or "")
        kinds: dict[str, type[Any] | tuple[type[Any], ...]] = {
            _TAG + "int": int,
            _TAG + "float": (int, float),
            _TAG + "bool": bool,
            _TAG + "null": type(None),
        }
        name = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
        if tag not in kinds:
            self.report(f"the tag {name} is not supported", node.line, node.column)
        elif (
            doubt
            or not isinstance(value, kinds[tag])
            or isinstance(value, bool) != (kinds[tag] is bool)
        ):
            self.report(f"{node.text!r} is no {name.lstrip('!')}", node.line, node.column)
        else:
            node.value = value

    def _key(self, key: str, line: int, column: int, *, is_merge: bool) -> None:
        mapping = self._open[-1]
        if not is_merge:
            if key in mapping.keys:
                first = mapping.keys[key][0]
                self.report(f"is given twice, first on line {first}", line, column, value=key)
                key = f"\0{line}:{column}"  # read on, and forget the value
            elif not key:
                self.report("an empty key", line, column)
            elif not key.isascii() and (twin := _twin(key, mapping.keys)):
                first = mapping.keys[twin][0]
                self.report(
                    f"is the name of line {first} in another Unicode form", line, column, value=key
                )
        self._pending[-1] = ("<<" if is_merge else key, line, column)
        if is_merge:
            self._merges.setdefault(id(mapping), [])

    def _begin(self, event: Any, *, is_mapping: bool) -> None:
        line, column = _start(event)
        if self._open and self._pending[-1] is None and isinstance(self._open[-1].items, dict):
            raise Refused("a key must be a single word or text", line, column)
        if len(self._open) >= MAX_DEPTH:
            raise Refused(f"is nested more than {MAX_DEPTH} levels deep", line, column)
        node = Node({} if is_mapping else [], line, column, items={} if is_mapping else [])
        if event.tag not in (None, "!", _TAG + "map", _TAG + "seq"):
            self.report(f"the tag {event.tag} is not supported", line, column)
        if event.anchor:
            self._anchors[event.anchor] = node
        self._open.append(node)
        self._pending.append(None)

    def _end(self) -> None:
        node = self._open.pop()
        self._pending.pop()
        for merged in self._merges.pop(id(node), ()):
            self._merge(node, merged)
        self._add(node)

    def _alias(self, event: Any) -> None:
        line, column = _start(event)
        if self._open and self._pending[-1] is None and isinstance(self._open[-1].items, dict):
            raise Refused("a key must be written out, not an alias", line, column)
        node = self._anchors.get(event.anchor)
        if node is None:
            raise Refused(f"no anchor &{event.anchor} stands before this", line, column)
        if any(node is outer for outer in self._open):
            raise Refused(f"*{event.anchor} stands inside of what it repeats", line, column)
        self._count(node.size, line, column)
        self._add(node)

    def _count(self, size: int, line: int, column: int) -> None:
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise Refused(f"aliases bring in more than {MAX_ALIASED} values", line, column)

    def _add(self, node: Node) -> None:
        """Put a finished node into the collection that is open."""
        if not self._open:
            self.root = node
            return
        outer = self._open[-1]
        if isinstance(outer.items, list):
            outer.items.append(node)
            outer.value.append(node.value)
            outer.size += node.size
            return
        pending = self._pending[-1]
        if pending is None or not isinstance(outer.items, dict):
            raise AssertionError("a value without a key")
        key, line, column = pending
        self._pending[-1] = None
        if key == "<<" and id(outer) in self._merges:
            self._merges[id(outer)] += self._merged(node, line, column)
        elif not key.startswith("\0"):
            outer.items[key] = node
            outer.keys[key] = (line, column)
            outer.value[key] = node.value
            outer.size += node.size

    def _merged(self, node: Node, line: int, column: int) -> list[Node]:
        sources = node.items if isinstance(node.items, list) else [node]
        if not all(isinstance(source.items, dict) for source in sources):
            self.report("<< takes a mapping or a list of mappings", line, column)
            return []
        return list(sources)

    def _merge(self, node: Node, merged: Node) -> None:
        if not isinstance(node.items, dict) or not isinstance(merged.items, dict):
            return
        for key, child in merged.items.items():
            if key not in node.items:
                self._count(1, node.line, node.column)
                node.items[key] = child
                node.keys[key] = merged.keys[key]
                node.value[key] = child.value
                node.size += child.size


def _start(event: Any) -> tuple[int, int]:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


def _twin(key: str, keys: dict[str, tuple[int, int]]) -> str | None:
    form = unicodedata.normalize("NFC", key)
    for other in keys:
        if not other.isascii() and unicodedata.normalize("NFC", other) == form:
            return other
    return None
