"""Sentences of the papers and what this program finds of each: `python -m tools.docs_sentences` writes the page.

`tools/sentences.toml` has the sentences in our words, what would confirm each, and where its figures come from. Figures
and verdicts of docs/papers-verdicts.md are computed from committed results and from budgets; none is typed.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from tools.docs_markdown import PAPERS, table
from tools.docs_results import RESULTS
from vflpriv import api
from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.experiments.reproduce.result import MEASURES, SHARES, Figure, Reproduction, TrainedLine
from vflpriv.report.rows import USEFUL

__all__ = ["SENTENCES", "Found", "Sentence", "find", "sentences", "verdicts_page"]

ROOT = Path(__file__).resolve().parents[1]
SENTENCES = ROOT / "tools" / "sentences.toml"
_POINT = 1.0
"""Shares of one training each that are closer, in points, are not told apart."""
_TENTH = 0.1
"""The same for amounts, as a share of the larger one."""
_UNITS = {"seconds": "simulated seconds"}
CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted", "undecided"
NOT_COMPARABLE, NOT_RUN = "not comparable", "not run"
_PAGE = """\
# Sentences of the papers

Papers say more than their tables print: that one method beats another, that a setting does not matter, that a noise
suffices. This page has such sentences in our words, what would confirm each, and what this program finds.

- *confirmed*, *contradicted*: by the figures beside it. Means of several trainings differ if their intervals at 95 % do
  not overlap, single trainings if more than a point, or a tenth of an amount, lies between them.
- *undecided*: the figures are closer than that.
- *not comparable*: what was trained is not what the sentence is about (fewer rounds, other settings, other data), for
  the reason that stands there. *Not run*: there is no figure, for the reason that is given.

