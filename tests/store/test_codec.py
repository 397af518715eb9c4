"""Bytes of stored models: the schema in each, the reader of the one before, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simrun.base.errors import DamagedRecord, UnknownSchema
from simrun.model.base import StoredModel
from simrun.model.record import RunRecord, RunTimes
from simrun.model.report import AttemptEvidence, Observation, WorkerReport
from simrun.model.settings import TaskSettings
from simrun.store import codec

PATH = Path("/store/runs/run1/run.json")
RECORD = RunRecord(id="run1", name="Zürich", times=RunTimes(created=1.5))


def test_a_record_is_one_line_of_json_with_its_schema_first_and_without_defaults() -> None:
    data = codec.encode(RECORD)
    assert data == (b'{"schema":1,"id":"run1","name":"Z\xc3\xbcrich","times":{"created":1.5}}\n')
    assert codec.decode(RunRecord, data, PATH) == RECORD


def test_a_number_that_json_has_no_word_for_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        codec.encode(RECORD.changed(times=RunTimes(created=float("nan"))))


def test_fields_that_a_newer_simrun_added_within_a_schema_are_passed_over() -> None:
    data = codec.encode(RECORD).replace(b'"id"', b'"colour":"red","id"')
    assert codec.decode(RunRecord, data, PATH) == RECORD


def test_a_record_of_the_schema_before_is_read_as_one_of_now() -> None:
    """Schema 0 had no word for itself, counted memory in GiB and knew no rounds."""
    old = {
        "id": "run1",
        "state": "running",
        "tasks": {"sweep": "queued"},
        "plans": {
            "sweep": {"pods": 4, "split": True, "memory_gb": 0.25, "retry_memory_gb": 0.5},
            "plot": {"memory_gb": 1.0, "retry_memory_gb": None},
        },
        "oom_kills": {"sweep-w0": [0]},
        "times": {"created": 5.0},
    }
    for data in (old, {**old, "schema": 0}):
        record = codec.decode(RunRecord, json.dumps(data).encode(), PATH)
        assert record.schema_ == 1
        assert record.plans["sweep"].memory == 2**28
        assert record.plans["sweep"].retry_memory == 2**29
        assert record.plans["sweep"].coordinator_merges is False
        assert record.plans["plot"].retry_memory is None
        assert (record.round, record.attempt_base, record.revision) == (0, {}, 0)
        assert record.oom_kills == {"sweep-w0": [0]}
        assert json.loads(codec.encode(record))["schema"] == 1


def test_a_report_of_a_harness_from_before_schemas_is_read() -> None:
    old = (
        b'{"run":"r","task":"t","worker":"t-w0","attempt":0,"exit_code":0,"reason":"completed",'
        b'"started":1,"ended":2}'
    )
    assert codec.decode(WorkerReport, old, PATH).protocol == 0


@pytest.mark.parametrize("kind", [RunRecord, WorkerReport, AttemptEvidence, Observation])
def test_a_newer_schema_is_refused_with_both_numbers_and_the_remedy(
    kind: type[StoredModel],
) -> None:
    with pytest.raises(UnknownSchema) as caught:
        codec.decode(kind, b'{"schema":2}', PATH)
    assert str(PATH) in str(caught.value)
    assert "has schema 2, this simrun knows up to 1; use a newer simrun" in str(caught.value)
    assert isinstance(caught.value, DamagedRecord)


@pytest.mark.parametrize("schema", [b"-1", b"true", b"1.0", b'"1"', b"null", b"[]"])
def test_a_schema_that_is_no_number_is_damage(schema: bytes) -> None:
    with pytest.raises(DamagedRecord, match="its schema is"):
        codec.decode(RunRecord, b'{"schema":' + schema + b"}", PATH)


@pytest.mark.parametrize(
    "plans",
    ["[]", '{"a":7}', '{"a":{"memory_gb":"much"}}', '{"a":{"memory_gb":1e999}}', '{"a":null}'],
)
def test_nonsense_in_a_record_of_the_schema_before_is_damage(plans: str) -> None:
    with pytest.raises(DamagedRecord, match=r"has schema 0|plans"):
        codec.decode(RunRecord, f'{{"id":"r","plans":{plans}}}'.encode(), PATH)


def test_damage_names_the_file_the_first_field_and_the_number_of_problems() -> None:
    with pytest.raises(DamagedRecord) as caught:
        codec.decode(RunRecord, b'{"schema":1,"id":"r","round":"x","times":{}}', PATH)
    text = str(caught.value)
    assert text.startswith(f"{PATH}: round: ")
    assert "(2 problems)" in text


def test_no_file_is_none_and_a_store_that_fails_is_no_damage(tmp_path: Path) -> None:
    assert codec.read(RunRecord, tmp_path / "none.json") is None
    assert codec.read(RunRecord, tmp_path / "no" / "such" / "place") is None
    (tmp_path / "file").write_text("")
    assert codec.read(RunRecord, tmp_path / "file" / "run.json") is None
    with pytest.raises(OSError, match="File name too long"):
        codec.read(RunRecord, tmp_path / ("x" * 300))


def test_settings_of_a_task_keep_what_a_user_may_write_into_parameters() -> None:
    params = {"text": "{{x}} $(y) é\n", "n": 3, "x": 0.1, "on": True, "off": None, "list": [1, [2]]}
    settings = TaskSettings(run="r", task="t", type="k", params=params, failures_allowed=0.25)
    again = codec.decode(TaskSettings, codec.encode(settings), PATH)
    assert again == settings
    assert again.params["on"] is True


def test_no_more_files_are_known_than_asked_for() -> None:
    decoded: codec.Decoded[RunRecord] = codec.Decoded(most=100, files=2)
    for name in ("a", "b", "c"):
        decoded.put(Path(name), b"1", RunRecord(id=name, times=RunTimes(created=1)))
    assert [decoded.last(Path(name)) is None for name in ("a", "b", "c")] == [True, False, False]


def test_what_was_decoded_is_known_by_its_bytes_and_the_least_used_is_forgotten_first() -> None:
    decoded: codec.Decoded[RunRecord] = codec.Decoded(most=100)
    one, two, three = (RunRecord(id=name, times=RunTimes(created=1)) for name in ("a", "b", "c"))
    decoded.put(Path("one"), b"1" * 40, one)
    decoded.put(Path("two"), b"2" * 40, two)
    assert decoded.get(Path("one"), b"1" * 40) is one
    assert decoded.get(Path("one"), b"1" * 39) is None

    decoded.put(Path("three"), b"3" * 40, three)

    assert decoded.last(Path("two")) is None
    assert (decoded.last(Path("one")), decoded.last(Path("three"))) == (one, three)
    decoded.put(Path("large"), b"4" * 101, two)
    assert [decoded.last(Path(name)) for name in ("one", "three")] == [None] * 2
    assert decoded.last(Path("large")) is two  # else what is large would be decoded at each look
    decoded.put(Path("one"), b"1" * 100, one)
    assert decoded.last(Path("one")) is one
