"""Exact figures of every bundled system beside what trials show and what is accounted, with the CPU seconds of each.

For each claim of `vflpriv audit` and `vflpriv audit papers`: the μ that is accounted, the largest that the flow audit
measures (≥ where not all of it is followed, * where it is a bound from draws of the loss), and the largest bound of
trials in two worlds at 95 %, with the numbers of trials that an audit makes by itself. Seconds are those of a whole
audit of the system, by audit.

    python benchmarks/exact.py [--only KEY …] [--write]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _support import one_line

from vflpriv.audits.flow.audit import FlowAudit
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import find
from vflpriv.config.loading import load_config
from vflpriv.config.models import Config
from vflpriv.core.audit import Finding, Measurement
from vflpriv.core.budgets import epsilon_of, mu_of
from vflpriv.core.claims import Claim
from vflpriv.core.systems import System
from vflpriv.run.audit import audit_context
from vflpriv.run.registered import run_audits
from vflpriv.run.systems import build_system, claims_of, load_data

__all__: list[str] = []

RESULT = Path(__file__).parent / "results" / "exact.md"
HEADER = (
    "| system | claim | seen by | unit | accounted μ | exact μ | share | trials μ ≥ | flow s | trials s |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def _mu(measurement: Measurement, claim: Claim) -> float:
    """The figure in μ, whatever decides."""
    if measurement.mu is not None:
        return measurement.mu
    return math.nan if measurement.epsilon is None else mu_of(measurement.epsilon, claim.delta)


def _largest(findings: Sequence[Finding], claim: Claim, audit: str) -> tuple[float, str] | None:
    """The largest figure that an audit has of a claim, and as it is written."""
    own = [f.measurement for f in findings if f.claim == claim.key and f.audit == audit and f.measurement]
    figures = [(_mu(m, claim), f"{'' if m.exact else '≥ '}{_mu(m, claim):.4f}{'' if m.proves else ' *'}") for m in own]
    return max(figures, default=None)


def _timed(spent: dict[str, float], name: str, run: Callable[..., list[Finding]]) -> Callable[..., list[Finding]]:
    def timed(*arguments: object) -> list[Finding]:
        begun = time.process_time()
        try:
            return run(*arguments)
        finally:
            spent[name] = time.process_time() - begun

    return timed


def _rows(config: Config, place: int, system: System) -> list[str]:
    """One row for each claim."""
    section, spent = config.system[place], dict[str, float]()
    accountant = find("accountant", config.accountant)()
    claims = claims_of(system, section)
    context = audit_context(system, section, config)
    # What audits find before others decides how many trials there are: they run as in an audit.
    kept = {audit: audit.run for audit in (FlowAudit, TwoWorldAudit)}
    tables = dict.fromkeys(("float", "noise", "server-state", "wire", "one-run", "label-draws"), False)
    try:
        for audit, run in kept.items():
            audit.run = _timed(spent, audit.name, run)  # type: ignore[method-assign, assignment]
        findings, _ = run_audits(system, context, section.audit.tables | tables)
    finally:
        for audit, run in kept.items():
            audit.run = run  # type: ignore[method-assign]
    rows = []
    for claim in claims:
        budget = accountant.budget(system.ledger.exposure(claim.adversary, claim.unit), claim.delta)
        accounted = budget.mu if budget.mu is not None else mu_of(budget.upper, claim.delta)
        exact, trials = (_largest(findings, claim, name) for name in (FlowAudit.name, TwoWorldAudit.name))
        share = "–" if exact is None or not math.isfinite(accounted) else f"{exact[0] / accounted:.3f}"
        useful = epsilon_of(accounted, claim.delta) < 1e3
        shown = "–" if exact is None else exact[1]
        rows.append(
            f"| {system.key} | {claim.key} | {claim.adversary} | {claim.unit} | "
            f"{f'{accounted:.4f}' if useful else 'no useful bound'} | {shown} | {share if useful else '–'} | "
            f"{'–' if trials is None else f'{trials[0]:.3f}'} | "
            f"{spent.get(FlowAudit.name, 0):.1f} | {spent.get(TwoWorldAudit.name, 0):.1f} |"
        )
    return rows


@single_threaded()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[], help="keys of systems")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} beside the other results")
    parsed = parser.parse_args()
    lines = [HEADER]
    print(HEADER)
    for source in (None, "papers"):
        config = load_config(source, {})
        data = load_data(config)
        for place, section in enumerate(config.system):
            if not parsed.only or section.key in parsed.only:
                for row in _rows(config, place, build_system(config, place, data)):
                    print(row, flush=True)
                    lines.append(row)
    if parsed.write:
        text = (__doc__ or "").split("\n\n")
        RESULT.write_text(
            "\n\n".join(["# Exact figures", text[1].replace("\n", " "), "\n".join(lines)]) + "\n", "utf-8"
        )


if __name__ == "__main__":
    one_line(main)
