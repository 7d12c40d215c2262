"""Parsers of upstream formats: what is right is read, what is wrong is one error that names the file."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from vflpriv.data.parsers import parse_json, parse_numbers, parse_png, parse_rows, text_of
from vflpriv.errors import InputError


def png(pixels: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def some_pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def test_png_pixels_come_back_in_their_order() -> None:
    colour, grey = some_pixels(3, 5, 3), some_pixels(3, 5)
    assert np.array_equal(parse_png(png(colour), "x"), colour)
    assert np.array_equal(parse_png(png(grey), "x", mode="L"), grey)
    assert np.array_equal(parse_png(png(grey), "x"), np.repeat(grey[..., None], 3, axis=2))


def test_png_pictures_are_resized() -> None:
    flat = np.full((20, 30), 77, np.uint8)
    assert np.array_equal(parse_png(png(flat), "x", mode="L", side=6), np.full((6, 6), 77))
    halves = np.zeros((4, 4), np.uint8)
    halves[:, 2:] = 200
    small = parse_png(png(halves), "x", mode="L", side=2)
    assert (small[:, 0] < small[:, 1]).all()


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "jpeg", "flipped"])
def test_what_is_not_png_is_refused(damage: str) -> None:
    whole, jpeg = png(some_pixels(40, 40, 3)), io.BytesIO()
    Image.fromarray(some_pixels(8, 8, 3)).save(jpeg, "JPEG")
    flipped = whole[:60] + bytes([whole[60] ^ 255]) + whole[61:]
    contents = {"empty": b"", "text": b"hello", "cut": whole[:-200], "jpeg": jpeg.getvalue(), "flipped": flipped}
    with pytest.raises(InputError, match=r"'pictures/a\.png'.*expected a PNG picture"):
        parse_png(contents[damage], "pictures/a.png")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "valid JSON"),
        (b"[1, 2", "valid JSON"),
        (b"\xff\xfe\xfd", "valid JSON"),
        (b'{"t": 1}', "a JSON list, found dict"),
        (b"7", "a JSON list, found int"),
        (b"[" * 100_000, "valid JSON"),
    ],
)
def test_what_is_not_a_json_list_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_json(content, "x")


@given(values=st.lists(st.integers() | st.text()))
def test_json_round_trip(values: list[object]) -> None:
    assert parse_json(json.dumps(values).encode(), "x") == values


def test_rows_are_split_at_line_ends_only() -> None:
    content = "1\tone\x0btwo\x85three\u2028four\r\n\n2\tb\n".encode()
    assert parse_rows(content, "x", delimiter="\t", columns=2) == [["1", "one\x0btwo\x85three\u2028four"], ["2", "b"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2,3\n", "2 fields in each line; line 2 has 3"),
        (b"a,b\n\n1\n", "line 3 has 1"),
        (b"\xff,b", "UTF-8 text"),
    ],
)
def test_rows_of_another_width_are_named(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rows(content, "x", delimiter=",", columns=2)


def test_numbers_behind_a_header() -> None:
    assert parse_numbers(b"x,y\n1,2.5\n-3,4e2\n", "t", header=1).tolist() == [[1.0, 2.5], [-3.0, 400.0]]
    assert parse_numbers(b"1\n0\n", "t").shape == (2, 1)
    for content in (b"1,2\n3\n", b"1,b\n"):
        with pytest.raises(InputError, match="the same number of numbers in each row"):
            parse_numbers(content, "t")


def test_text_must_be_utf8() -> None:
    assert text_of("é".encode(), "x") == "é"
    with pytest.raises(InputError, match="UTF-8"):
        text_of("é".encode("latin-1"), "x")
