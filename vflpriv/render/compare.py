"""A comparison of two reports, in a terminal and as Markdown."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.render.console import Writer
from vflpriv.render.markdown import escape, paragraph, table
from vflpriv.report.compare import Comparison

__all__ = ["compare_markdown", "print_comparison"]

_STYLES = {"worse": "bold red", "better": "green", "": ""}
_MARKS = {"worse": "❌ **worse**", "better": "✅ better", "": ""}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """What is worse, what is better and what else differs, then what only one report has, then the outcome."""
    writer = Writer(console)
    rows = []
    for change in comparison.joined:
        mark = Text(change.direction, style=_STYLES[change.direction])
        what = f"{change.name} of {change.where}" if change.where else change.name
        rows.append((mark, f.shorten(change.system, 30), f.clean(what), *change.values))
    if rows:
        writer.table("Changes", ";system;what;>before;>now", rows)
    writer.list([(f.clean(name), note) for name, note in _absent(comparison)])
    writer.line(Text(comparison.headline, style="bold red" if comparison.regressions else "bold"))


def compare_markdown(comparison: Comparison) -> str:
    """The same for a pull request or a step summary."""
    blocks = ["# Compared with the baseline", f"**{escape(comparison.headline)}**"]
    if comparison.changes:
        rows = []
        for change in comparison.joined:
            names = (escape(change.system), escape(change.name), paragraph(change.where))
            rows.append((_MARKS[change.direction], *names, *(escape(value) for value in change.values)))
        blocks.append(table(("", "System", "What", "Of", "Before", "Now"), "::::--", rows))
    blocks += ["\n".join(f"- {escape(name)}: {note}" for name, note in _absent(comparison))]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _absent(comparison: Comparison) -> list[tuple[str, str]]:
    gone = [(name, "not compared: only the first report has it") for name in comparison.only_old]
    return gone + [(name, "not compared: only the second report has it") for name in comparison.only_new]
