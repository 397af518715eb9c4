import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.worker.designs import MAX_UNITS, expand, size


def rows(design, **options):
    return list(expand(design, **options))


def test_a_grid_has_all_combinations_and_the_last_name_changes_fastest():
    design = {"grid": {"b": [1, 2], "a": ["x", "y"]}}

    assert rows(design) == [
        {"b": 1, "a": "x"},
        {"b": 1, "a": "y"},
        {"b": 2, "a": "x"},
        {"b": 2, "a": "y"},
    ]


def test_zip_takes_the_lists_side_by_side():
    assert rows({"zip": {"a": [1, 2], "b": [3, 4]}}) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


def test_lists_of_different_lengths_cannot_be_zipped():
    with pytest.raises(ValueError, match=r"equal length, not \{'a': 2, 'b': 1\}"):
        rows({"zip": {"a": [1, 2], "b": [3]}})


def test_a_list_of_values_names_them_item():
    assert rows({"list": [3, "x"]}) == [{"item": 3}, {"item": "x"}]


def test_a_list_of_rows_is_taken_as_it_is():
    assert rows({"list": [{"a": 1}, {"b": 2}]}) == [{"a": 1}, {"b": 2}]


def test_rows_and_values_do_not_mix():
    with pytest.raises(ValueError, match="rows only or values only"):
        rows({"list": [{"a": 1}, 2]})


def test_rows_of_a_table_are_taken_as_they_are():
    assert rows({"table": [{"a": 1}, {"a": 2}]}) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "design", [{"grid": {}}, {"grid": {"a": []}}, {"zip": {}}, {"list": []}, {"table": []}]
)
def test_an_empty_design_has_no_units(design):
    assert rows(design) == []
    assert size(design) == 0


@pytest.mark.parametrize("design", [{}, {"grid": {}, "list": []}, {"plugin": "a:b"}])
def test_a_design_is_of_exactly_one_kind(design):
    with pytest.raises(ValueError, match="exactly one of grid, zip"):
        expand(design)


def test_kinds_that_are_none_do_not_count():
    assert rows({"grid": None, "list": [1]}) == [{"item": 1}]


LHS = {
    "n": 50,
    "ranges": {"x": {"low": -1.0, "high": 3.0}, "y": {"low": 1e-3, "high": 1e3, "log": True}},
}


def test_a_latin_hypercube_meets_each_stratum_once():
    drawn = rows({"lhs": LHS}, seed_base=5)

    assert sorted(math.floor((row["x"] + 1) / 4 * 50) for row in drawn) == list(range(50))
    assert sorted(math.floor((math.log10(row["y"]) + 3) / 6 * 50) for row in drawn) == list(
        range(50)
    )


def test_a_latin_hypercube_orders_each_parameter_by_itself():
    drawn = rows({"lhs": LHS})

    assert sorted(drawn, key=lambda row: row["x"]) != sorted(drawn, key=lambda row: row["y"])


@pytest.mark.parametrize("kind", ["lhs", "random"])
def test_draws_depend_on_the_base_seed_and_nothing_else(kind):
    assert rows({kind: LHS}, seed_base=1) == rows({kind: LHS}, seed_base=1)
    assert rows({kind: LHS}, seed_base=1) != rows({kind: LHS}, seed_base=2)


@pytest.mark.parametrize("kind", ["lhs", "random"])
def test_a_further_range_leaves_the_others_as_they_were(kind):
    more = {"n": 50, "ranges": {"a": {"low": 0, "high": 1}, **LHS["ranges"]}}

    assert [row["x"] for row in expand({kind: more})] == [row["x"] for row in expand({kind: LHS})]


def test_more_random_points_begin_with_the_same_ones():
    assert rows({"random": LHS | {"n": 60}})[:50] == rows({"random": LHS})


def test_draws_of_a_release_never_change():
    # Compared in digits: the last bit of a power is the C library's
    drawn = [f"{row['x']:.9f} {row['y']:.6e}" for row in expand({"random": LHS | {"n": 2}})]

    assert drawn == ["1.880097532 2.467594e+02", "0.356670758 8.639127e+00"]


@given(
    kind=st.sampled_from(["lhs", "random"]),
    ends=st.tuples(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300)).filter(
        lambda e: e[0] < e[1]
    ),
    log=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
)
def test_draws_stay_inside_their_range(kind, ends, log, seed):
    low, high = ends
    design = {kind: {"n": 5, "ranges": {"x": {"low": low, "high": high, "log": log}}}}

    assert all(low <= row["x"] < high for row in expand(design, seed_base=seed))


@pytest.mark.parametrize("log", [False, True])
def test_integers_reach_both_ends_of_their_range(log):
    ranges = {"x": {"low": 1, "high": 4, "integer": True, "log": log}}
    drawn = {row["x"] for row in expand({"random": {"n": 200, "ranges": ranges}})}

    assert drawn == {1, 2, 3, 4}
    assert all(isinstance(value, int) for value in drawn)


def test_integers_of_a_hypercube_are_spread_evenly():
    ranges = {"x": {"low": 1, "high": 5, "integer": True}}
    drawn = [row["x"] for row in expand({"lhs": {"n": 20, "ranges": ranges}})]

    assert all(drawn.count(value) == 4 for value in range(1, 6))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"low": 2, "high": 1}, "ranges.x: low must be less than high"),
        ({"low": 0, "high": math.inf}, "ranges.x: low must be less than high"),
        ({"low": 0, "high": 1, "log": True}, "ranges.x: low must be above zero"),
        ({"low": 0.2, "high": 0.8, "integer": True}, "ranges.x: there is no whole number"),
    ],
)
def test_an_impossible_range_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        rows({"random": {"n": 1, "ranges": {"x": given}}})


@pytest.mark.parametrize(
    "design",
    [
        {"grid": {"a": [1, 2, 3], "b": [1, 2]}},
        {"zip": {"a": [1, 2]}},
        {"list": [1, 2, 3]},
        {"table": [{"a": 1}]},
        {"lhs": LHS},
        {"random": LHS},
    ],
)
def test_the_size_is_told_without_expanding(design):
    assert size(design, replicates=3) == 3 * len(rows(design))


def test_a_design_of_too_many_units_is_refused_before_it_is_made():
    values = list(range(1001))

    with pytest.raises(ValueError, match="makes 1,002,001 units; at most 1,000,000"):
        expand({"grid": {"a": values, "b": values}})
    with pytest.raises(ValueError, match="grid: makes"):
        size({"grid": {"a": values}}, replicates=MAX_UNITS // 1000)


def test_a_large_grid_is_made_row_by_row():
    large = {"grid": {name: list(range(100)) for name in "abc"}}

    assert next(itertools.islice(expand(large), 5, None)) == {"a": 0, "b": 0, "c": 5}
