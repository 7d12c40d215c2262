"""Text and numbers for output: the same value looks the same in every format, and no name acts on a terminal."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = [
    "NOTHING",
    "TOO_FEW",
    "ascii_only",
    "clean",
    "clean_lines",
    "confidence",
    "count",
    "delta",
    "epsilon",
    "exact",
    "flat",
    "interval",
    "mu",
    "p_value",
    "percent",
    "power",
    "ratio",
    "sampled",
    "scientific",
    "seeds_interval",
    "shorten",
    "size",
    "too_wide",
    "value",
]

_HIDDEN = ("Cf", "Cs", "Cn", "Co")
"""Unicode categories of characters without a glyph: text direction, surrogates, private use, unassigned."""

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
    """One line without control, format or surrogate characters, which could act on a terminal or make XML invalid.

    >>> clean("a\\x1b[31m\\nb\\u202e")
    'a [31m b'
    """
    line = str(text)
    if line.isprintable():  # nearly always, and many times faster than one category per character
        return " ".join(line.split())
    marks = (" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in line)
    return " ".join("".join(c for c in marks if unicodedata.category(c) not in _HIDDEN).split())


def clean_lines(text: str) -> str:
    """The same for text of several lines.

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
    """The text for terminals that cannot show Greek letters.

    >>> ascii_only("μ ≥ 0.75, ε = ∞")
    'mu >= 0.75, eps = inf'
    """
    return "".join(_ASCII.get(c, c) for c in text).encode("ascii", "replace").decode()


NOTHING = "–"
"""Printed where there is no number."""


def scientific(number: float) -> str:
    """Three significant digits and a short exponent.

    >>> scientific(0.001), scientific(39_512_345.0)
    ('1e-3', '3.95e7')
    """
    mantissa, exponent = f"{number:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _number(number: float | None, decimals: int) -> str:
    """Fixed decimals for ordinary magnitudes, three significant digits for very small and very large ones."""
    if number is None or math.isnan(number):
        return NOTHING
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    magnitude = abs(number)
    if magnitude >= 999_500 or 0 < magnitude < 0.5 * 10**-decimals:
        return scientific(number)
    if magnitude >= 999.5:
        return f"{float(f'{number:.3g}'):,.0f}"
    if magnitude == 0:
        return "0"
    fewer = 0 if magnitude < 10 else 1 if magnitude < 100 else 2
    return f"{number:.{max(1, decimals - fewer)}f}"


def epsilon(number: float | None) -> str:
    """
    >>> [epsilon(e) for e in (0.0, 1.0, 2.8961, 23.234, 106.58, 39_512.3, 4.1e9, math.inf, None)]
    ['0', '1.00', '2.90', '23.2', '106.6', '39,500', '4.1e9', '∞', '–']
    """
    return _number(number, 2)


def mu(number: float | None) -> str:
    """
    >>> [mu(m) for m in (0.0, 0.388401, 11.89, 279.0, math.inf, None)]
    ['0', '0.388', '11.89', '279.0', '∞', '–']
    """
    return _number(number, 3)


def delta(number: float) -> str:
    """
    >>> [delta(d) for d in (1e-3, 1.5e-5, 0.05, 0.0)]
    ['1e-3', '1.5e-5', '0.05', '0']
    """
    return scientific(number) if 0 < number < 0.01 else f"{number:g}"


def percent(rate: float | None) -> str:
    """
    >>> percent(0.1164), percent(1.0), percent(None)
    ('11.6 %', '100.0 %', '–')
    """
    return NOTHING if rate is None or math.isnan(rate) else f"{100 * rate:.1f} %"


