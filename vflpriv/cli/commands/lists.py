"""What the listing commands print."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vflpriv.common.formatting import clean
from vflpriv.common.registry import available, broken
from vflpriv.data.catalogue import all_datasets, broken_datasets
from vflpriv.render.console import say

__all__ = ["print_datasets", "print_registered"]


def print_registered(kind: str) -> None:
    """The registered items of a kind, a line each."""
    _print((name, item.summary) for name, item in available(kind).items())
    for name, why in broken(kind).items():
        say(Console(stderr=True), f"{kind} {name}: {why}")


def print_datasets() -> None:
    """The data sets, a line each."""
    _print((name, dataset.summary) for name, dataset in all_datasets().items())
    for name, why in broken_datasets().items():
        say(Console(stderr=True), f"data set {name}: {why}")


def _print(rows: object) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, summary in rows:  # type: ignore[attr-defined]
        table.add_row(*(Text(clean(words)) for words in (name, summary)))
    Console().print(table)
