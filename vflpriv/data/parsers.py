"""Parsers of the file formats that data sets are published in; an error names the file and what is wrong with it."""

from __future__ import annotations

import io
import json
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError

__all__ = ["parse_idx", "parse_json", "parse_numbers", "parse_png", "parse_rows", "text_of"]


def parse_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes: two zeros, type 8, the number of dimensions, their sizes, the values.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels").tolist()
    [7, 8, 9]
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 4:
        raise InputError("data.file", name, f"an IDX file of bytes, its first four bytes are {content[:4].hex(' ')}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise InputError("data.file", name, f"a header of {start} bytes, the file has {len(content)}")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        sizes = "x".join(map(str, shape))
        raise InputError("data.file", name, f"{sizes} values as its header says, found {len(content) - start}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def parse_png(content: bytes, name: str, *, mode: str = "RGB", side: int | None = None) -> NDArray[np.uint8]:
    """A PNG picture: (height, width, 3), or (height, width) with mode `L`; resized to `side` x `side` if given."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as file:
            picture = file.convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError("data.file", name, f"a PNG picture ({error})") from error
    if side is not None:
        picture = picture.resize((side, side), Image.Resampling.BILINEAR)
    return np.array(picture, dtype=np.uint8)


def parse_json(content: bytes, name: str) -> list[Any]:
    """A JSON file that holds a list.

    >>> parse_json(b"[6, 9]", "labels")
    [6, 9]
    """
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError("data.file", name, f"valid JSON ({error})") from error
    if not isinstance(values, list):
        raise InputError("data.file", name, f"a JSON list, found {type(values).__name__}")
    return values


def parse_numbers(content: bytes, name: str, *, delimiter: str = ",", header: int = 0) -> NDArray[np.float64]:
    """A table of numbers, all rows of the same length, after `header` lines that are skipped.

    >>> parse_numbers(b"a,b\\n1,2\\n3,4\\n", "table", header=1).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    rows = parse_rows(content, name, delimiter=delimiter, header=header)
    try:
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1)
    except ValueError as error:
        raise InputError("data.file", name, f"the same number of numbers in each row ({error})") from error


def parse_rows(
    content: bytes, name: str, *, delimiter: str, columns: int | None = None, header: int = 0
) -> list[list[str]]:
    """The fields of each line that is not empty, without surrounding blanks; exactly `columns` of them if given.

    >>> parse_rows(b"39, Private, <=50K\\r\\n\\n", "table", delimiter=",", columns=3)
    [['39', 'Private', '<=50K']]
    """
    # Not splitlines(), which also splits at separators that occur inside a field.
    lines = text_of(content, name).replace("\r\n", "\n").split("\n")
    rows = []
    for number, line in enumerate(lines[header:], start=header + 1):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(delimiter)]
        if columns is not None and len(fields) != columns:
            raise InputError("data.file", name, f"{columns} fields in each line; line {number} has {len(fields)}")
        rows.append(fields)
    return rows


def text_of(content: bytes, name: str) -> str:
    """The content as text, decoded as UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("data.file", name, f"UTF-8 text ({error})") from error
