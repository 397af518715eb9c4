"""Names of workflows, and label values made of free text."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simrun.argo import label_value, run_workflow_name, workflow_name
from simrun.base import ids

LABEL = re.compile(r"[a-z0-9]([-a-z0-9_.]*[a-z0-9])?")
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
run_ids = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True).filter(
    lambda text: ids.run_id_problem(text) is None
)


@pytest.mark.parametrize("text", ["a", "team-1", "a.b_c-d", "0", "x" * 63])
def test_what_is_a_label_value_in_lower_case_stays(text: str) -> None:
    assert label_value(text) == text


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("Team One", "team-one-"),
        ("-team-", "team-"),
        ("grüße", "gr--e-"),
        ("x" * 64, "x" * 50 + "-"),
        ("{{=1+1}}", "1-1-"),
    ],
)
def test_a_changed_value_is_like_its_text_and_ends_in_a_hash(text: str, start: str) -> None:
    value = label_value(text)
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{12}", value)


@pytest.mark.parametrize("text", ["", "---", "ü", "\n", "\ud800"])
def test_text_without_a_likeness_becomes_its_hash(text: str) -> None:
    assert re.fullmatch("[0-9a-f]{12}", label_value(text))


def test_texts_that_look_alike_keep_different_values() -> None:
    texts = [
        "team a",
        "team-a",
        "Team-A",
        "team a ",
        "team_a",
        "TEAM A",
        "team\na",
        "x" * 63,
        "x" * 64,
    ]
    assert len({label_value(text) for text in texts}) == len(texts)


@given(st.text())
@example("a" * 50 + "-" * 20)
@example("_" + "." * 70 + "x")
def test_any_text_gives_a_label_value(text: str) -> None:
    value = label_value(text)
    assert LABEL.fullmatch(value)
    assert len(value) <= 63
    assert label_value(text) == value == label_value(value)


@given(st.lists(st.text(), unique=True))
def test_different_texts_keep_different_values(texts: list[str]) -> None:
    assert len({label_value(text) for text in texts}) == len(texts)


@given(run_ids, st.integers(0, 10**6))
def test_a_run_id_can_be_read_from_the_name_of_its_workflow(run: str, round_: int) -> None:
    name = run_workflow_name(run, round_)
    assert DNS_LABEL.fullmatch(name)
    assert len(name) <= 63
    assert name == f"simrun-{run}" + (f"-r{round_}" if round_ else "")


def test_the_first_round_has_the_name_of_the_run() -> None:
    assert run_workflow_name("x", 0) == workflow_name("x") == "simrun-x"
    assert run_workflow_name("x", 2) == workflow_name("x-r2") == "simrun-x-r2"


@given(st.text())
@example("a.b")
@example("A")
@example("x" * 200)
def test_any_id_gives_a_valid_name(run: str) -> None:
    name = workflow_name(run)
    assert DNS_LABEL.fullmatch(name)
    assert len(name) <= 63


@given(st.lists(st.text(), unique=True))
def test_different_ids_give_different_names(runs: list[str]) -> None:
    assert len({workflow_name(run) for run in runs}) == len(runs)
