"""What to change where a claim does not hold or was not shown to: computed settings, and repairs of what is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflpriv.audits.verdict import CorrectedFinding, JudgedSuccess
from vflpriv.common.formatting import delta, epsilon, percent
from vflpriv.core.audit import Finding
from vflpriv.core.budgets import Accountant, Budget
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.ledger import Exposure, Ledger
from vflpriv.core.systems import DeclaredSystem, Source
from vflpriv.report.rows import USEFUL, ChangeRow
from vflpriv.run.noise.repair import Repair, find_repair, rounded_up

__all__ = ["Advised", "broken_premises", "changes", "premise_changes", "success_changes"]

_REPAIRS = {
    "accounting": "Find what the program does and the ledger does not say, which {subject} is accounted from.",
    "ledger": "List {subject} in the ledger with its noise and sensitivity, or do not send it.",
    "noise": "Add the noise that is declared to {subject}: what was sent does not have it.",
    "server-state": "Keep the state behind {subject} from carrying a record into other rounds, or declare its leak.",
    "wire": "Declare what else {subject} carries, with its noise and sensitivity, or do not send it.",
}
"""What to do about a broken premise, by the audit that found it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Advised:
    """A claim with all that decides what is to change."""

    system: Source
    ledger: Ledger
    """With the releases that audits found on the wire."""
    claim: Claim
    verdict: Verdict
    budget: Budget
    exposure: Exposure
    """Both under the rigorous reading."""
    within: bool
    """Whether the accounted budget is within the claim."""
    findings: Sequence[CorrectedFinding]

    @property
    def broken(self) -> list[Finding]:
        """The broken premises that the claim rests on."""
        return [c.finding for c in self.findings if _is_broken(c) and c.finding.bears_on(self.claim)]

    @property
    def refuted(self) -> bool:
        """Whether a test of the claim, or an exact figure, refutes it."""
        return bool(self.refuting)

    @property
    def refuting(self) -> list[Finding]:
        """What refutes the claim by a figure."""
        return [c.finding for c in self.findings if c.refutes and c.finding.claim == self.claim.key]


def _is_broken(corrected: CorrectedFinding) -> bool:
    return not corrected.finding.compares and corrected.verdict is Verdict.VIOLATED


def broken_premises(advised: Advised) -> tuple[str, ...]:
    """The names of the premises of a claim that do not hold, each once."""
    return tuple(dict.fromkeys(f"{f.audit} of {f.subject}" for f in advised.broken))


def changes(advised: Advised, accountant: Accountant) -> tuple[ChangeRow, ...]:
    """What to change so that the claim holds, or so that it is known whether it does; nothing where it is."""
    if advised.verdict in (Verdict.CONSISTENT, Verdict.NOT_APPLICABLE):
        return ()
    if advised.verdict is Verdict.UNMEASURED:
        return (_measure(advised),)
    rows = [*(row for finding in advised.broken for row in premise_changes(finding))]
    rows += [ChangeRow(sentence=finding.repair) for finding in advised.refuting if finding.repair]
    if not advised.within:
        rows += [_calibrated(advised, accountant), *_other_claim(advised)]
    elif advised.refuted and not rows:
        rows.append(
            ChangeRow(
                sentence=f"Find what {advised.claim.adversary} is sent that the ledger does not describe: trials show "
                "more than it allows, and no noise can be computed from a ledger that is wrong."
            )
        )
    return tuple({row.sentence: row for row in rows}.values())


def _calibrated(advised: Advised, accountant: Accountant) -> ChangeRow:
    """The settings with which the claim holds, or the messages that stand in the way."""
    repair = find_repair(advised.system, advised.ledger, advised.claim, accountant)
    if repair is not None:
        return ChangeRow(sentence=_repair_sentence(repair), settings=repair.settings)
    in_the_way = "; ".join(advised.exposure.unprotected)
    if not in_the_way:
        return ChangeRow(
            sentence="No setting was found that keeps it: add noise, train fewer rounds, or claim a larger ε."
        )
    return ChangeRow(
        sentence=f"No level of noise keeps it: {in_the_way}. Protect that message, keep it from "
        f"{advised.claim.adversary}, or withdraw the claim."
    )


def _repair_sentence(repair: Repair) -> str:
    if repair.scales is not None:
        number = "scale of " + ", ".join(f"{kind} {old:.4g} → {new:g}" for kind, (old, new) in repair.scales.items())
    else:
        before = "" if repair.before is None else f"{repair.before:.4g} → "
        number = f"{repair.field} {before}{repair.after:g}"
    calibrated = f"alibrate the noise for {repair.batches} batches: {number}."
    if not repair.others:
        return f"C{calibrated}"
    others = " and ".join(f"{name} = {new} (now {old})" for name, (old, new) in repair.others.items())
    return f"Set {others}, and c{calibrated}"


def _other_claim(advised: Advised) -> list[ChangeRow]:
    """The claim that the accounted budget supports, where nothing is broken and it says something."""
    budget = advised.budget
    if advised.broken or not budget.upper <= USEFUL:
        return []
    curve = "" if budget.mu is None else f" (μ = {rounded_up(budget.mu):g})"
    supported = f"ε = {rounded_up(budget.upper):g}{curve} at δ = {delta(budget.delta)}"
    instead = f"in place of {epsilon(advised.claim.epsilon)}"
    return [ChangeRow(sentence=f"Or claim what is accounted: {supported} {instead}.")]


def premise_changes(finding: Finding) -> list[ChangeRow]:
    """How to repair a broken premise."""
    known = _REPAIRS.get(finding.audit, "Repair what the {audit} audit found in {subject}.")
    return [ChangeRow(sentence=finding.repair or known.format(audit=finding.audit, subject=finding.subject))]


def _measure(advised: Advised) -> ChangeRow:
    """How to measure a claim that nothing measured."""
    if advised.exposure.assumed:
        return ChangeRow(
            sentence=f"Have this reviewed, which no audit measures: {'; '.join(advised.exposure.assumed)}."
        )
    if isinstance(advised.system, DeclaredSystem):
        return ChangeRow(sentence="Measure it: set audit.trials of this system above 0.")
    return ChangeRow(
        sentence="Measure it: record with canaries planted, or audit the training function by vflpriv audit --train."
    )


def success_changes(judged: JudgedSuccess) -> tuple[ChangeRow, ...]:
    """What to change about a claim on an attack's success."""
    claim, verdict = judged.test.claim, judged.judgement.verdict
    if verdict is Verdict.VIOLATED:
        high = judged.test.rate if judged.bounds is None else judged.bounds[1]
        sentence = (
            f"Defend against {claim.attack} (vflpriv attack compares defences), or claim {percent(high)} at most."
        )
        return (ChangeRow(sentence=sentence),)
    if verdict in (Verdict.UNMEASURED, Verdict.UNSUPPORTED):
        return (
            ChangeRow(sentence=f"Measure it: let the audit run {claim.attack} through a view of {claim.adversary}."),
        )
    return ()
