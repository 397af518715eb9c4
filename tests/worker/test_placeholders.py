from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.worker.placeholders import names, substitute

VALUES = {
    "params.x": 1.5,
    "params.name": "two words",
    "params.flags": [1, None, True],
    "inputs.mesh": "/in/mesh",
    "outputs.map": "/out/map.npy",
    "unit.seed": 7,
    "unit.seed31": 8,
    "scratch": "/scratch",
    "out": "/out",
}


@pytest.mark.parametrize(
    ("item", "filled"),
    [
        ("--x={params.x}", "--x=1.5"),
        ("{params.name}", "two words"),
        ("{params.flags}", "[1, null, true]"),
        ("{inputs.mesh}:{outputs.map}", "/in/mesh:/out/map.npy"),
        ("{unit.seed} {unit.seed31}", "7 8"),
        ("{scratch}/a {out}/b", "/scratch/a /out/b"),
        ("{{params.x}}", "{1.5}"),
        ("awk '{print $1}'", "awk '{print $1}'"),
        ("{}", "{}"),
        (
            "{unit.weight} {other.x} {params.} {params.x",
            "{unit.weight} {other.x} {params.} {params.x",
        ),
        ("f'{params.get(\"x\")}'", "f'{params.get(\"x\")}'"),
    ],
)
def test_only_known_words_are_replaced(item: str, filled: str) -> None:
    assert substitute([item], VALUES) == [filled]


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("{params.y}", "no parameter; there is: flags, name, x"),
        ("{inputs.grid}", "no input; there is: mesh"),
        ("{outputs.picture}", "no output; there is: map"),
        ("{unit.key}", "only the units of a split task"),
    ],
)
def test_a_name_without_a_value_is_an_error_that_says_what_there_is(
    item: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        substitute(["a", item], VALUES)


def test_names_lists_each_placeholder_once_in_order() -> None:
    assert names(["{out}", "x{params.b}{params.a}", "{params.b} {no.name}"]) == [
        "out",
        "params.b",
        "params.a",
    ]


@settings(deadline=None)
@given(st.text())
def test_text_that_is_put_in_is_not_looked_through_again(text: str) -> None:
    assert substitute(["{params.x}"], {"params.x": text}) == [text]


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(exclude_characters="{}"))))
def test_items_without_braces_stay_as_they_are(items: list[str]) -> None:
    assert substitute(items, {}) == items
