"""A comparison of two reports, in a terminal and as Markdown."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.render.console import Writer
from vflpriv.render.markdown import escape, table
from vflpriv.report.compare import Comparison

__all__ = ["compare_markdown", "print_comparison"]


def print_comparison(comparison: Comparison, console: Console) -> None:
    """One line per change, then what only one report has, then the outcome."""
    writer = Writer(console)
    rows = []
    for change in comparison.changes:
        mark = Text("worse", style="bold red") if change.regression else Text("")
        names = (f.shorten(change.system, 30), change.name, f.clean(change.where))
        rows.append((*names, *change.values, mark))
    if rows:
        writer.table("Changes", "system;what;of;>before;>now;", rows)
    writer.list([(f.clean(name), note) for name, note in _absent(comparison)])
    writer.line(Text(comparison.headline, style="bold red" if comparison.regressions else "bold"))


def compare_markdown(comparison: Comparison) -> str:
    """The same for a pull request or a step summary."""
    blocks = ["# Compared with the baseline", f"**{escape(comparison.headline)}**"]
    if comparison.changes:
        rows = []
        for change in comparison.changes:
            names = (escape(change.system), escape(change.name), escape(change.where))
            mark = "❌ **worse**" if change.regression else ""
            rows.append((mark, *names, *(escape(value) for value in change.values)))
        blocks.append(table(("", "System", "What", "Of", "Before", "Now"), "::::--", rows))
    blocks += ["\n".join(f"- {escape(name)}: {note}" for name, note in _absent(comparison))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _absent(comparison: Comparison) -> list[tuple[str, str]]:
    gone = [(name, "not compared: only the first report has it") for name in comparison.only_old]
    return gone + [(name, "not compared: only the second report has it") for name in comparison.only_new]
