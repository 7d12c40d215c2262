"""CSV files of a user: a header line, one row for each record, and a column of ids by which files are joined.

Files are read by Python's csv module. Whatever is wrong with one is an error that names the file, the line and the
value; nothing is guessed, filled in or left out.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.files import regular
from vflpriv.data.parsers import text_of
from vflpriv.errors import InputError

__all__ = ["Table", "as_number", "read_table"]

_KEY = "id"
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """One file. `key` is the name of its column of ids, `columns` are the texts of the others, by name."""

    path: Path
    key: str
    columns: dict[str, list[str]]
    lines: Sequence[int]
    rows: dict[str, int]
    """The row of each id."""

    def wrong(self, expected: str, row: int | None = None) -> InputError:
        """An error about this file, or about one of its rows."""
        where = "" if row is None else f"line {self.lines[row]}: "
        return InputError("data.file", str(self.path), f"{where}{expected}")

    def numbers(self, name: str) -> NDArray[np.float64] | None:
        """The numbers of a column; None if it holds texts, of which none is a number."""
        texts = self.columns[name]
        values = [as_number(text) for text in texts]
        for row, (text, value) in enumerate(zip(texts, values, strict=True)):
            if not text:
                raise self.wrong(f"a value in the column {name!r}, found none", row)
            if value is not None and not abs(value) <= _LARGEST:  # NaN is not below it either
                raise self.wrong(f"a finite number in the column {name!r}, found {text!r}", row)
        missing = [value is None for value in values]
        if all(missing):
            return None
        if any(missing):
            rarer = 2 * sum(missing) <= len(missing)  # texts among numbers, or numbers among texts
            row, kind = missing.index(rarer), "number" if rarer else "text that is no number"
            raise self.wrong(f"a {kind} in the column {name!r}, as in other lines, found {texts[row]!r}", row)
        return np.array(values, dtype=np.float64)


def as_number(text: str) -> float | None:
    """The number that a text is, NaN and infinity included; None if it is none.

    >>> as_number("-1.5e3"), as_number("1_000"), as_number("blue")
    (-1500.0, None, None)
    """
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def read_table(path: Path) -> Table:
    """A file with its ids: the column `id`, or the first one if there is none of that name."""
    header, rows, lines = _fields(path)
    place = next((n for n, name in enumerate(header) if name.casefold() == _KEY), 0)
    columns = {name: [row[n] for row in rows] for n, name in enumerate(header) if n != place}
    table = Table(path=path, key=header[place], columns=columns, lines=lines, rows={})
    for number, row in enumerate(rows):
        own = row[place]
        if not own:
            raise table.wrong(f"an id in the column {table.key!r}, found none", number)
        if own in table.rows:
            expected = f"an id that no other line has in the column {table.key!r}, found {own!r}"
            raise table.wrong(expected, number)
        table.rows[own] = number
    return table


def _fields(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """The names of the columns, the fields of each row without surrounding blanks, and the line that each ends at."""
    try:
        text = text_of(regular(path).read_bytes(), str(path)).removeprefix(
            "\ufeff"
        )  # spreadsheets put a mark before UTF-8
    except OSError as error:
        raise InputError("data.file", str(path), f"a file that can be read ({error.strerror})") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = [(reader.line_num, [field.strip() for field in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise InputError("data.file", str(path), f"CSV, line {reader.line_num}: {error}") from error
    if not lines:
        raise InputError("data.file", str(path), "a header line and one line for each record; the file is empty")
    (_, header), *rows = lines
    _check_header(path, header)
    if not rows:
        raise InputError("data.file", str(path), "a line for each record after the header, found none")
    for line, row in rows:
        if len(row) != len(header):
            expected = f"line {line}: {len(header)} fields, as the header has, found {len(row)}"
            raise InputError("data.file", str(path), expected)
    return header, [row for _, row in rows], [line for line, _ in rows]


def _check_header(path: Path, header: Sequence[str]) -> None:
    if all(value is not None and math.isfinite(value) for value in map(as_number, header)):
        raise InputError("data.file", str(path), "a first line with the names of the columns, found numbers alone")
    ((name, times),) = Counter(header).most_common(1)
    if times > 1:
        raise InputError("data.file", str(path), f"columns of different names, found {name!r} {times} times")
    if len(header) < 2:
        expected = f"fields separated by commas, and a column beside the id, found {header[0]!r} alone"
        raise InputError("data.file", str(path), expected)
