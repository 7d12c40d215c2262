"""Pages of the documentation that are rendered from committed results: `python -m tools.docs_results` rewrites them.

`benchmarks/results/reproduce-*.json` are reports of `vflpriv reproduce` and make up `docs/reproductions.md`;
`frontier-*.json` are those of `vflpriv frontier` and make up `docs/frontier.md` with its pictures. `adaptive-*.json`
are those of a command in `docs/attack.md`. No figure is typed.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tools.docs_markdown import with_part
from vflpriv.common.formatting import count, percent
from vflpriv.experiments.frontier.plot import frontier_plot
from vflpriv.experiments.frontier.result import FrontierReport
from vflpriv.experiments.reproduce.plots import reproduction_plots
from vflpriv.experiments.reproduce.result import Reproduction
from vflpriv.render.document import Plot, describe
from vflpriv.render.markdown import escape, to_markdown
from vflpriv.render.plots.chart import alone
from vflpriv.report.attacks import AttackReport, Cell

__all__ = [
    "RESULTS",
    "adaptive_marvell",
    "frontier_page",
    "pictures",
    "reproductions_page",
    "sampled_batches",
    "stored",
    "with_curves",
    "write_pages",
]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_NOTHING = "No result is stored yet."
_CURVES = re.compile(r"<!-- curves: ([\w.-]+) -->")
_CURVES_OF = "reproduce-"
_REPRODUCTIONS = """\
# Papers' tables, trained again

`vflpriv reproduce NAME` trains every row of a published table or figure with the settings that the paper prints, and
puts what it reaches beside what is printed; without a name it lists what there is. `--quick` trains fewer rounds,
where it says so with fewer records, smaller batches or a smaller network, in minutes: its figures show the shape, are
not comparable with the paper's, and their tables say so.

*Difference* is ours minus the paper's, in points where the figure is a share. A difference of more than a point is
explained in the last column, or said to be *not explained*. Where a paper promises an ε, *claimed ε* is what it
prints and *accounted ε* what the ledger of the same training adds up to, for the unit and the view named beside it.
*Diverged* is a training whose outputs became infinite or no numbers, which counts as guessing the first class.

Where a paper ends trainings by validation accuracy, or does not say which round it reports, a profile may do so too
(`stop = "validation"`): what is reported is then the round that is best on validation records, and its section says so.
`--share 0.2` trains a fifth of each row's rounds where all of them take too long, which the command and the section
say.

Settings that a paper does not print are chosen among a few by the accuracy on validation records, which are training
records that are kept back. Each section says where its settings come from, and if they were chosen in another way.

`make results` writes this page from `benchmarks/results/reproduce-*.json`, and a test compares the two. The command
of a section repeats it.
"""
_FRONTIER = """\
# What to use at a given ε

