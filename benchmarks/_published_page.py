"""The page of the documentation that shows published figures beside ours, rendered from the stored results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from _published_runs import Line, Results

from vflpriv.audits.statistics.significance import mean_interval

__all__ = ["rendered"]

_CONFIDENCE = 0.95
_INTRODUCTION = """\
# Published figures

Attacks on labels with the figures of their papers beside ours, on the published data where they can be had, else on the
nearest that can. The adversary is device 0. *Without the protocol* is what the same adversary guesses from its own
features and the labels it was told: published figures are not held against it, ours are. Shares are in %, of training
records whose label was not told; an AUC is of all of them, with each attack's score over all rounds. Intervals are
Student's at 95 % over the seeds; the difference is ours minus the paper's.

Settings were chosen on other records or other seeds than those that are scored, or taken from the paper; each section
says how, and `--choose` repeats it where there was a choice. A paper's *statement* is given where it shows no number
that was verified here.

`python benchmarks/published_attacks.py` writes this page from the results in `benchmarks/results/`; a test compares the
two.
"""


def rendered(results: Mapping[str, Results]) -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *(line for of_row in results.values() for line in _section(of_row))])


def _section(results: Results) -> Iterator[str]:
    row = results.row
    yield f"## {row.title}"
    yield ""
    yield f"{row.source}."
    yield ""
    yield f"- Published: {row.setting}."
    yield f"- Ours: {row.ours}."
    yield f"- Settings: {row.chosen}."
    yield f"- Differences: {row.differs}."
    yield ""
    yield "| | paper | ours | difference | without the protocol | commonest label |"
    yield "|---|---:|---:|---:|---:|---:|"
    if row.main is not None or results.accuracies():
        yield _cells("accuracy of the joint model", row.main, "", results.accuracies())
    for line in row.lines:
        name = f"[`{line.attack}`](attacks/{line.attack}.md){', AUC' if line.measure == 'auc' else ''}"
        yield _cells(name, line.paper, line.says, results.values(line.attack, line.measure), *_baselines(results, line))
    yield ""
    yield from _origin(results)


def _baselines(results: Results, line: Line) -> list[Sequence[float]]:
    """The success of the adversary without the protocol, and of the commonest label."""
    return [results.values(line.attack, name) for name in ("blind", "chance")] if line.measure == "success" else []


def _cells(name: str, paper: float | None, says: str, ours: Sequence[float], *baselines: Sequence[float]) -> str:
    published = _share(paper) if paper is not None else says or "none"
    if not ours:
        return f"| {name} | {published} | not measured yet | | | |"
    mean = sum(ours) / len(ours)
    difference = "" if paper is None else f"{100 * (mean - paper):+z.1f}"
    others = [_share(sum(values) / len(values)) if values else "" for values in baselines] or ["", ""]
    return f"| {name} | {published} | {_interval(ours)} | {difference} | {' | '.join(others)} |"


def _interval(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{_share(values[0])} (one seed)"
    mean, low, high = mean_interval(values, _CONFIDENCE, (0.0, 1.0))
    return f"{_share(mean)} [{_share(low)}, {_share(high)}]"


def _share(value: float) -> str:
    return f"{100 * value:.1f}"


def _origin(results: Results) -> Iterator[str]:
    """The command, and what the stored results say of the machine."""
    facts = results.facts
    yield f"Repeated by `python benchmarks/published_attacks.py {results.row.key} --again`."
    if facts is not None:
        versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        seconds = sum(sum(step["cpu_seconds"].values()) for step in results.steps.values())
        machine, cores = facts["hardware"]["machine"], facts["hardware"]["cores"]
        yield f"Measured with {versions} on {machine}, {cores} cores, one thread, in {seconds} s of CPU time,"
        yield "those before a training was killed not counted."
    yield ""
