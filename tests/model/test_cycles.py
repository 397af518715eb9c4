"""Cycles of a graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simrun.model.cycles import cycles

graphs = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=3), max_size=8
)


@given(graphs)
def test_a_cycle_is_found_exactly_when_nodes_can_not_be_ordered(
    graph: dict[str, list[str]],
) -> None:
    found = cycles(graph)

    left = {node: {need for need in needs if need in graph} for node, needs in graph.items()}
    while free := [node for node, needs in left.items() if not needs]:
        left = {node: needs - set(free) for node, needs in left.items() if node not in free}
    assert bool(found) == bool(left)


@given(graphs)
def test_every_cycle_goes_round_along_edges_and_meets_no_node_twice(
    graph: dict[str, list[str]],
) -> None:
    for cycle in cycles(graph):
        assert len(set(cycle)) == len(cycle)
        for node, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert following in graph[node]


def test_two_separate_cycles_are_two() -> None:
    graph = {"a": ["b"], "b": ["a"], "x": ["a"], "c": ["d"], "d": ["e"], "e": ["c"]}

    assert cycles(graph) == [["a", "b"], ["c", "d", "e"]]


def test_a_node_that_waits_for_itself_is_a_cycle() -> None:
    assert cycles({"a": ["a"], "b": ["a"]}) == [["a"]]


def test_the_shortest_way_round_is_told() -> None:
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": ["a"]}) == [["a", "c"]]


def test_a_long_chain_needs_no_recursion() -> None:
    names = [f"n{number}" for number in range(50_000)]
    chain = dict(zip(names, [[], *([name] for name in names)], strict=False))

    assert cycles(chain) == []
    assert cycles({**chain, "n0": ["n49999"]}) == [["n0", *reversed(names[1:])]]
