import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.worker import units
from simrun.worker.protocol import TaskDir
from simrun.worker.seeds import Seeds
from simrun.worker.units import (
    TableConflictError,
    Unit,
    UnitTable,
    expand,
    make_units,
    unit_key,
    write_table,
)


@pytest.fixture
def task_dir(tmp_path):
    return TaskDir(tmp_path)


def units_of(rows, **options):
    return list(make_units(rows, **{"seed_base": 0, "task": "sweep", **options}))


def test_units_are_numbered_and_have_the_seeds_of_their_index():
    made = units_of([{"a": 1}, {"a": 2}], seed_base=9)

    assert made == [
        Unit(0, "a=1", {"a": 1}, *Seeds(9, "sweep").at(0)),
        Unit(1, "a=2", {"a": 2}, *Seeds(9, "sweep").at(1)),
    ]


def test_replicates_stand_side_by_side_and_say_which_they_are():
    made = units_of([{"a": 1}, {"a": 2}], replicates=2)

    assert [unit.key for unit in made] == [
        "a=1,replicate=0",
        "a=1,replicate=1",
        "a=2,replicate=0",
        "a=2,replicate=1",
    ]
    assert made[3].params == {"a": 2, "replicate": 1}
    assert len({unit.seed for unit in made}) == 4


def test_replicates_may_share_their_seeds_across_points():
    made = units_of([{"a": 1}, {"a": 2}], replicates=2, seed_across="replicates")

    assert [unit.seed for unit in made[:2]] == [unit.seed for unit in made[2:]]
    assert made[0].seed31 != made[1].seed31


def test_one_replicate_adds_no_parameter():
    assert units_of([{"a": 1}])[0].params == {"a": 1}


def test_a_parameter_of_the_name_replicate_stands_in_the_way_of_replicates():
    assert units_of([{"replicate": 5}])[0].params == {"replicate": 5}
    with pytest.raises(ValueError, match="row 0 has a parameter 'replicate'"):
        units_of([{"replicate": 5}], replicates=2)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], "row 1 must be a mapping of parameters, not \\[1\\]"),
        ({1: 2}, "row 1: the name 1 must be text"),
        ({"x": float("nan")}, "row 1: x is nan, which JSON can't say"),
        ({"x": "\ud800"}, "row 1: x is "),
        ({"\ud800": 1}, "row 1: "),
        ({"x": Path("p")}, "row 1: x is PosixPath"),
    ],
)
def test_a_row_that_is_none_is_named(row, message):
    with pytest.raises(ValueError, match=message):
        units_of([{"x": 1}, row])


def test_a_key_stays_on_one_line_and_short():
    long = [unit_key({"text": "x" * 500 + end}) for end in "ab"]

    assert max(map(len, long)) <= units.KEY_LENGTH
    assert long[0] != long[1]
    assert unit_key({"text": "a\nb"}).isprintable()
    assert unit_key({"text": "a\nb"}) != unit_key({"text": "a\tb"})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=20))
def test_a_table_gives_back_what_was_written(tmp_path_factory, rows):
    rows = [{k.encode(errors="ignore").decode(): v for k, v in row.items()} for row in rows]
    task_dir = TaskDir(tmp_path_factory.mktemp("task"))
    made = units_of(rows)

    assert write_table(task_dir, made) == len(made)
    table = UnitTable.load(task_dir)
    assert table is not None
    assert table.count == len(made)
    assert list(table) == made
    assert [table.unit(unit.i) for unit in reversed(made)] == made[::-1]


def test_no_table_is_there_before_its_index(task_dir):
    assert UnitTable.load(task_dir) is None
    write_table(task_dir, units_of([{"a": 1}]))
    (task_dir.units / "index.json").rename(task_dir.units / "elsewhere")

    assert UnitTable.load(task_dir) is None


def test_a_long_table_is_cut_into_chunks(task_dir):
    made = units_of(expand({"grid": {"a": list(range(250)), "b": list(range(100))}}))
    write_table(task_dir, made)

    assert len(list(task_dir.units.glob("*.jsonl"))) == 3
    table = UnitTable.load(task_dir)
    assert table is not None
    assert [table.unit(i) for i in (0, 9_999, 10_000, 24_999)] == [
        made[i] for i in (0, 9_999, 10_000, 24_999)
    ]


def test_large_rows_make_chunks_of_less_units(task_dir):
    write_table(task_dir, units_of([{"text": str(i) * 2**20} for i in range(9)]))

    assert max(path.stat().st_size for path in task_dir.units.glob("*.jsonl")) <= units.CHUNK_BYTES
    table = UnitTable.load(task_dir)
    assert table is not None
    assert table.unit(8).params == {"text": "8" * 2**20}


def test_a_second_writer_of_the_same_table_changes_nothing(task_dir):
    write_table(task_dir, units_of([{"a": 1}]))
    before = {path.name: path.stat().st_ino for path in task_dir.units.iterdir()}

    assert write_table(task_dir, units_of([{"a": 1}])) == 1
    assert {path.name: path.stat().st_ino for path in task_dir.units.iterdir()} == before


def test_a_second_table_is_refused_and_the_first_holds(task_dir):
    write_table(task_dir, units_of([{"a": 1}]))

    with pytest.raises(TableConflictError, match="has another unit table already"):
        write_table(task_dir, units_of([{"a": 2}]))
    table = UnitTable.load(task_dir)
    assert table is not None
    assert table.unit(0).params == {"a": 1}


def test_a_writer_that_was_killed_leaves_nothing_in_the_way(task_dir):
    made = units_of([{"a": 1}])
    write_table(task_dir, made)
    (task_dir.units / "index.json").unlink()

    assert write_table(task_dir, made) == 1
    assert UnitTable.load(task_dir) is not None


def test_units_out_of_order_are_refused(task_dir):
    with pytest.raises(ValueError, match="1 stands at 0"):
        write_table(task_dir, units_of([{"a": 1}, {"a": 2}])[1:])
    assert UnitTable.load(task_dir) is None


@pytest.mark.parametrize("i", [-1, 1])
def test_a_unit_outside_the_table_is_an_error(task_dir, i):
    write_table(task_dir, units_of([{"a": 1}]))
    table = UnitTable.load(task_dir)
    assert table is not None

    with pytest.raises(IndexError, match="the table has 1"):
        table.unit(i)


@pytest.mark.parametrize("harm", [lambda p: os.truncate(p, 10), Path.unlink])
def test_a_damaged_chunk_is_named(task_dir, harm):
    write_table(task_dir, units_of([{"a": 1}]))
    (chunk,) = task_dir.units.glob("*.jsonl")
    harm(chunk)
    table = UnitTable.load(task_dir)
    assert table is not None

    with pytest.raises(ValueError, match=chunk.name):
        table.unit(0)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"schema":1}', b'{"schema":2,"count":0,"chunks":[]}']
)
def test_a_damaged_or_newer_index_is_named(task_dir, content):
    task_dir.units.mkdir()
    (task_dir.units / "index.json").write_bytes(content)

    with pytest.raises(ValueError, match=r"index\.json"):
        UnitTable.load(task_dir)


def test_the_lines_of_a_chunk_have_the_agreed_form(task_dir):
    write_table(task_dir, units_of([{"a": 1}]))
    (chunk,) = task_dir.units.glob("*.jsonl")

    assert list(json.loads(chunk.read_text())) == ["i", "key", "params", "seed", "seed31"]
