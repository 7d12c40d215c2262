"""A system that was mended, beside the one it was: claims are matched by view and unit, and kept ones are better."""

from __future__ import annotations

import io
import math
from typing import Any

from rich.console import Console

from tests.rendered import markdown_of
from tests.report.examples import build, joint
from tests.report.rows import budget, claim, utility
from vflpriv.core.claims import Verdict
from vflpriv.render.terminal import print_result
from vflpriv.report.audit import BudgetRow, ClaimRow, Report
from vflpriv.report.compare import Change, Comparison, Tolerance, compare

TOLERANCE = Tolerance()


def spent(view: str, epsilon: float, **fields: Any) -> BudgetRow:
    return budget(view, None, **fields).model_copy(update={"epsilon_upper": epsilon})


def system(claims: tuple[ClaimRow, ...], budgets: tuple[BudgetRow, ...], accuracy: float = 0.658) -> Report:
    row = {"key": "dpzv", "claims": claims, "budgets": budgets, "attacks": (), "utility": utility(accuracy)}
    return build(joint().model_copy(update=row))


def promised(key: str, view: str, accounted: float, verdict: Verdict, **fields: Any) -> ClaimRow:
    return claim(key, spent(view, accounted), verdict, **{"adversary": view} | fields)


def published() -> Report:
    """The system of docs/tutorial.md as published: three claims violated, one unsupported."""
    claims = (
        promised("dpzv-device", "device", 40_100.0, Verdict.VIOLATED),
        promised("dpzv-devices", "devices(all)", 157_000.0, Verdict.VIOLATED),
        promised("dpzv-model", "model", math.inf, Verdict.UNSUPPORTED),
        promised("dpzv-embeddings", "eavesdropper", 157_000.0, Verdict.VIOLATED, unit="label"),
    )
    budgets = (
        spent("device(1)", 40_100.0),
        spent("device(0)", 3.12, reading="paper"),
        spent("devices(all)", 157_000.0),
        spent("devices(all)", 7.12, reading="paper"),
        spent("eavesdropper", 157_000.0, unit="label"),
        spent("model", math.inf),
    )
    return system(claims, budgets)


def mended() -> Report:
    """The same after the fourth step of the tutorial: one claim for all devices together, and it is kept."""
    views = (("device(0)", "record"), ("devices(all)", "record"), ("eavesdropper", "label"), ("model", "record"))
    budgets = tuple(spent(view, 1.0, unit=unit) for view, unit in views)
    paper = spent("device(0)", 0.46, reading="paper")
    return system((promised("calibrated", "devices(all)", 1.0, Verdict.CONSISTENT),), (*budgets, paper), accuracy=0.186)


def verdicts(comparison: Comparison) -> dict[str, Change]:
    return {change.where: change for change in comparison.changes if change.what == "verdict"}


def test_the_mended_system_of_the_tutorial_is_worse_in_its_accuracy_alone() -> None:
    found = compare(published(), mended(), TOLERANCE)
    assert [c.sentence for c in found.regressions] == ["dpzv: test accuracy: 65.8 % before, 18.6 % now"]
    assert all(c.improvement for c in found.changes if c.what in ("epsilon", "verdict"))
    back = compare(mended(), published(), TOLERANCE)
    assert [c.sentence for c in back.improvements] == ["dpzv: test accuracy: 18.6 % before, 65.8 % now"]
    places = [c.where for c in found.changes if c.what == "epsilon"]
    assert len(places) == len(set(places)) == 6, "each unit, view and reading once"


def test_every_claim_says_what_became_of_it() -> None:
    found = verdicts(compare(published(), mended(), TOLERANCE))
    kept = "no longer claimed, though what is accounted keeps it"
    assert {where: (c.old, c.new) for where, c in found.items()} == {
        "record seen by device (dpzv-device, now covered by calibrated)": ("violated", "consistent"),
        "record seen by devices(all) (dpzv-devices, now calibrated)": ("violated", "consistent"),
        f"record seen by model (dpzv-model, {kept})": ("unsupported", "not claimed"),
        f"label seen by eavesdropper (dpzv-embeddings, {kept})": ("violated", "not claimed"),
    }


