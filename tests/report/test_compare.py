"""Two reports side by side: what counts as worse, what does not, and how it is said."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from tests.rendered import markdown_of
from tests.report.attack_report import attack_report, member
from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError
from vflpriv.render.terminal import print_result
from vflpriv.report.audit import Report, SystemRow
from vflpriv.report.compare import Comparison, Tolerance, compare, compare_attacks


def changed(report: Report, place: int, **update: Any) -> Report:
    systems = list(report.systems)
    systems[place] = systems[place].model_copy(update=update)
    return report.model_copy(update={"systems": tuple(systems)})


def with_accuracy(system: SystemRow, accuracy: float) -> Any:
    assert system.utility is not None
    return system.utility.model_copy(update={"accuracy": accuracy})


def with_success(system: SystemRow, success: float | None) -> Any:
    return tuple(a.model_copy(update={"success": success}) if a.success is not None else a for a in system.attacks)


def with_epsilon(system: SystemRow, epsilon: float) -> Any:
    first, *rest = system.claims
    accounted = first.accounted.model_copy(update={"epsilon_upper": epsilon})
    return (first.model_copy(update={"accounted": accounted}), *rest)


def sentences(comparison: Comparison) -> list[str]:
    return [change.sentence for change in comparison.regressions]


def test_the_same_report_has_no_difference(report: Report) -> None:
    found = compare(report, Report.model_validate_json(report.to_json()), Tolerance())
    assert found.changes == ()
    assert found.compared > 15
    assert found.exit_code == 0
    assert found.headline == f"no regression; 0 of {found.compared} numbers and verdicts differ"


@pytest.mark.parametrize(("drop", "worse"), [(0.0199, False), (0.0201, True), (-0.3, False)])
def test_accuracy_may_fall_by_the_tolerance(report: Report, drop: float, worse: bool) -> None:
    joint = report.systems[1]
    assert joint.utility is not None
    new = changed(report, 1, utility=with_accuracy(joint, joint.utility.accuracy - drop))
    assert bool(compare(report, new, Tolerance()).regressions) is worse
    assert not compare(report, new, Tolerance(accuracy=0.5)).regressions


@pytest.mark.parametrize(("rise", "worse"), [(0.0199, False), (0.0201, True), (-0.05, False)])
def test_attack_success_may_rise_by_the_tolerance(report: Report, rise: float, worse: bool) -> None:
    new = changed(report, 1, attacks=with_success(report.systems[1], 0.104 + rise))
    found = compare(report, new, Tolerance())
    assert bool(found.regressions) is worse
    assert len(found.changes) == 1
    if worse:
        expected = "joint: attack success of label_zo seen by device(0): 10.4 % before, 12.4 % now"
        assert sentences(found) == [expected]


@pytest.mark.parametrize(("factor", "worse"), [(1.009, False), (1.011, True), (0.5, False), (math.inf, True)])
def test_epsilon_may_rise_by_a_share_of_itself(report: Report, factor: float, worse: bool) -> None:
    joint = report.systems[1]
    old = joint.claims[0].accounted.epsilon_upper
    new = changed(report, 1, claims=with_epsilon(joint, old * factor))
    found = compare(report, new, Tolerance())
    assert bool(found.regressions) is worse
    assert [c.what for c in found.changes] == ["epsilon"]
    # From infinity nothing is worse, and every number is better.
    assert not compare(new, report, Tolerance()).regressions or factor < 1


def test_a_worse_verdict_and_a_claim_that_is_gone_are_regressions(report: Report) -> None:
    joint = report.systems[1]
    refuted = joint.claims[0].model_copy(update={"verdict": Verdict.VIOLATED})
    found = compare(report, changed(report, 1, claims=(refuted, joint.claims[1])), Tolerance())
    expected = "joint: verdict of record seen by device (joint-device): consistent before, violated now"
    assert sentences(found) == [expected]
    assert not compare(changed(report, 1, claims=(refuted, joint.claims[1])), report, Tolerance()).regressions
    gone = compare(report, changed(report, 1, claims=()), Tolerance())
    # Its ε is still among the budgets; the other claim did not apply.
    assert [(c.what, c.new) for c in gone.regressions] == [("verdict", "not claimed")]
    unknown = compare(report, changed(report, 1, claims=(), budgets=()), Tolerance())
    assert [(c.what, c.new) for c in unknown.regressions] == [("epsilon", None), ("verdict", "not claimed")]
    fewer = compare(report, changed(report, 1, attacks=(), utility=None), Tolerance())
    assert [c.what for c in fewer.regressions] == ["accuracy"]


def test_systems_that_one_report_lacks_are_named_not_judged(report: Report) -> None:
    fewer = report.model_copy(update={"systems": report.systems[:1]})
    found = compare(report, fewer, Tolerance())
    assert found.only_old == ("joint", "split")
    assert compare(fewer, report, Tolerance()).only_new == ("joint", "split")
    assert found.exit_code == 0
    assert "joint: not compared: only the first report has it" in markdown_of(found)


def test_tolerances_are_read_or_refused() -> None:
    assert Tolerance.parse([]) == Tolerance()
    assert Tolerance.parse(["epsilon=0.5", "1e-3"]) == Tolerance(epsilon=1e-3, success=1e-3, accuracy=1e-3)
    for text in ("", "much", "loss=0.1", "-0.1", "epsilon=", "epsilon=inf", "1e999", "0.1,0.2"):
        with pytest.raises(InputError, match="--tolerance"):
            Tolerance.parse([text])


def test_terminal_markdown_and_json_say_the_same(report: Report) -> None:
    new = changed(
        report, 2, attacks=with_success(report.systems[2], 0.4), utility=with_accuracy(report.systems[2], 0.2)
    )
    found = compare(report, new, Tolerance())
    out = io.StringIO()
    print_result(found, Console(file=out, width=120, _environ={}))
    text, markdown = out.getvalue(), markdown_of(found)
    for expected in ("test accuracy", "96.9 %", "20.0 %", "worse", "1 regression beyond the tolerance"):
        assert expected in text
        assert expected in markdown
    assert Comparison.model_validate_json(found.to_json()) == found


def test_names_cannot_steer_any_of_them(hostile: Report) -> None:
    bare = hostile.model_copy(update={"systems": ()})
    worse = changed(hostile, 0, attacks=with_success(hostile.systems[0], 0.9))
    for found in (compare(hostile, worse, Tolerance()), compare(hostile, bare, Tolerance())):
        out = io.StringIO()
        print_result(found, Console(file=out, width=120, _environ={}))
        assert "\x1b" not in out.getvalue() + markdown_of(found)
        assert "<script" not in markdown_of(found)
        assert all(line.count("\n") == 0 for line in sentences(found))


def test_epsilons_of_features_and_of_membership_are_two() -> None:
    """The same adversary: an ε of the features unit that grows is seen beside one of the record unit that stays."""
    old = attack_report().model_copy(update={"features": (*attack_report().features, member())})
    grown = [c.model_copy(update={"epsilon": 9.0}) if c.attack == "feature_inversion" else c for c in old.features]
    new = old.model_copy(update={"features": tuple(c for c in grown if c.not_applicable is None)})
    old = old.model_copy(update={"features": tuple(c for c in old.features if c.not_applicable is None)})
    (change,) = compare_attacks(old, new, Tolerance()).changes
    assert (change.where, change.old, change.new) == ("features seen by server, defence none", 3.0, 9.0)
    assert change.regression
