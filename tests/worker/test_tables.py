import pytest

from simrun.worker.tables import read_table


@pytest.fixture
def table(tmp_path):
    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_columns_are_integers_numbers_or_text(table):
    path = table("n,x,name,code\n1,1,a,007\n-2,2.5e1,b c,12\n")

    assert read_table(path) == [
        {"n": 1, "x": 1.0, "name": "a", "code": "007"},
        {"n": -2, "x": 25.0, "name": "b c", "code": "12"},
    ]
    assert isinstance(read_table(path)[0]["x"], float)


def test_an_empty_cell_is_none_among_numbers_and_empty_among_text(table):
    assert read_table(table("x,t\n1,a\n,\n")) == [{"x": 1, "t": "a"}, {"x": None, "t": ""}]


@pytest.mark.parametrize(
    "cell", ["nan", "inf", "1e999", "1_000", "0x10", "12345678901234567890", "½"]
)
def test_what_would_lose_its_meaning_as_a_number_stays_text(table, cell):
    assert read_table(table(f"x\n{cell}\n")) == [{"x": cell}]


def test_quoted_cells_may_hold_commas_and_line_ends(table):
    assert read_table(table('a,b\n"1,5","x\ny"\n')) == [{"a": "1,5", "b": "x\ny"}]


def test_a_mark_of_the_byte_order_and_windows_line_ends_are_no_data(table):
    assert read_table(table(b"\xef\xbb\xbfa,b\r\n1,2\r\n")) == [{"a": 1, "b": 2}]


def test_a_header_alone_is_a_table_without_rows(table):
    assert read_table(table("a,b\n")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no header line"),
        ("a,a\n1,2\n", ":1: the header names 'a' twice"),
        ("a,\n1,2\n", ":1: the header has a column without a name"),
        ("a,b\n1,2\n\n3\n", ":4: has 1 cells, the header 2"),
        ('a\n"1\n', ":2: "),
        (b"a\n\xff\n", "must be UTF-8"),
    ],
)
def test_a_broken_csv_is_refused_with_file_and_line(table, text, message):
    path = table(text)

    with pytest.raises(ValueError, match=r"table\.csv") as refused:
        read_table(path)
    assert message in str(refused.value)


def test_a_jsonl_file_has_an_object_a_line(table):
    path = table('{"a": 1, "b": [1, 2]}\n\n{"a": null}\n', "table.jsonl")

    assert read_table(path) == [{"a": 1, "b": [1, 2]}, {"a": None}]


@pytest.mark.parametrize(
    ("line", "message"), [("{", ":2: no JSON"), ("[1]", ":2: must be an object")]
)
def test_a_broken_jsonl_is_refused_with_file_and_line(table, line, message):
    with pytest.raises(ValueError, match=message):
        read_table(table(f'{{"a": 1}}\n{line}\n', "table.jsonl"))


def test_other_files_are_refused_with_what_is_possible(table):
    with pytest.raises(ValueError, match=r"must be a \.csv or a \.jsonl file"):
        read_table(table("a", "table.xlsx"))