def only(old: ClaimRow | None, new: ClaimRow | None, budgets: tuple[BudgetRow, ...] = ()) -> Change:
    """The verdict's change between systems with at most one claim each."""
    before, after = (system(() if c is None else (c,), budgets) for c in (old, new))
    (change,) = verdicts(compare(before, after, TOLERANCE)).values()
    return change


def test_a_claim_that_does_not_hold_is_not_mended_by_dropping_it() -> None:
    violated = promised("a", "device", 7.0, Verdict.VIOLATED)
    assert only(violated, None, (spent("device(3)", 7.0),)).direction == ""
    assert only(violated, None).direction == ""
    assert only(violated, None, (spent("device(3)", 0.9),)).direction == "better"
    assert only(promised("a", "device", 0.9, Verdict.CONSISTENT), None, (spent("device(3)", 0.9),)).direction == "worse"
    assert only(promised("a", "device", 0.9, Verdict.NOT_APPLICABLE), None).direction == ""
    assert only(None, violated).direction == ""


def test_only_a_stronger_claim_answers_for_another() -> None:
    old = promised("a", "device", 7.0, Verdict.VIOLATED)
    kept = Verdict.CONSISTENT
    assert only(old, promised("b", "device", 0.9, kept)).direction == "better"
    weaker: tuple[tuple[str, dict[str, Any]], ...] = (
        ("device(0)", {}),
        ("model", {}),
        ("devices(all)", {"epsilon": 2.0}),
        ("devices(all)", {"delta": 0.1}),
        ("devices(all)", {"unit": "label"}),
    )
    for view, fields in weaker:
        found = compare(system((old,), ()), system((promised("b", view, 0.9, kept, **fields),), ()), TOLERANCE)
        answers = {c.new: c.direction for c in found.changes if c.what == "verdict"}
        assert answers == {"not claimed": "", "consistent": ""}, view
    label = promised("a", "device(1)", 7.0, Verdict.VIOLATED, unit="label")
    found = compare(system((label,), ()), system((promised("b", "devices(1, 3)", 0.9, kept),), ()), TOLERANCE)
    assert [(c.what, c.old, c.new) for c in found.improvements] == [
        ("epsilon", 7.0, 0.9),
        ("verdict", "violated", "consistent"),
    ]
    assert not found.regressions


def test_claims_of_one_place_are_told_apart_by_their_names() -> None:
    first, second = (promised(key, "device", 0.9, Verdict.CONSISTENT) for key in ("a", "b"))
    broken = second.model_copy(update={"verdict": Verdict.VIOLATED})
    (change,) = compare(system((first, second), ()), system((broken, first), ()), TOLERANCE).changes
    assert change.where == "record seen by device (b)"
    assert change.regression


def test_a_weaker_promise_is_shown_and_not_judged() -> None:
    old = promised("a", "device", 7.0, Verdict.VIOLATED)
    new = promised("a", "device", 7.0, Verdict.CONSISTENT, epsilon=8.0, delta=1e-5)
    found = {c.what: c for c in compare(system((old,), ()), system((new,), ()), TOLERANCE).changes}
    assert found["claimed"].sentence == (
        "dpzv: claimed ε of record seen by device (δ was 0.001, now 1e-05): 1.00 before, 8.00 now"
    )
    assert found["claimed"].direction == ""
    assert found["verdict"].direction == "better"


def test_better_and_worse_are_marked_and_worse_comes_first() -> None:
    found = compare(published(), mended(), TOLERANCE)
    out = io.StringIO()
    print_result(found, Console(file=out, width=80, _environ={}))
    marks = [line.split()[0] for line in out.getvalue().splitlines() if line.startswith(("worse", "better"))]
    assert marks == ["worse", *["better"] * (len(found.joined) - 1)]
    assert max(map(len, out.getvalue().splitlines())) <= 80
    markdown = markdown_of(found)
    assert markdown.index("❌ **worse** | dpzv | test accuracy") < markdown.index("✅ better | dpzv | verdict")
    assert found.headline == "1 regression beyond the tolerance, 10 improvements; 11 of 12 numbers and verdicts differ"
