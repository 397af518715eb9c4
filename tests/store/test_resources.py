"""Observations: once each, the newest of a type, and types told apart whatever they are called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simrun.model.report import Observation
from simrun.store.resources import HISTORY, ResourceStore

MIB = 2**20


@pytest.fixture
def resources(tmp_path: Path) -> ResourceStore:
    return ResourceStore(tmp_path)


def seen(run: str = "run1", attempt: int = 0, kind: str = "orbit", **values: Any) -> Observation:
    given = {"given_memory": 512 * MIB, "peak_memory": 100 * MIB, "at": 1.0}
    return Observation(
        type=kind, run=run, task="sweep", worker="sweep-w0", attempt=attempt, **{**given, **values}
    )


def test_an_observation_is_stored_once_whatever_is_said_the_second_time(
    resources: ResourceStore,
) -> None:
    assert resources.record(seen(peak_memory=1 * MIB))
    assert not resources.record(seen(peak_memory=2 * MIB))
    assert resources.of_type("orbit") == [seen(peak_memory=1 * MIB)]


def test_its_key_is_the_name_of_its_file(resources: ResourceStore, tmp_path: Path) -> None:
    resources.record(seen(attempt=3))
    assert (tmp_path / "resources" / "orbit" / "run1-sweep-sweep-w0-3.json").is_file()


def test_observations_come_oldest_first_and_those_of_other_types_not_at_all(
    resources: ResourceStore,
) -> None:
    for number in (2, 0, 1):
        resources.record(seen(f"run{number}", at=float(number)))
    resources.record(seen("other", kind="other"))
    assert [item.run for item in resources.of_type("orbit")] == ["run0", "run1", "run2"]
    assert resources.of_type("unknown") == []


def test_of_too_many_the_newest_are_given_also_when_run_ids_do_not_sort_by_time(
    resources: ResourceStore, tmp_path: Path
) -> None:
    names = ["zzz", "k9", "01a", "f3", "aaa"]
    for number, name in enumerate(names):
        resources.record(seen(name, at=float(number)))
        path = tmp_path / "resources" / "orbit" / f"{name}-sweep-sweep-w0-0.json"
        os.utime(path, (1000 + number, 1000 + number))
    assert [item.run for item in resources.of_type("orbit", limit=3)] == ["01a", "f3", "aaa"]
    assert len(resources.of_type("orbit")) == 5
    assert HISTORY >= 100


def test_a_damaged_observation_is_left_out(resources: ResourceStore, tmp_path: Path) -> None:
    resources.record(seen())
    (tmp_path / "resources" / "orbit" / "run0-sweep-sweep-w0-0.json").write_bytes(b'{"cut')
    assert [item.run for item in resources.of_type("orbit")] == ["run1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/b", "a-b"),
        ("a b", "a_b"),
        ("..", "."),
        ("", "-"),
        ("Orbit", "orbit"),
        ("é", "è"),
        ("x" * 300, "x" * 301),
        ("\U0001f4a5" * 100, "\U0001f4a5" * 99),
        ("resources/../../etc", "resources"),
    ],
)
def test_types_are_told_apart_and_never_lead_out_of_their_directory(
    resources: ResourceStore, tmp_path: Path, one: str, other: str
) -> None:
    resources.record(seen("one", kind=one))
    resources.record(seen("other", kind=other))
    assert [item.run for item in resources.of_type(one)] == ["one"]
    assert [item.run for item in resources.of_type(other)] == ["other"]
    assert {path.name for path in tmp_path.iterdir()} == {"resources"}
    assert len([path for path in (tmp_path / "resources").iterdir() if path.is_dir()]) == 2
