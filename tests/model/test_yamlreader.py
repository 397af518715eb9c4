"""What YAML text means, where it stands, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simrun.base.errors import InvalidInput
from simrun.model import yamlreader


def value(text: str | bytes) -> Any:
    tree = yamlreader.parse(text, "f.yaml")
    assert tree.problems == ()
    return tree.root.value


def problems(text: str | bytes) -> list[str]:
    try:
        return [str(problem) for problem in yamlreader.parse(text, "f.yaml").problems]
    except InvalidInput as error:
        return [str(problem) for problem in error.problems]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("no", "no"),
        ("On", "On"),
        ("y", "y"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("12", 12),
        ("+7", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("007", "007"),
        ("12:30", "12:30"),
        ("2026-11-30", "2026-11-30"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9" * 50, "9" * 50),
        ('"12"', "12"),
        ("'yes'", "yes"),
        ("!!str 12", "12"),
        ("!!float 12", 12),
        ("-", "-"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
    ],
)
def test_a_plain_word_means_what_yaml_1_2_and_people_read(text: str, meant: Any) -> None:
    found = value(f"a: {text}" if text != "-" else 'a: "-"')["a"]

    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(
    "text", ["no", "Yes", "OFF", "007", "1_000", "0b101", ".nan", "-.inf", "1e999"]
)
def test_words_that_readers_disagree_on_are_marked_as_doubtful(text: str) -> None:
    tree = yamlreader.parse(f"a: {text}", "f.yaml")

    assert tree.doubtful
    assert tree.root.child("a").doubt  # type: ignore[union-attr]  # it is there
    assert not yamlreader.parse(f'a: "{text}"', "f.yaml").doubtful


def test_every_value_and_key_knows_its_line_and_column() -> None:
    tree = yamlreader.parse("a:\n  b: [1, {c: x}]\n", "f.yaml")

    assert tree.place(("a", "b", 1, "c")) == "f.yaml:2:14"
    assert tree.place(("a", "b", 1, "c"), at_key=True) == "f.yaml:2:11"
    assert tree.place(("a", "b")) == "f.yaml:2:6"


def test_what_is_not_in_the_file_has_the_place_of_what_is_around_it() -> None:
    tree = yamlreader.parse("a:\n  b: {x: 1}\n", "f.yaml")

    assert tree.place(("a", "b", "missing")) == "f.yaml:2:3"


def test_a_key_given_twice_is_a_problem_at_the_second_with_the_line_of_the_first() -> None:
    assert problems("t:\n  a: 1\n  b: 2\n  a: 3\n") == [
        "f.yaml:4:3: t.a: is given twice, first on line 2"
    ]


def test_all_doubled_keys_are_told_at_once() -> None:
    assert len(problems("a: 1\na: 2\nb: {c: 1, c: 2}\n")) == 2


def test_keys_that_differ_only_in_unicode_form_are_a_problem() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"

    found = problems(f"{composed}: 1\n{decomposed}: 2\n")

    assert found == [f"f.yaml:2:1: {decomposed}: is the name of line 1 in another Unicode form"]


def test_aliases_repeat_a_value() -> None:
    assert value("a: &x {k: [1, 2]}\nb: *x\n") == {"a": {"k": [1, 2]}, "b": {"k": [1, 2]}}


def test_merge_keys_give_way_to_keys_that_are_written_out() -> None:
    text = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\nt: {<<: [*b, *m], x: 0}\n"

    assert value(text)["t"] == {"x": 0, "y": 2, "z": 4}


def test_aliases_that_unfold_a_billionfold_are_refused() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]

    (found,) = problems("\n".join(lines))

    assert "aliases bring in more than 100000 values" in found


def test_merges_that_unfold_are_refused_too() -> None:
    first = "m0: &m0 {" + ", ".join(f"k{n}: 1" for n in range(2000)) + "}"
    rest = [f"m{n}: {{<<: *m0}}" for n in range(1, 200)]

    assert any("aliases bring in" in found for found in problems("\n".join([first, *rest])))


def test_an_alias_inside_of_what_it_repeats_is_refused() -> None:
    assert problems("a: &a [*a]") == ["f.yaml:1:8: *a stands inside of what it repeats"]


def test_an_unknown_alias_is_refused() -> None:
    assert problems("a: *b") == ["f.yaml:1:4: no anchor &b stands before this"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_without_recursion(opening: str) -> None:
    (found,) = problems(opening * 50_000)

    assert "deep" in found or "depth" in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml:1:1: the file is empty"),
        ("# only a remark\n", "f.yaml:1:1: the file is empty"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document begins here"),
        ("? [a, b]\n: 1\n", "f.yaml:1:3: a key must be a single word or text"),
        (
            "a: !!python/name:os.system 1",
            "f.yaml:1:4: a: the tag !!python/name:os.system is not supported",
        ),
        ("a: !thing {b: 1}", "f.yaml:1:4: a: the tag !thing is not supported"),
        ("a: !!int x", "f.yaml:1:4: a: 'x' is no int"),
        ('"": 1', "f.yaml:1:1: an empty key"),
        (b"a: 1\nb: \xff", "f.yaml:2:4: byte 0xff is no UTF-8; save the file as UTF-8"),
        ("a: 1\nb: \x1b[1m", "f.yaml:2:4: the control character U+001B is not allowed"),
        (
            "a:\n\tb: 1",
            "f.yaml:2:1: cannot be read: '\\t' can't stand here; indent with spaces, not tabs",
        ),
        ("a: @x", "f.yaml:1:4: cannot be read: '@' can't stand here; put it in quotes"),
    ],
)
def test_what_can_not_be_read_is_told_with_its_place_and_a_remedy(
    text: str | bytes, message: str
) -> None:
    assert problems(text) == [message]


def test_a_syntax_error_names_line_and_column() -> None:
    (found,) = problems("a: [1, 2\nb: 3\n")

    assert found.startswith("f.yaml:2:2: cannot be read: ")


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert value(b"\xef\xbb\xbfa: 1") == {"a": 1}


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_of_any_writer_is_read_as_json(indent: Any, ascii_only: bool) -> None:
    data = {
        "a": [1, -2.5e-7, True, None, '\U0001f600 / \\ " \n \t end'],
        "b": {"no": "yes", "e": 1e22, "deep": [[], {}, [{}]]},
    }

    assert value(json.dumps(data, indent=indent, ensure_ascii=ascii_only)) == data


def test_a_value_alone_is_read_as_in_a_file() -> None:
    assert yamlreader.parse_value("[1, 2.5, x]") == [1, 2.5, "x"]
    assert yamlreader.parse_value("1e-3") == 0.001
    assert yamlreader.parse_value("") is None
    with pytest.raises(ValueError, match="word or a truth"):
        yamlreader.parse_value("yes")
    with pytest.raises(ValueError, match="quotes"):
        yamlreader.parse_value("[1, 2")
