"""CSV files of users: what is read of one, and the line that says what is wrong with it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.data.tables import as_number, read_table
from vflpriv.errors import InputError


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "bank.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns_are_numbers_or_texts_and_ids_stand_where_they_like(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, '\ufeffage, job ,ID\r\n31,"clerk, junior",b\r\n\r\n1e1,nurse,a\r\n'))
    assert (table.key, table.rows) == ("ID", {"b": 0, "a": 1})
    numbers = table.numbers("age")
    assert numbers is not None
    assert numbers.tolist() == [31.0, 10.0]
    assert table.numbers("job") is None
    assert table.columns["job"] == ["clerk, junior", "nurse"]


def test_without_a_column_id_the_first_one_joins_even_if_it_has_no_name(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, ",age\nu1,3\nu2,4\n"))
    assert (table.key, list(table.rows)) == ("", ["u1", "u2"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a header line and one line for each record; the file is empty"),
        (" \n,\n", "the file is empty"),
        ("id,age\n", "a line for each record after the header, found none"),
        ("1,2\n3,4\n", "a first line with the names of the columns, found numbers alone"),
        ("id,age,age\na,1,2\n", "columns of different names, found 'age' 2 times"),
        ("id;age\na;1\n", "fields separated by commas, and a column beside the id, found 'id;age' alone"),
        ("id,age\na,1\nb,2,3\n", "line 3: 2 fields, as the header has, found 3"),
        ("id,age\na,1\nb\n", "line 3: 2 fields, as the header has, found 1"),
        ("id,age\na,1\n,2\n", "line 3: an id in the column 'id', found none"),
        ("id,age\na,1\n\nb,2\na,3\n", "line 5: an id that no other line has in the column 'id', found 'a'"),
        ('id,age\na,"1\n', "CSV, line 2: unexpected end of data"),
        (b"id,age\na,\xff\n", "UTF-8 text"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert caught.value.field == "data.file"
    assert caught.value.value == str(path)
    assert said in caught.value.expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("1 2 n/a 3", "line 4: a number in the column 'x', as in other lines, found 'n/a'"),
        ("a b c 7", "line 5: a text that is no number in the column 'x', as in other lines, found '7'"),
        ("1 - 2", "line 3: a value in the column 'x', found none"),
        ("a - c", "line 3: a value in the column 'x', found none"),
        ("1 NaN", "line 3: a finite number in the column 'x', found 'NaN'"),
        ("a nan", "line 3: a finite number in the column 'x', found 'nan'"),
        ("1 -inf", "line 3: a finite number in the column 'x', found '-inf'"),
        ("1 1e39", "line 3: a finite number in the column 'x', found '1e39'"),
    ],
)
def test_a_column_that_is_neither_numbers_nor_texts_is_refused(tmp_path: Path, values: str, said: str) -> None:
    lines = [f"{row},{'' if value == '-' else value}" for row, value in enumerate(values.split())]
    table = read_table(write(tmp_path, "\n".join(["id,x", *lines])))
    with pytest.raises(InputError) as caught:
        table.numbers("x")
    assert caught.value.expected == said


def test_a_folder_or_a_missing_file_is_no_table(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(InputError, match="a file that can be read"):
            read_table(path)


@given(st.binary(max_size=60) | st.text("id,\n\"'\r\x00a1.", max_size=60).map(str.encode))
def test_any_bytes_are_a_table_or_an_error_for_the_user(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = write(tmp_path_factory.getbasetemp(), content)
    with suppress(InputError):
        table = read_table(path)
        assert {len(column) for column in table.columns.values()} == {len(table.rows)}
        for name in table.columns:
            table.numbers(name)


def test_numbers_are_those_of_files_not_of_python_source() -> None:
    assert [as_number(text) for text in ("1.5", "-2e3", "1_000", "0x10", "")] == [1.5, -2000.0, None, None, None]
