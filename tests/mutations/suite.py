"""All mutations and controls, what the last run of all of them found, and the page of the documentation about it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutations import (
    clip,
    controls,
    labels,
    ledger,
    missed,
    noise,
    participation,
    plugins,
    processed,
    recorded,
    recorded_processed,
    state,
    wire,
)
from tests.mutations.case import Mutation, Outcome
from tests.mutations.flow.table import read_traced, section

__all__ = [
    "CONTROLS",
    "MISSED",
    "MUTATIONS",
    "PAGE",
    "RESULTS",
    "SYSTEMS",
    "Result",
    "audited",
    "read_results",
    "rendered",
    "write_results",
]

_FAMILIES = (wire, clip, noise, processed, state, participation, labels, ledger, recorded, recorded_processed, plugins)
MUTATIONS: tuple[Mutation, ...] = (
    *(mutation for module in _FAMILIES for mutation in module.MUTATIONS),
    *missed.UNEXPLAINED,
)
CONTROLS: tuple[Mutation, ...] = (
    *controls.CONTROLS,
    *processed.CONTROLS,
    *recorded.CONTROLS,
    *recorded_processed.CONTROLS,
    *plugins.CONTROLS,
)
MISSED = missed.MISSED
"""Broken systems that are known not to be caught."""
SYSTEMS: tuple[Mutation, ...] = (*MUTATIONS, *MISSED, *CONTROLS)
RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "mutations.md"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What audits with several seeds said of one system."""

    name: str
    family: str
    seeds: int
    caught: int
    """In how many of them it was caught; of a control, in how many it was called violated."""
    exit_code: int
    """With the first seed, as is what follows."""
    caught_by: tuple[str, ...]
    trials: int
    verdicts: tuple[str, ...]

    @classmethod
    def of(cls, mutation: Mutation, outcomes: list[Outcome]) -> Result:
        first = outcomes[0]
        counted = [o.exit_code == 1 if mutation.family == "control" else mutation.caught(o) for o in outcomes]
        return cls(
            name=mutation.name,
            family=mutation.family,
            seeds=len(outcomes),
            caught=sum(counted),
            exit_code=first.exit_code,
            caught_by=first.caught_by,
            trials=first.trials,
            verdicts=first.verdicts,
        )


def audited(mutation: Mutation, seed: int, trials: int | None = None) -> Outcome:
    """What the audit says of it."""
    with tempfile.TemporaryDirectory() as folder:
        return mutation.case.outcome(Path(folder), seed=seed, trials=trials)


def read_results() -> dict[str, Result]:
    """The results of the last run, by name."""
    rows = json.loads(RESULTS.read_text("utf-8"))
    lists = ("caught_by", "verdicts")
    return {row["name"]: Result(**{k: tuple(v) if k in lists else v for k, v in row.items()}) for row in rows}


def write_results(results: Mapping[str, Result]) -> None:
    """Keep the results of all systems that there are, in the order of the suite, and render the page."""
    rows = [asdict(results[m.name]) for m in SYSTEMS if m.name in results]
    text = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    PAGE.write_text(rendered(results), encoding="utf-8")


_INTRODUCTION = """\
# Broken systems, and what catches them

The tests hold systems that are broken on purpose, each in one way, and sound ones beside them. Every one is audited as
a user's system is. A broken system is caught if the audit calls a claim violated (exit code 1). Of a few, whose fault
is in what they declare or shows to no statistics, it is enough that the audit does not support the claim, or calls it
unmeasured (exit code 3). A sound system, whose claims are exactly what holds, may never be called violated.

The change of μ is what follows from the fault on paper; it was not measured.

This page is written by `make mutations`, which audits all of them; a test compares it with the results.
"""


def rendered(results: Mapping[str, Result]) -> str:
    """The page of the documentation."""
    broken = [(m, results[m.name]) for m in MUTATIONS if m.name in results]
    sound = [(m, results[m.name]) for m in CONTROLS if m.name in results]
    caught = sum(r.caught == r.seeds for _, r in broken)
    accused, runs = sum(r.caught for _, r in sound), sum(r.seeds for _, r in sound)
    lines = [
        _INTRODUCTION,
        f"**{caught} of {len(broken)} broken systems are caught. {accused} of {runs} audits of {len(sound)} sound "
        "systems accuse one.**",
        "",
        *_missed(broken),
        "## Broken systems",
        "",
        "*Trials* are trainings in each of the two worlds; several audits need none.",
        *_tables(broken),
        *_known(results),
        "## Sound systems",
        "",
        "| system | what it is | audits | called violated |",
        "|---|---|---:|---:|",
        *(f"| `{m.name}` | {m.fault} | {r.seeds} | {r.caught} |" for m, r in sound),
        "",
        *section(read_traced()),
    ]
    return "\n".join(lines) + "\n"


def _missed(broken: list[tuple[Mutation, Result]]) -> Iterator[str]:
    missed = [(m, r) for m, r in broken if r.caught < r.seeds]
    if not missed:
        return
    yield "## Not caught"
    yield ""
    yield from (f"- `{m.name}`: {m.fault} (expected of: {m.expected})." for m, _ in missed)
    yield ""


def _known(results: Mapping[str, Result]) -> Iterator[str]:
    yield "## Known to be missed"
    yield ""
    yield "No audit sees these. [Limits](limits.md) says of each why not, and what can be done instead."
    yield ""
    yield "| system | what is broken | change of μ | verdicts | trials | exit code |"
    yield "|---|---|---|---|---:|---:|"
    for mutation, result in ((m, results[m.name]) for m in MISSED if m.name in results):
        verdicts = ", ".join(dict.fromkeys(result.verdicts))
        yield (
            f"| `{mutation.name}` | {mutation.fault} | {mutation.change} | {verdicts} | {result.trials} "
            f"| {result.exit_code} |"
        )
    yield ""


def _tables(broken: list[tuple[Mutation, Result]]) -> Iterator[str]:
    for family in dict.fromkeys(m.family for m, _ in broken):
        yield ""
        yield f"### {family.capitalize()}"
        yield ""
        yield "| system | what is broken | change of μ | caught by | trials | exit code |"
        yield "|---|---|---|---|---:|---:|"
        for mutation, result in ((m, r) for m, r in broken if m.family == family):
            by = _accusers(result.caught_by) if result.caught else "**not caught**"
            yield (
                f"| `{mutation.name}` | {mutation.fault} | {mutation.change} | {by} | {result.trials} "
                f"| {result.exit_code} |"
            )
    yield ""


def _accusers(caught_by: tuple[str, ...]) -> str:
    """Each audit once, with the first of its subjects."""
    first: dict[str, str] = {}
    for accuser in caught_by:
        audit, _, subject = accuser.partition(": ")
        first.setdefault(audit, subject)
    return ", ".join(f"{audit} ({subject})" if subject else audit for audit, subject in first.items())
