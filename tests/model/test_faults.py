"""Paths, and the name that was probably meant."""

from __future__ import annotations

import pytest

from simrun.model.faults import Fault, FieldFaults, Nearest, dotted, is_probably, listed


def test_a_path_reads_as_people_write_it() -> None:
    assert dotted(("tasks", "a", "command", 2)) == "tasks.a.command[2]"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("retry-memory", "retry_memory"),
        ("retryMemory", "retry_memory"),
        ("max_memmory", "max_memory"),
        ("Sweep", "sweep"),
        ("cafe\u0301", "caf\u00e9"),
        ("xyz", None),
    ],
)
def test_the_nearest_name_is_found_by_letters_case_joints_and_unicode_form(
    wrong: str, right: str | None
) -> None:
    known = ["retry_memory", "max_memory", "sweep", "caf\u00e9", "a"]

    assert Nearest(known).name(wrong) == right


def test_a_remedy_says_how_names_differ() -> None:
    known = ["caf\u00e9", "sweep"]

    assert Nearest(known).remedy("cafe\u0301") == (
        "did you mean 'caf\u00e9' (the same letters in another Unicode form)?"
    )
    assert Nearest(known).remedy("SWEEP") == "did you mean 'sweep' (names differ by case)?"


def test_looking_for_near_names_stops_before_it_takes_minutes() -> None:
    known = [f"name-{number:06}" for number in range(100_000)]
    nearest = Nearest(known)

    found = [nearest.name(f"nome-{number:06}") for number in range(20)]

    assert found[0] is not None
    assert found[-1] is None
    assert nearest.name("NAME_000007") == "name-000007"


@pytest.mark.parametrize(
    ("wrong", "right", "slip"),
    [
        ("tolerence", "tolerance", True),
        ("step_size", "stepsize", True),
        ("x1", "x2", False),
        ("mass_1", "mass_12", False),
        ("dt", "dx", False),
        ("temperature", "pressure", False),
    ],
)
def test_names_that_differ_on_purpose_are_no_slips(wrong: str, right: str, slip: bool) -> None:
    assert is_probably(wrong, right) is slip


def test_long_enumerations_stay_readable() -> None:
    assert listed(["b", "a"]) == "a, b"
    assert listed([f"{n:03}" for n in range(30)], 2) == "000, 001 and 28 more"


def test_faults_of_fields_read_as_one_text_where_nobody_takes_them_apart() -> None:
    error = FieldFaults([Fault(("a", 1), "is wrong"), Fault((), "needs b")])

    assert str(error) == "a[1] is wrong; needs b"
