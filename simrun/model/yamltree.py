"""What a workflow file says, as a tree that knows where everything stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simrun.base.errors import Problem
from simrun.model.faults import Fault, Path, dotted


@dataclass(slots=True)
class Node:
    """A value of the file and where it stands; line and column count from 1.

    `value` is plain data (dict, list, str, int, float, bool, None); `text` what a scalar was written as; `doubt` why a plain scalar
    may not be what was meant; `size` the number of values in it.
    """

    value: Any
    line: int
    column: int
    text: str | None = None
    doubt: str | None = None
    items: dict[str, Node] | list[Node] | None = None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: int = 1

    def child(self, part: str | int) -> Node | None:
        """Give the node of a key or an index, None when there is none."""
        if isinstance(self.items, dict):
            return self.items.get(part) if isinstance(part, str) else None
        if isinstance(self.items, list) and isinstance(part, int) and 0 <= part < len(self.items):
            return self.items[part]
        return None

    def at(self, path: Path) -> Node | None:
        """Give the node at a path, None when there is none."""
        node: Node | None = self
        for part in path:
            node = node.child(part) if node else None
        return node

    def walk(self) -> Iterator[tuple[Path, Node]]:
        """Yield every node below and including this one with its path from here."""
        stack: list[tuple[Path, Node]] = [((), self)]
        while stack:
            path, node = stack.pop()
            yield path, node
            if isinstance(node.items, dict):
                stack += [((*path, key), child) for key, child in node.items.items()]
            elif isinstance(node.items, list):
                stack += [((*path, index), child) for index, child in enumerate(node.items)]


@dataclass(frozen=True, slots=True)
class Tree:
    """A file that could be read: its root, what is wrong with it all the same, and whether any value is in doubt."""

    file: str
    root: Node
    problems: tuple[Problem, ...] = ()
    doubtful: bool = False

    def place(self, path: Path, *, at_key: bool = False) -> str:
        """Give `file:line:column` of what is at a path, or of the nearest thing around it that is in the file."""
        node, spot = self.root, (self.root.line, self.root.column)
        for position, part in enumerate(path):
            child = node.child(part)
            last = position == len(path) - 1
            key = node.keys.get(part) if isinstance(part, str) else None
            if child is None:
                break
            spot = key if key and (at_key or not last) else (child.line, child.column)
            node = child
        return f"{self.file}:{spot[0]}:{spot[1]}"

    def text_of(self, path: Path) -> str | None:
        """Give how the file writes the scalar at a path; None where there is none."""
        node = self.root.at(path)
        return node.text if node else None

    def problem(self, fault: Fault) -> Problem:
        """Give a fault as a problem that names its place."""
        place = self.place(fault.path, at_key=fault.at_key)
        return Problem(dotted(fault.path), fault.message, fault.value, fault.remedy, place)
