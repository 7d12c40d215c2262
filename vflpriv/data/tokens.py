"""Text as token ids: a record is a row of int64, 0 is padding, real tokens come first.

The default is feature hashing: no vocabulary is learnt from the records, so that no record changes the ids of another
one, and the same text has the same ids everywhere. A pretrained encoder needs the ids of its own vocabulary, which
`WordPiece` reads from the encoder's folder.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.files import regular
from vflpriv.data.parsers import text_of
from vflpriv.errors import InputError

__all__ = ["PADDING", "VOCABULARY", "Tokenizer", "WordPiece", "encode", "hashed"]

PADDING = 0
VOCABULARY = 1 << 14
"""The number of ids that `hashed` uses, padding included."""

Tokenizer = Callable[[str], Sequence[int]]

_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,80}>")
_WORDS = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_LONGEST = 100


@lru_cache(maxsize=1 << 18)
def _bucket(word: str) -> int:
    return 1 + zlib.crc32(word.encode("ascii")) % (VOCABULARY - 1)


def hashed(text: str) -> list[int]:
    """The ids of the text's words: lower case, ASCII letters and digits, markup dropped, CRC-32 into VOCABULARY - 1.

    >>> hashed("Great phone, don't wait!<br />") == hashed("great phone don't WAIT")
    True
    >>> len(hashed("it's 5 stars")), hashed("...")
    (3, [])
    """
    return [_bucket(word) for word in _WORDS.findall(_MARKUP.sub(" ", text.lower()))]


@lru_cache(maxsize=1 << 12)
def _spaced(character: str) -> str:
    """A character as BERT's tokenizer treats it: punctuation is a word, accents and control characters are dropped."""
    kind = unicodedata.category(character)
    if character in "\t\n\r" or kind == "Zs":
        return " "
    if kind == "Mn" or kind.startswith("C"):
        return ""
    punctuation = kind.startswith("P") or (character.isascii() and not character.isalnum())
    return f" {character} " if punctuation else character


class WordPiece:
    """The tokenizer of uncased BERT-style encoders: greedy longest pieces of a vocabulary with one piece per line.

    Without [CLS] and [SEP], since a record's tokens are spread over devices and none has both its start and its end.
    """

    def __init__(self, pieces: Iterable[str]) -> None:
        self.ids: Mapping[str, int] = {piece: number for number, piece in enumerate(pieces)}
        if self.ids.get("[PAD]") != PADDING or "[UNK]" not in self.ids:
            first = next(iter(self.ids), "")
            raise InputError("data.vocabulary", first, "a vocabulary that starts with [PAD] and has [UNK]")
        self._unknown = [self.ids["[UNK]"]]
        self._known: dict[str, list[int]] = {}

    @classmethod
    def of(cls, folder: Path) -> WordPiece:
        """The vocabulary `vocab.txt` of an encoder's folder."""
        path = folder / "vocab.txt"
        try:
            content = regular(path).read_bytes()
        except OSError as error:
            raise InputError("data.vocabulary", str(path), f"a file that can be read ({error.strerror})") from error
        return cls(text_of(content, str(path)).replace("\r\n", "\n").rstrip("\n").split("\n"))

    def __call__(self, text: str) -> list[int]:
        plain = unicodedata.normalize("NFD", _MARKUP.sub(" ", text).lower())
        return [number for word in "".join(map(_spaced, plain)).split() for number in self._pieces(word)]

    def _pieces(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = self._cut(word)
        return self._known[word]

    def _cut(self, word: str) -> list[int]:
        pieces, start = [], 0
        while start < len(word) <= _LONGEST:
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if mark + word[start:e] in self.ids), None)
            if end is None:
                return self._unknown
            pieces.append(self.ids[mark + word[start:end]])
            start = end
        return pieces or self._unknown


def encode(texts: Iterable[str], length: int, tokenizer: Tokenizer = hashed) -> NDArray[np.int64]:
    """The first `length` ids of each text, padded to that length.

    >>> encode(["one two three", ""], 2).shape, encode([""], 3).tolist()
    ((2, 2), [[0, 0, 0]])
    """
    rows = [tokenizer(text)[:length] for text in texts]
    ids = np.full((len(rows), length), PADDING, dtype=np.int64)
    for row, numbers in zip(ids, rows, strict=True):
        row[: len(numbers)] = numbers
    return ids