def confidence(level: float) -> str:
    """
    >>> confidence(0.95), confidence(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:g} %"


def interval(low: float | None, high: float | None) -> str:
    """
    >>> interval(0.8691, 0.8772), interval(None, None)
    ('86.9 – 87.7 %', '–')
    """
    return NOTHING if low is None or high is None else f"{100 * low:.1f} – {percent(high)}"


TOO_FEW = "too few seeds"
"""Printed in place of an interval over seeds that is too wide to say anything."""
_WIDEST = 0.5
"""The widest interval of a rate, R² or AUC that is printed; half of their range."""


def too_wide(low: float, high: float) -> bool:
    """Whether an interval over seeds says nothing: -0.238 to 1.000 holds almost every value there is.

    >>> too_wide(-0.238, 1.0), too_wide(0.42, 0.63)
    (True, False)
    """
    return high - low > _WIDEST


def seeds_interval(low: float | None, high: float | None) -> str:
    """An interval over seeds.

    >>> seeds_interval(0.8691, 0.8772), seeds_interval(-0.238, 1.0), seeds_interval(None, None)
    ('86.9 – 87.7 %', 'too few seeds', '–')
    """
    return TOO_FEW if low is not None and high is not None and too_wide(low, high) else interval(low, high)


def ratio(part: float | None, whole: float | None) -> str:
    """`part` of `whole`, in whole percent.

    >>> ratio(0.75, 0.9386), ratio(0.75, math.inf), ratio(0.75, None)
    ('80 %', '–', '–')
    """
    if part is None or whole is None or whole == 0 or not math.isfinite(whole):
        return NOTHING
    return f"{100 * part / whole:.0f} %"


def p_value(number: float | None) -> str:
    """
    >>> [p_value(p) for p in (1.0, 0.0312, 3.14e-9, 0.0)]
    ['1.000', '0.031', '3.1e-9', '<1e-300']
    """
    if number is None or math.isnan(number):
        return NOTHING
    if number < 1e-300:
        return "<1e-300"
    if number >= 0.0005:
        return f"{number:.3f}"
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def size(number: float) -> str:
    """Bytes in decimal units, as in papers.

    >>> [size(b) for b in (0, 999, 1_000, 576_000_000, 1.2e13)]
    ['0 B', '999 B', '1.0 kB', '576.0 MB', '12.0 TB']
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def count(number: int | None) -> str:
    """
    >>> count(1437), count(None)
    ('1,437', '–')
    """
    return NOTHING if number is None else f"{number:,}"


def sampled(number: int, population: int | None) -> str:
    """
    >>> sampled(1437, None), sampled(3960, 59960)
    ('1,437', '3,960 of 59,960')
    """
    return count(number) if population is None else f"{count(number)} of {count(population)}"


def exact(number: float | None) -> str:
    """Enough digits to compare two values that look the same when rounded.

    >>> exact(0.38840089), exact(math.inf)
    ('0.388401', '∞')
    """
    return _number(number, 2) if number is None or not math.isfinite(number) else f"{number:.6g}"


def power(exponent: float) -> str:
    """A power of ten, short enough for an axis.

    >>> power(-2), power(3), power(5)
    ('0.01', '1000', '1e5')
    """
    return scientific(10.0**exponent) if abs(exponent) > 3 else f"{10.0**exponent:g}"


def value(item: Any) -> str:
    """The value of a setting, as a person would write it.

    >>> value(True), value(None), value(0.0005), value([64, 32]), value(60000), value(())
    ('yes', '–', '5e-4', '64, 32', '60,000', 'none')
    """
    if isinstance(item, bool):
        return "yes" if item else "no"
    if item is None:
        return NOTHING
    if isinstance(item, int):
        return count(item)
    if isinstance(item, float):
        return exact(item) if item == 0 or abs(item) >= 0.01 else scientific(item)
    if isinstance(item, list | tuple):
        return ", ".join(value(part) for part in item) or "none"
    return clean(item)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names.

    >>> dict(flat({"model": {"width": 128}, "clip": "paper"}))
    {'model.width': '128', 'clip': 'paper'}
    """
    for key, item in settings.items():
        name = f"{prefix}{clean(key)}"
        if isinstance(item, Mapping):
            yield from flat(item, f"{name}.")
        else:
            yield name, value(item)
