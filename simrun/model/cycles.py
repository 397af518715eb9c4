"""Cycles of a graph, each as one whole round of names. No recursion: a chain of ten thousand tasks is an ordinary workflow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

Graph = Mapping[str, Sequence[str]]
"""What each node waits for. Names that are no node of their own are ignored."""


def cycles(graph: Graph) -> list[list[str]]:
    """Give one shortest cycle for each knot of nodes that wait for each other: `[a, b]` for a -> b -> a.

    Each starts with the node that comes first in `graph`, and so do the cycles among themselves. [] when there is none.
    """
    knotted = _unfinished(graph)
    if not knotted:
        return []
    order = {node: position for position, node in enumerate(graph)}
    found = []
    for component in _components(
        {node: [n for n in graph[node] if n in knotted] for node in knotted}
    ):
        start = min(component, key=order.__getitem__)
        if len(component) > 1 or start in graph[start]:
            found.append(_round(graph, start, component))
    return sorted(found, key=lambda cycle: order[cycle[0]])


def _unfinished(graph: Graph) -> set[str]:
    """Give the nodes that no order reaches: those on a cycle, and those that wait for one."""
    waits = {node: len({n for n in needs if n in graph}) for node, needs in graph.items()}
    awaited: dict[str, list[str]] = {}
    for node, needs in graph.items():
        for need in set(needs):
            awaited.setdefault(need, []).append(node)
    ready = deque(node for node, count in waits.items() if count == 0)
    while ready:
        node = ready.popleft()
        del waits[node]
        for other in awaited.get(node, ()):
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    return set(waits)


def _components(graph: Graph) -> list[set[str]]:
    """Give the strongly connected components (Tarjan's algorithm with a stack of its own)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_path: set[str] = set()
    path: list[str] = []
    found = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        path.append(root)
        on_path.add(root)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_pop_until(node, path, on_path))
            elif following not in index:
                index[following] = low[following] = len(index)
                path.append(following)
                on_path.add(following)
                work.append((following, iter(graph[following])))
            elif following in on_path:
                low[node] = min(low[node], index[following])
    return found


def _pop_until(node: str, path: list[str], on_path: set[str]) -> set[str]:
    component = set()
    while True:
        last = path.pop()
        on_path.discard(last)
        component.add(last)
        if last == node:
            return component


def _round(graph: Graph, start: str, component: set[str]) -> list[str]:
    """Give a shortest way from `start` back to it within its component."""
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for following in graph[node]:
            if following == start:
                way = [node]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if following in component and following not in came_from:
                came_from[following] = node
                queue.append(following)
    raise AssertionError(f"{start} is on no cycle")
