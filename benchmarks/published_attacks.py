"""Published figures of attacks on labels beside ours, on the published data or the nearest that can be had.

    python benchmarks/published_attacks.py [ROW …] [--again] [--choose] [--device cpu]

Without rows, all steps that have no result yet are run; a killed run goes on with the step it was at. `--again` forgets
the results of the named rows first. `--choose` prints what the settings of a row were chosen by, on other records and
seeds than the scored ones, and stores nothing. Results are written to `benchmarks/results/`, and rendered as
docs/published-figures.md. CIFAR-10, Fashion-MNIST, MNIST and Adult are read from the data folder (`vflpriv data fetch
cifar10`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from _published_page import rendered
from _published_rows import CANDIDATES, ROWS
from _published_runs import Results, Row, part, run, validated
from _support import arguments, one_line

__all__ = ["PAGE", "RESULTS", "main"]

RESULTS = Path(__file__).with_name("results")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "published-figures.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="row", help=f"of {', '.join(ROWS)}; all if none is given")
    parser.add_argument("--again", action="store_true", help="forget the stored results of these rows first")
    parser.add_argument("--choose", action="store_true", help="compare settings on other records and seeds")
    options = arguments(parser)
    for name in set(options.rows) - set(ROWS):
        parser.error(f"no row {name!r}: expected some of {', '.join(ROWS)}")
    if options.again and not options.rows:
        parser.error("--again: expected the rows to forget")
    torch.set_num_threads(1)
    for row in (ROWS[name] for name in options.rows or ROWS):
        if options.choose:
            _choose(row)
        else:
            _go_on(row, again=options.again)
    if not options.choose:
        _render()


def _go_on(row: Row, *, again: bool) -> None:
    """Run the steps of a row that have no result."""
    results = Results(RESULTS, row)
    if again:
        results.steps.clear()
    missing = results.missing
    data = part(row.data) if missing else None
    for place, step in enumerate(missing, start=1):
        assert data is not None
        print(f"{row.key}: step {place} of {len(missing)}, {step.name}", flush=True)
        results.save(step, run(row, step, data))
        _render()


def _render() -> None:
    """Write the page from all stored results."""
    PAGE.write_text(rendered({name: Results(RESULTS, row) for name, row in ROWS.items()}), encoding="utf-8")


def _choose(row: Row) -> None:
    """Print what each candidate reaches on records and seeds that are not scored."""
    for candidate in CANDIDATES.get(row.key, ()):
        print(f"{row.key}, {candidate.settings}: {validated(candidate, seeds=2)}", flush=True)


if __name__ == "__main__":
    one_line(main)
