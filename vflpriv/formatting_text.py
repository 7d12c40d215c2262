"""Text from elsewhere, made safe and short: none may steer a terminal or break a page."""

from __future__ import annotations

import unicodedata

__all__ = ["ascii_only", "clean", "clean_lines", "shorten"]

_HIDDEN = ("Cf", "Cs", "Cn", "Co")
"""Unicode categories without a glyph of their own: directions, surrogates, unassigned."""

_ASCII = {"ε": "eps", "μ": "mu", "δ": "delta", "∞": "inf", "≥": ">=", "≤": "<=", "→": "->", "✗": "x", "✓": "ok"}
_ASCII |= {
    "–": "-",
    "…": "...",
    "×": "x",
    "·": "-",
    "−": "-",
    "’": "'",
    "±": "+/-",
    "σ": "sigma",
    "λ": "lambda",
    "√": "sqrt",
    "∂": "d",
    "ℓ": "l",
    "²": "2",
    "½": "1/2",
}


def clean(text: object) -> str:
    """One line without control, format or surrogate characters: none may steer a terminal or break XML.

    >>> clean("a\\x1b[31m\\nb\\u202e")
    'a [31m b'
    """
    marks = (" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in str(text))
    return " ".join("".join(c for c in marks if unicodedata.category(c) not in _HIDDEN).split())


def clean_lines(text: str) -> str:
    """The same for text that may have lines.

    >>> clean_lines("a\\x07\\n  b")
    'a\\n  b'
    """
    kept = (c for c in text if c == "\n" or unicodedata.category(c) not in ("Cc", "Zl", "Zp", *_HIDDEN))
    return "".join(kept)


def shorten(text: object, limit: int) -> str:
    """
    >>> shorten("worst-case", 6)
    'worst…'
    """
    line = clean(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def ascii_only(text: str) -> str:
    """For terminals that cannot show Greek letters.

    >>> ascii_only("μ ≥ 0.75, ε = ∞")
    'mu >= 0.75, eps = inf'
    """
    return "".join(_ASCII.get(c, c) for c in text).encode("ascii", "replace").decode()
