"""What the flow audit says of every small program, kept as results, and the section of the documentation about them."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutations.flow.program import Examined, TracedProgram
from tests.mutations.flow.suite import PROGRAMS
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Verdict

__all__ = ["RESULTS", "TracedResult", "examined", "read_traced", "section", "write_traced"]

RESULTS = Path(__file__).with_name("results.json")
FIRST_VERDICTS = Path(__file__).with_name("first_verdicts.json")
"""What the tracer said of programs on the day that they were written, before it was mended; never changed since."""


@dataclass(frozen=True, kw_only=True)
class TracedResult:
    """The verdict on one program, and the rule that explains it."""

    name: str
    truth: str
    verdict: str
    rule: str


def examined(program: TracedProgram) -> Finding:
    """What the flow audit finds; what the program prints is not shown."""
    with contextlib.redirect_stdout(io.StringIO()):
        return Examined(program.train, program.claim).finding


def traced(program: TracedProgram) -> TracedResult:
    """The row of the table about one program."""
    finding = examined(program)
    return TracedResult(
        name=program.name, truth=program.truth, verdict=finding.verdict.value, rule=_rule(program, finding)
    )


def _rule(program: TracedProgram, finding: Finding) -> str:
    """The figure or the reason that decided, without files and line numbers, which change as programs are edited."""
    if finding.measurement is not None or finding.verdict is Verdict.CONSISTENT:
        return f"{finding.measure} {finding.figure:.3f} of {program.claimed:.3f}"
    said = finding.sentence.removeprefix("the trace does not explain everything: ")
    return re.sub(r"\s*\(?\b[\w/.-]+\.py:\d+\)?:?\s?", " ", said).replace("|", "/").strip()


def read_traced() -> list[TracedResult]:
    """The results of the last run."""
    return [TracedResult(**row) for row in json.loads(RESULTS.read_text("utf-8"))]


def write_traced(programs: Iterable[TracedProgram] = PROGRAMS) -> list[TracedResult]:
    """Examine all programs and keep what was said."""
    results = [traced(program) for program in programs]
    text = ",\n".join(f"  {json.dumps(asdict(result), ensure_ascii=False)}" for result in results)
    RESULTS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return results


def _first_score() -> str:
    """How the tracer judged programs that it had never seen."""
    first = json.loads(FIRST_VERDICTS.read_text("utf-8"))
    verdicts = [(program.truth, first[program.name]) for program in PROGRAMS if program.name in first]
    said = [
        f"{verdicts.count((truth, verdict))} of {len([t for t, _ in verdicts if t == truth])} {truth} ones {verdict}"
        for truth, verdict in (
            ("broken", "violated"),
            ("broken", "unmeasured"),
            ("broken", "consistent"),
            ("sound", "consistent"),
            ("sound", "unmeasured"),
            ("sound", "violated"),
        )
    ]
    return (
        f"Of the programs that were written before it was tried on them, the tracer at first called {', '.join(said)}."
    )


_INTRODUCTION = """\
## Traced programs

Small training functions in ordinary PyTorch and NumPy. Each runs once, while a tracer follows its private values and
its random draws to every message. A program is *broken* if its claim is false and *sound* if it is true: by a closed
form, by two plain runs with known noise, or by an adversary that tells the worlds apart from the messages. Tests
compute each of these without the tracer.
"""


def section(results: Iterable[TracedResult]) -> Iterator[str]:
    """The lines of the page."""
    by_name = {result.name: result for result in results}
    yield _INTRODUCTION
    yield "| truth | programs | violated | unmeasured | consistent |"
    yield "|---|---:|---:|---:|---:|"
    for truth in ("broken", "sound"):
        verdicts = [result.verdict for result in by_name.values() if result.truth == truth]
        counts = [verdicts.count(verdict) for verdict in ("violated", "unmeasured", "consistent")]
        yield f"| {truth} | {len(verdicts)} | {' | '.join(map(str, counts))} |"
    yield ""
    yield _first_score()
    for theme in dict.fromkeys(program.theme for program in PROGRAMS):
        yield ""
        yield f"### Traced: {theme}"
        yield ""
        yield "| program | truth, and why | verdict | explained by |"
        yield "|---|---|---|---|"
        for program in (p for p in PROGRAMS if p.theme == theme):
            result = by_name[program.name]
            why = program.why.replace("|", "\\|")
            yield f"| `{program.name}` | {program.truth}: {why} | {result.verdict} | {result.rule} |"
