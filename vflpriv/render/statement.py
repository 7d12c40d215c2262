"""The differential-privacy statement of a claim: what a reader must know to judge an ε, field by field."""

from __future__ import annotations

from collections.abc import Iterable

from vflpriv.common.formatting import clean, confidence, count, delta, epsilon, exact, mu
from vflpriv.render.shared import measurement_sentences
from vflpriv.report.audit import BudgetRow, ClaimRow, MeasurementRow, ReleaseRow, Report, SystemRow
from vflpriv.report.rows import ViewBudget

__all__ = ["statement"]

_UNKNOWN = "not recorded in this report"


def statement(report: Report, system: SystemRow, claim: ClaimRow) -> list[tuple[str, list[str]]]:
    """Each field with its sentences, all from the report."""
    b = claim.accounted
    return [
        ("Unit and adjacency", [f"{claim.unit}: {claim.unit_description}", _adjacency(system, claim)]),
        ("δ", [_delta(system, claim)]),
        ("ε, claimed", [f"{epsilon(claim.epsilon)} (μ = {mu(claim.mu)}), {claim.source}, {claim.where}"]),
        ("ε, accounted", _accounted(claim)),
        ("Seen by", [f"{claim.adversary}, for whom batches are {b.batches}"]),
        ("Sampling assumed", [*_about_batches(b)]),
        ("Sampling done", [_sampling(system)]),
        ("Releases covered", _releases(system, claim)),
        ("Trust in each party", _trust(claim)),
        ("Contribution cap", _cap(system, claim)),
        ("Tuning runs", ["not counted: every budget here is that of one training"]),
        ("Randomness", [system.noise_source or _UNKNOWN]),
        ("Empirical bound", _measured(claim)),
        ("Attacks and trials", _trials(system, claim)),
        ("Not tested", _untested(report, system)),
    ]


def _adjacency(system: SystemRow, claim: ClaimRow) -> str:
    if claim.unit == "add-remove":
        return "two neighbouring worlds differ in how many records there are"
    records = system.data.get("records")
    number = f"{count(records)} records" if isinstance(records, int) else "as many records"
    return f"replacement: both neighbouring worlds have {number}, none is added or removed"


def _delta(system: SystemRow, claim: ClaimRow) -> str:
    records = system.data.get("records")
    if not isinstance(records, int) or not records:
        return delta(claim.delta)
    side = "above" if claim.delta > 1 / records else "not above"
    return f"{delta(claim.delta)}, {side} one in the {count(records)} records"


def _accounted(claim: ClaimRow) -> list[str]:
    """The bound, the accountant and its method, and the error."""
    lines = []
    for name, b in (("rigorous", claim.accounted), ("paper’s reading", claim.paper_reading)):
        if b is None:
            continue
        if b.not_applicable is not None:
            lines.append(f"{name}: not applicable, {b.not_applicable}")
            continue
        ends = f"true value between {exact(b.epsilon_lower)} and {exact(b.epsilon_upper)}"
        error = "no error but rounding" if b.epsilon_lower == b.epsilon_upper else ends
        lines.append(f"{name}: ε ≤ {epsilon(b.epsilon_upper)} by {b.accountant} ({b.method}); {error}")
    return lines


def _about_batches(budget: BudgetRow) -> Iterable[str]:
    """The accountant's assumptions about batches."""
    terms = ("batch", "sampled", "Poisson", "amplification")
    about = [line for line in budget.assumptions if any(term in line for term in terms)]
    return about or [f"batches {budget.batches}"]


def _sampling(system: SystemRow) -> str:
    s = system.sampling
    if s is None:
        return _UNKNOWN
    sizes = count(s.most) if s.fewest == s.most else f"{count(s.fewest)} to {count(s.most)}"
    return (
        f"{s.batching}: {s.description}; {sizes} of {count(s.records)} records per batch, {count(system.rounds)} rounds"
    )