A sentence about ε is contradicted if the mechanism reaches more in its worst case, as the accountants' lower bound
says, in the reading that is kindest to the paper. Settings, seeds and machines of the trainings stand in [the
tables](reproductions.md), those of attacks in [published figures](published-figures.md). `make results` writes this
page from `tools/sentences.toml` and the committed results, and a test compares the two.
"""
_HEADER = ("where", "the paper says", "confirmed by", "we find", "verdict", "shown by")


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One sentence of a paper, and how it is held against figures: `check` names one of `_CHECKS`."""

    paper: str
    place: str
    says: str
    confirms: str
    check: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was found of a sentence: the figures as text, the verdict, and the command or the reason."""

    figures: str
    verdict: str
    shown_by: str


def sentences(path: Path = SENTENCES) -> list[Sentence]:
    """All sentences of the file; one whose fields do not fit is refused with its words."""
    rows = tomllib.loads(path.read_text("utf-8"))["sentence"]
    return [_sentence(dict(row)) for row in rows]


def _sentence(row: dict[str, Any]) -> Sentence:
    checks = [name for name in _CHECKS if name in row]
    if len(checks) != 1:
        raise ValueError(f"Expected one of {', '.join(_CHECKS)} for {row.get('says')!r}, got {checks}.")
    texts = {name: row.pop(name) for name in ("paper", "place", "says", "confirms")}
    return Sentence(**texts, check=checks[0], settings=row)


def find(sentence: Sentence, results: Path = RESULTS) -> Found:
    """The figures of a sentence, and its verdict; none where a reason stands why they do not decide."""
    outcome = _CHECKS[sentence.check](sentence.settings, results)
    reason = sentence.settings.get("not_comparable")
    if reason is None:
        return outcome
    return replace(outcome, verdict=NOT_COMPARABLE, shown_by=f"{outcome.shown_by}: {reason}")


def verdicts_page(path: Path = SENTENCES, results: Path = RESULTS) -> str:
    """The page: an overview, then a table for each paper."""
    outcomes = [(sentence, find(sentence, results)) for sentence in sentences(path)]
    parts = [_PAGE, _overview(outcomes)]
    for paper, anchor in PAPERS.items():
        rows = [
            (s.place, s.says, s.confirms, outcome.figures, f"**{outcome.verdict}**", outcome.shown_by)
            for s, outcome in outcomes
            if s.paper == paper
        ]
        if rows:
            parts.append(f"## {paper}\n\n[The paper](papers.md#{anchor}).\n\n{table(_HEADER, rows)}")
    return "\n".join(parts)


def _overview(outcomes: Sequence[tuple[Sentence, Found]]) -> str:
    order = (CONFIRMED, CONTRADICTED, UNDECIDED, NOT_COMPARABLE, NOT_RUN)
    counts = {paper: Counter(o.verdict for s, o in outcomes if s.paper == paper) for paper in PAPERS}
    rows = [(paper, *(count[verdict] for verdict in order)) for paper, count in counts.items() if count]
    return table(("paper", *order), rows)


# What is compared.


@cache
def _reproduction(path: Path) -> Reproduction:
    return Reproduction.model_validate_json(path.read_bytes())


def _lines(settings: Mapping[str, Any], results: Path) -> tuple[Reproduction, Callable[[str], TrainedLine]]:
    report = _reproduction(results / f"reproduce-{settings['result']}.json")
    by_key = {line.key: line for line in report.lines}
    return report, by_key.__getitem__


def _figure(line: TrainedLine, measure: str) -> Figure:
    return next(figure for figure in line.figures if figure.measure == measure)


def _compared(a: Figure, b: Figure) -> int:
    """1 where `a` is the larger, -1 where it is the smaller, 0 where they are too close to tell; never reached is more
    than any amount."""
    if a.mean is None or b.mean is None:
        return (a.mean is None) - (b.mean is None)
    if min(len(a.values), len(b.values)) > 1 and None not in (a.low, a.high, b.low, b.high):
        return int(_known(a.low) > _known(b.high)) - int(_known(a.high) < _known(b.low))
    enough = _POINT if a.measure in SHARES else _TENTH * max(a.mean, b.mean)
    return int(a.mean - b.mean > enough) - int(b.mean - a.mean > enough)


def _known(value: float | None) -> float:
    assert value is not None
    return value


def _verdict(signs: Sequence[int]) -> str:
    """Every comparison has to agree; one that goes the other way contradicts."""
    return CONTRADICTED if -1 in signs else CONFIRMED if all(sign == 1 for sign in signs) else UNDECIDED


def _shown(figure: Figure) -> str:
    if figure.mean is None:
        return "not reached"
    return f"{figure.mean:.1f}" if figure.measure in SHARES else f"{figure.mean:,.0f}"


def _unit(measure: str) -> str:
    return " %" if measure in SHARES else f" {_UNITS.get(measure, MEASURES[measure].partition(' ')[0])}"


def _trained(report: Reproduction, verdict: str, figures: str) -> Found:
    """A quick look has figures, and no verdict on what the paper says of whole trainings."""
    seeds = "one seed" if report.seeds == 1 else f"{report.seeds} seeds"
    if report.shortened:
        return Found(figures=figures, verdict=NOT_COMPARABLE, shown_by=f"`{report.command}`: {report.shortened}")
    return Found(figures=f"{figures} ({seeds})", verdict=verdict, shown_by=f"`{report.command}`")


def _order(settings: Mapping[str, Any], results: Path, sign: int, name: str) -> Found:
    report, line = _lines(settings, results)
    measure = settings.get("measure", "accuracy")
    ours, others = ([_figure(line(key), measure) for key in keys] for keys in settings[name])
    verdict = _verdict([sign * _compared(a, b) for a in ours for b in others])
    left, right = (", ".join(map(_shown, group)) for group in (ours, others))
    return _trained(report, verdict, f"{left} against {right}{_unit(measure)}")


def _higher(settings: Mapping[str, Any], results: Path) -> Found:
    return _order(settings, results, 1, "higher")


def _lower(settings: Mapping[str, Any], results: Path) -> Found:
    return _order(settings, results, -1, "lower")


def _near(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether rows lie within so many points of one another."""
    report, line = _lines(settings, results)
    figures = [_figure(line(key), settings.get("measure", "accuracy")) for key in settings["near"]]
    means = [_known(figure.mean) for figure in figures]
    verdict = CONFIRMED if max(means) - min(means) <= settings["within"] else CONTRADICTED
    if verdict == CONTRADICTED and report.seeds > 1:
        least = max(_known(figure.low) for figure in figures) - min(_known(figure.high) for figure in figures)
        verdict = CONTRADICTED if least > settings["within"] else UNDECIDED
    return _trained(report, verdict, f"{', '.join(map(_shown, figures))}{_unit(figures[0].measure)}")


