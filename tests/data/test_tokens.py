"""Token ids: the same text has the same ids everywhere, 0 is padding, and nothing is learnt from the records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.data.tokens import VOCABULARY, WordPiece, encode, hashed
from vflpriv.errors import InputError

PIECES = [
    "[PAD]",
    "[UNK]",
    "play",
    "##ing",
    "##er",
    "un",
    "##want",
    "##ed",
    "the",
    ",",
    "'",
    "£5",
    "cafe",
    "!",
    "_",
    "a",
]


def test_hashed_ids_never_change() -> None:
    """A published number rests on them; CRC-32 of the word modulo 16383, plus 1."""
    assert hashed("the film was great") == [7936, 1854, 2561, 14519]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Don't STOP", "don't stop"),
        ("good.<br /><br />Bad", "good bad"),
        ("'quoted'", "quoted"),
        ("naïve", "na ve"),
        ("a < b and c > d", "a b and c d"),
        ("<i>film</i>", "film"),
    ],
)
def test_what_counts_as_a_word(text: str, same: str) -> None:
    assert hashed(text) == hashed(same)
    assert len(hashed(same)) == len(same.split())


@given(text=st.text())
def test_any_text_has_ids_between_one_and_the_vocabulary(text: str) -> None:
    assert all(0 < number < VOCABULARY for number in hashed(text))


def test_ids_do_not_depend_on_the_process() -> None:
    code = "from vflpriv.data.tokens import hashed; print(hashed('a long sentence of words'))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": s}
        ).stdout
        for s in ("1", "2")
    }
    assert runs == {f"{hashed('a long sentence of words')}\n"}


@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=5), length=st.integers(1, 8))
def test_rows_start_with_their_tokens_and_end_with_padding(texts: list[str], length: int) -> None:
    ids = encode(texts, length)
    assert (ids.shape, ids.dtype) == ((len(texts), length), np.int64)
    for text, row in zip(texts, ids.tolist(), strict=True):
        kept = hashed(text)[:length]
        assert row == kept + [0] * (length - len(kept))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("playing", ["play", "##ing"]),
        ("The PLAYER", ["the", "play", "##er"]),
        ("unwanted,", ["un", "##want", "##ed", ","]),
        ("xyz", ["[UNK]"]),
        ("playxyz", ["[UNK]"]),
        ("café", ["cafe"]),
        ("£5", ["£5"]),
        ("the\x96\x85the", ["[UNK]"]),
        ("the\u00a0the\tthe", ["the", "the", "the"]),
        ("the_the", ["the", "_", "the"]),
        ("the<br />the", ["the", "the"]),
        ("a" * 101, ["[UNK]"]),
        ("", []),
    ],
)
def test_word_pieces(text: str, pieces: list[str]) -> None:
    assert WordPiece(PIECES)(text) == [PIECES.index(piece) for piece in pieces]


def test_a_vocabulary_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*PIECES, ""]).encode())
    assert WordPiece.of(tmp_path)("playing!") == [2, 3, 13]
    assert encode(["playing", "a"], 3, WordPiece.of(tmp_path)).tolist() == [[2, 3, 0], [15, 0, 0]]


@pytest.mark.parametrize("pieces", [[], ["[UNK]", "[PAD]"], ["[PAD]", "the"]])
def test_a_vocabulary_without_padding_first_is_refused(pieces: list[str]) -> None:
    with pytest.raises(InputError, match=r"starts with \[PAD\] and has \[UNK\]"):
        WordPiece(pieces)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"vocab\.txt.*a file that can be read"):
        WordPiece.of(tmp_path)