def _releases(system: SystemRow, claim: ClaimRow) -> list[str]:
    """Each kind of message that depends on the unit: covered, not covered, or not seen by the adversary."""
    kind = claim.adversary.partition("(")[0]
    moved = [r for r in system.releases if r.sensitivity.get(claim.unit, 0.0) > 0]
    if not moved:
        return [_UNKNOWN if not system.releases else "no release depends on this unit"]
    return [_release(r, claim.unit, seen=kind in r.seen_by) for r in moved]


def _release(release: ReleaseRow, unit: str, *, seen: bool) -> str:
    name = f"{release.kind} ({release.what})" if release.what else release.kind
    if not seen:
        return f"{name}: not seen by this adversary"
    if release.assumption:
        return f"{name}: ciphertext, not measured; protected if {release.assumption}"
    if unit not in release.protects:
        return f"{name}: not covered, {release.noise}, no bound for this unit"
    return f"{name}: covered, {release.noise}, sent {count(release.rounds)} times"


def _trust(claim: ClaimRow) -> list[str]:
    lines = ["every party follows the protocol, and learns what it can from what it sees (honest but curious)"]
    trusted: dict[str, list[str]] = {}
    for view in claim.views:
        trusted.setdefault(_trusted(view), []).append(view.adversary)
    return lines + [f"{', '.join(views)}: {how}" for how, views in trusted.items()]


def _trusted(view: ViewBudget) -> str:
    if view.not_applicable is not None:
        return f"not applicable, {view.not_applicable}"
    if view.unprotected:
        return f"must be trusted with it: {'; '.join(map(clean, view.unprotected))}"
    paper = "" if view.paper_reading is None else f" ({epsilon(view.paper_reading)} in the paper’s reading)"
    assumed = "".join(f"; if {clean(line)}" for line in view.assumed)
    return f"need not be trusted beyond ε ≤ {epsilon(view.epsilon_upper)}{paper}, batches {view.batches}{assumed}"


def _cap(system: SystemRow, claim: ClaimRow) -> list[str]:
    """How often one unit takes part, and by how much it can change a release each time, and how that is known."""
    bases = {check.basis for check in system.checks if check.unit == claim.unit and check.basis}
    known = "as its clip was proved to for all inputs" if bases == {"proved"} else "as declared"
    known = f"{known}; a search found no more" if "searched" in bases else known
    times = [
        f"{name}: the worst record takes part in {count(b.participations)} of the releases seen; "
        "this is the schedule that was drawn, no cap is enforced"
        for name, b in (("rigorous", claim.accounted), ("paper’s reading", claim.paper_reading))
        if b is not None and b.participations is not None
    ]
    bounds = [
        f"{r.kind}: one unit changes a release by at most {exact(r.sensitivity[claim.unit])} before noise, {known}"
        for r in system.releases
        if claim.unit in r.protects
    ]
    return [*times, *bounds] or ["none"]


def _measured(claim: ClaimRow) -> list[str]:
    best = claim.deciding
    if best is None:
        return ["none: no ε was measured for this claim"]
    lines = [] if best.errors is None else [_bounds(best, claim)]
    return [*lines, *measurement_sentences(claim)]


def _bounds(row: MeasurementRow, claim: ClaimRow) -> str:
    assumed = ", assuming Gaussian noise" if row.assumes_gaussian else ""
    of_mu = f"μ ≥ {mu(row.mu)} at {confidence(row.confidence)} confidence{assumed}"
    return f"{of_mu}, ε ≥ {epsilon(row.epsilon)} for any mechanism at δ = {delta(claim.delta)}"


def _trials(system: SystemRow, claim: ClaimRow) -> list[str]:
    lines = [clean(row.effort) for row in claim.measurements]
    applied = [a for a in system.attacks if a.success is not None]
    if system.attacks:
        names = ", ".join(dict.fromkeys(clean(a.attack) for a in applied)) or "none"
        lines.append(f"{len(applied)} of {len(system.attacks)} attacks (through each view) apply: {names}")
    return lines or ["none"]


def _untested(report: Report, system: SystemRow) -> list[str]:
    """The lines about this system, and those about all systems."""
    others = tuple(f"{s.key}: " for s in report.systems if s.key != system.key)
    return [line for line in report.not_tested if not line.startswith(others)] or ["nothing was left out on purpose"]