def _keeps(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether rows are at most so many points below others; above them is no objection."""
    report, line = _lines(settings, results)
    ours, others = (
        [_figure(line(key), settings.get("measure", "accuracy")) for key in keys] for keys in settings["keeps"]
    )
    signs = [_kept(a, b, settings["within"], several=report.seeds > 1) for a in ours for b in others]
    left, right = (", ".join(map(_shown, group)) for group in (ours, others))
    return _trained(report, _verdict(signs), f"{left} against {right}{_unit(ours[0].measure)}")


def _kept(a: Figure, b: Figure, within: float, *, several: bool) -> int:
    if _known(a.mean) >= _known(b.mean) - within:
        return 1
    return 0 if several and _known(a.high) >= _known(b.low) - within else -1


def _least(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether rows reach a value."""
    report, line = _lines(settings, results)
    figures = [_figure(line(key), settings.get("measure", "accuracy")) for key in settings["least"]]
    several = report.seeds > 1
    below = [_known(figure.high if several else figure.mean) < settings["value"] for figure in figures]
    reached = [_known(figure.low if several else figure.mean) >= settings["value"] for figure in figures]
    verdict = CONTRADICTED if any(below) else CONFIRMED if all(reached) else UNDECIDED
    return _trained(report, verdict, f"{', '.join(map(_shown, figures))}{_unit(figures[0].measure)}")


def _sooner(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether one row's accuracy reaches a share in fewer rounds than others' do."""
    report, line = _lines(settings, results)
    ours, others = ([_reached(line(key), settings["share"]) for key in keys] for keys in settings["sooner"])
    signs = [int(max(a) < min(b)) - int(min(a) > max(b)) for a in ours for b in others]
    left, right = (", ".join(map(_rounds, group)) for group in (ours, others))
    percent = f"{100 * settings['share']:g} %"
    return _trained(report, _verdict(signs), f"{percent} after {left} against {right} rounds")


def _reached(line: TrainedLine, share: float) -> list[float]:
    """The first round of each training at which its curve is at least so high; infinite where it never is."""
    return [
        next((r for r, value in zip(curve.rounds, curve.accuracy, strict=True) if value >= share), float("inf"))
        for curve in line.curves
    ]


def _rounds(rounds: Sequence[float]) -> str:
    average = mean(rounds)
    return "infinitely many" if average == float("inf") else f"{average:,.0f}"


def _printed(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether every printed share of a table is reached within a point."""
    report = _reproduction(results / f"reproduce-{settings['printed']}.json")
    figures = [figure for line in report.lines for figure in line.figures if figure.paper and figure.measure in SHARES]
    near = sum(not figure.large for figure in figures)
    verdict = CONFIRMED if near == len(figures) else CONTRADICTED if near == 0 else UNDECIDED
    return _trained(report, verdict, f"{near} of {len(figures)} within a point")


def _claim(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether the accountants find no more than is claimed, in the paper's own reading where there is one. More than
    their lower bound, which the mechanism reaches in its worst case, contradicts; what lies between is not decided."""
    named = settings["claim"]
    config, system = named.get("config"), named["system"]
    (audited,) = api.account(config, only=[system]).systems
    claim = next(claim for claim in audited.claims if claim.key == named["key"])
    budget = claim.paper_reading or claim.accounted
    kind = " in the paper's reading" if claim.paper_reading else ""
    upper = budget.epsilon_upper
    useful = "" if upper <= USEFUL else " (no useful bound)"
    figures = f"ε = {f.epsilon(claim.epsilon)} claimed, {f.epsilon(upper)}{useful} accounted{kind}, {Unit(claim.unit)}"
    command = " ".join(filter(None, ("vflpriv account", config, f"--only {system}")))
    kept, possible = (bound <= claim.epsilon * (1 + 1e-6) for bound in (upper, budget.epsilon_lower))
    verdict = CONFIRMED if kept else UNDECIDED if possible else CONTRADICTED
    return Found(figures=figures, verdict=verdict, shown_by=f"`{command}`")


def _attack(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether an attack's success is the printed one, within a point."""
    run = json.loads((results / f"attacks-{settings['result']}.json").read_text("utf-8"))
    attempts = [step["attacks"] for step in run["steps"].values() if settings["attack"] in step["attacks"]]
    success = [100 * value for attacks in attempts for value in attacks[settings["attack"]]["success"]]
    away = abs(mean(success) - settings["value"])
    return Found(
        figures=f"{mean(success):.1f} % ({len(success)} seeds), printed {settings['value']:g} %",
        verdict=CONFIRMED if away <= _POINT else CONTRADICTED,
        shown_by=f"`{run['command']}`",
    )


def _memory(settings: Mapping[str, Any], results: Path) -> Found:
    """Whether some steps need at most twice their model, and others more than that."""
    stored = json.loads((results / "memory.json").read_text("utf-8"))
    lean, large = ([stored["ratios"][settings["model"]][step] for step in steps] for steps in settings["memory"])
    about = [int(ratio <= settings["about"]) or -1 for ratio in lean]
    more = [int(ratio > settings["more"]) or -1 for ratio in large]
    left, right = (", ".join(f"{ratio:.2f}" for ratio in ratios) for ratios in (lean, large))
    figures = f"{left} against {right} times the model ({settings['model']})"
    return Found(figures=figures, verdict=_verdict([*about, *more]), shown_by=f"`{stored['command']}`")


def _rows(settings: Mapping[str, Any], results: Path) -> Found:
    """Figures that decide nothing by themselves."""
    report, line = _lines(settings, results)
    figures = [_figure(line(key), settings.get("measure", "accuracy")) for key in settings["rows"]]
    return _trained(report, NOT_COMPARABLE, f"{', '.join(map(_shown, figures))}{_unit(figures[0].measure)}")


def _not_run(settings: Mapping[str, Any], results: Path) -> Found:
    return Found(figures="–", verdict=NOT_RUN, shown_by=settings["not_run"])


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], Path], Found]] = {
    "higher": _higher,
    "lower": _lower,
    "near": _near,
    "keeps": _keeps,
    "least": _least,
    "memory": _memory,
    "sooner": _sooner,
    "printed": _printed,
    "claim": _claim,
    "attack": _attack,
    "rows": _rows,
    "not_run": _not_run,
}


if __name__ == "__main__":
    (ROOT / "docs" / "papers-verdicts.md").write_text(verdicts_page(), encoding="utf-8")