`vflpriv frontier` answers one question: on this data set, for this unit, seen by this adversary, which of the engines
and defences whose budget can be accounted learns best at each ε? [Units](units.md) and [threat
models](threat-models.md) say what unit and adversary mean. It works for [your own data](configure.md#your-own-data)
too.

At each ε every candidate is given the noise that the accountant finds for it. Candidates and their settings are
compared by the accuracy on validation records, which are training records that are kept back; those that come nearest
to the best are trained with more seeds first (`finalists`, `final_seeds`), since one training may be lucky. The best is
then trained on all training records with several seeds, and only then are test records looked at. *Test accuracy* is
that mean with its interval, *accounted ε* what all releases of that training add up to. Each point is then audited with
worst-case canaries: *measured μ / accounted μ* near 1 says that the accounting is not only right but tight, and a
verdict `consistent` that the trials refute nothing. A candidate that cannot keep a budget says why.

What a worst-case canary shows depends on clip, noise and rounds, and not on how many records or features there are. So
audits train on few records, with noise calibrated for them, and a candidate may name settings that make them smaller
still (`audit = { … }`). The notes of a section name them. A few hundred trials are made without them, and have to show
the same distance between the worlds on the wire; otherwise all are. There are as many trials as it takes to measure
0.95 of the accounted μ on average (`tightness`), and `trials` at most.

Where only labels are to be protected, each is drawn once with noise, and everything after that is free: the server may
use all features, any model and as many passes as it likes (engine `noise-once`). Noised labels are then all that there
is to audit, and *measured ε / accounted ε* is of draws of them. PATE is not among the candidates: it trains hundreds of
teachers on disjoint parts, 250 of them on 240 images each where there are 60,000, and its budget depends on the data.

Where each record's features are to be hidden from the server that learns from them, as VAFL promises, every record
carries noise of its own. Noise on the embeddings of every round leaves chance: one in ten on MNIST. What is sent once
is noised once, and then averages over many records are left: the means of the classes, and little else. Test accuracy
is of records whose features reach the trained model without noise: what is protected are the records of the training.

Features of a record must not depend on other records, or a budget for records says nothing. Images have a fixed scale.
Columns of tables are standardised by the training records unless their limits are
[declared](configure.md#public-columns), and a section says so where they are not.

`make results` writes this page from `benchmarks/results/frontier-*.json`, and a test compares the two. The command of
a section repeats it.
"""

_SAMPLED_TITLE = "## Why send once has no sampled batches"
_SAMPLED = """\
Devices never learn which records a step of the server uses, so that amplification by sampling would be legitimate
there. It brings nothing that can be told from chance: with {share} of the records in each step, the best of three
settings reaches {sampled} on {count} validation records at ε = {budgets} (mnist, pixels as they are), and {whole}
with all records in every step. `{command}` repeats it.
"""

_MARVELL = """\
MARVELL stops norms ({norm}) and directions ({direction}, from {without} without it), as published; the adversary's own
features guess {blind}. Its noise is made for one batch: all 240 rounds together tell {together}, a leakage of
{leakage}, and the defence is marked. With `--set engine.rounds=60` they do not: {fewer}."""

R = TypeVar("R", Reproduction, FrontierReport)


def stored(kind: type[R], folder: Path = RESULTS) -> dict[str, R]:
    """The committed results of a kind, by the name of their file without its ending, in alphabetical order."""
    prefix = _CURVES_OF if kind is Reproduction else "frontier-"
    paths = sorted(folder.glob(f"{prefix}*.json"))
    return {path.stem: kind.model_validate_json(path.read_bytes()) for path in paths}


def reproductions_page(reports: Mapping[str, Reproduction]) -> str:
    """The page with every table, and places for the curves, which are drawn when the site is built."""
    sections = [
        _section(to_markdown(describe(report)).strip(), f"<!-- curves: {name} -->", _origin(name, report))
        for name, report in reports.items()
    ]
    return "\n".join([_REPRODUCTIONS, *_overview(reports), *(sections or [f"{_NOTHING}\n"])])


def frontier_page(reports: Mapping[str, FrontierReport]) -> str:
    """The page with every question that was asked, its answer and its picture."""
    sections = []
    for name, report in reports.items():
        heading, advice, tables = to_markdown(describe(report)).split("\n\n", 2)
        picture = f"![Accuracy against ε](pictures/{name}.svg)" if report.points else ""
        sections.append(_section(heading, advice, picture, tables.strip(), _origin(name, report)))
    sections = [*sections, sampled_batches()] if sections else [f"{_NOTHING}\n"]
    return "\n".join([_FRONTIER, *_overview(reports), *sections])


def sampled_batches(path: Path = RESULTS / "sampled-batches.json") -> str:
    """What steps over sampled batches would bring, in one sentence."""
    stored_result = json.loads(path.read_text("utf-8"))
    budgets, sampled, whole = (
        " / ".join(shown(row[name]) for row in stored_result["results"])
        for name, shown in (("epsilon", "{:g}".format), ("sampled", percent), ("all_records", percent))
    )
    sentence = _SAMPLED.format(
        share=percent(stored_result["share"]),
        budgets=budgets,
        sampled=sampled,
        whole=whole,
        count=count(stored_result["validation"]),
        command=stored_result["command"],
    )
    return f"{_SAMPLED_TITLE}\n\n{textwrap.fill(sentence, 120, break_on_hyphens=False)}\n"


def adaptive_marvell(results: Path = RESULTS) -> str:
    """What MARVELL leaves to attacks that know it, by the numbers of rounds in the names of the files."""
    short, long = (_marvell(results / f"adaptive-marvell-{rounds}.json") for rounds in (60, 240))
    without, norm, direction, together = (long[k] for k in ("bare", "label_norm", "label_direction", "label_rounds"))
    text = _MARVELL.format(
        norm=percent(norm.success),
        direction=percent(direction.success),
        without=percent(without.success),
        blind=percent(together.blind),
        together=percent(together.success),
        leakage=_leakage(together),
        fewer=_leakage(short["label_rounds"]),
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


def _marvell(path: Path) -> dict[str, Cell]:
    """The cells with MARVELL by their attack, and that of directions without it."""
    cells = AttackReport.model_validate_json(path.read_bytes()).cells
    bare = next(c for c in cells if c.defence == "none" and c.attack == "label_direction")
    return {"bare": bare, **{cell.attack: cell for cell in cells if cell.defence == "marvell"}}


def _leakage(cell: Cell) -> str:
    leaked, low, high = (f"{100 * value:.1f}" for value in (cell.leakage, cell.low, cell.high) if value is not None)
    return f"{leaked} points ({low} to {high})"


def _section(*blocks: str) -> str:
    return "\n\n".join(filter(None, blocks)) + "\n"


def _overview(reports: Mapping[str, Reproduction | FrontierReport]) -> Iterator[str]:
    """All sections in one sentence each."""
    yield from (f"- {escape(report.headline.rstrip('.'))}." for report in reports.values())
    if reports:
        yield ""


def _origin(name: str, report: Reproduction | FrontierReport) -> str:
    """Where the figures of a section come from."""
    versions = ", ".join(f"{part} {version}" for part, version in report.versions.items())
    seeds = f"seed {report.seed}" if report.seeds == 1 else f"seeds {report.seed} to {report.seed + report.seeds - 1}"
    machine, cores = report.hardware.get("machine", "an unknown machine"), report.hardware.get("cores", "?")
    return f"`{name}.json`: {escape(versions)}, on {escape(machine)} with {cores} cores, {seeds}."


def pictures(reports: Mapping[str, FrontierReport]) -> dict[str, str]:
    """The picture of each frontier by the name of its file, readable on any background."""
    drawn = {f"{name}.svg": frontier_plot(report) for name, report in reports.items()}
    return {name: alone(plot.svg) for name, plot in drawn.items() if plot is not None}


def with_curves(text: str, folder: Path, results: Path = RESULTS) -> str:
    """A page with its learning curves in their places; they are drawn into this folder, which lies beside the page."""

    def drawn(place: re.Match[str]) -> str:
        report = Reproduction.model_validate_json((results / f"{place[1]}.json").read_bytes())
        return "\n".join(
            _image(plot, folder / f"{place[1]}-{i}.svg") for i, plot in enumerate(reproduction_plots(report))
        )

    return _CURVES.sub(drawn, text)


def _image(plot: Plot, path: Path) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(alone(plot.svg), encoding="utf-8")
    return f'![{escape(plot.caption)}]({path.parent.name}/{path.name}){{width="48%"}}'


def write_pages(docs: Path = ROOT / "docs", results: Path = RESULTS) -> None:
    """Write both pages and the pictures; pictures of results that are no longer there go."""
    frontiers = stored(FrontierReport, results)
    (docs / "reproductions.md").write_text(reproductions_page(stored(Reproduction, results)), encoding="utf-8")
    (docs / "frontier.md").write_text(frontier_page(frontiers), encoding="utf-8")
    drawn = pictures(frontiers)
    for old in (docs / "pictures").glob("frontier-*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, svg in drawn.items():
        (docs / "pictures").mkdir(exist_ok=True)
        (docs / "pictures" / name).write_text(svg, encoding="utf-8")


def write_marvell(page: Path = ROOT / "docs" / "attack.md") -> None:
    """Write what MARVELL leaves between its marks."""
    page.write_text(with_part(page.read_text("utf-8"), "marvell", adaptive_marvell()), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
    write_marvell()
