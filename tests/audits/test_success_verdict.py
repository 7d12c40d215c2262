"""Claims about attacks: judged by the attack's interval, in the report beside the others."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.rendered import markdown_of, page_of
from tests.support import ENGINES, make_system, toy_data
from vflpriv.api import audit
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.labels import label_score
from vflpriv.audits.scoring.score import SHARE, Score, scored
from vflpriv.audits.statistics.bounds import interval
from vflpriv.audits.success import SuccessTest, allowed_rate, judge_success
from vflpriv.config.loading import load_config
from vflpriv.core.attack import Guess
from vflpriv.core.claims import SuccessClaim, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.render.terminal import print_result
from vflpriv.report.audit import Report
from vflpriv.run.build import Audited, build_report

ALPHA = 0.05


def claim(rate: float = 0.117, view: str = "device") -> SuccessClaim:
    return SuccessClaim(
        key="k",
        source="s",
        where="w",
        statement="t",
        unit=Unit.LABEL,
        adversary=Adversary.parse(view),
        attack="label_zo_query",
        rate=rate,
        classes=10,
    )


def success(right: int, guesses: int = 1000, chance: float = 0.1) -> Score:
    low, high = interval(right, guesses, 1 - ALPHA)
    return scored(SHARE, (right / guesses, low, high), chance=chance, guesses=guesses)


def made(found: Score | None, **changes: Any) -> SuccessTest:
    given_: dict[str, Any] = {"claim": claim(), "success": found, "refusal": None, "classes": 10}
    return SuccessTest(**given_ | changes)


def judged(found: Score | None, p_adjusted: float | None = None, alpha: float = ALPHA, **changes: Any) -> Verdict:
    test = made(found, **changes)
    p = test.p_value if p_adjusted is None else p_adjusted
    return judge_success(test, p_adjusted=p, alpha=alpha, confidence=1 - ALPHA).judgement.verdict


def test_the_word_follows_the_low_end_of_the_interval():
    for right in range(0, 1001, 5):
        found = success(right)
        assert judged(found) is (Verdict.VIOLATED if found.low > 0.117 else Verdict.CONSISTENT)
    assert judged(success(118)) is Verdict.CONSISTENT
    assert judged(success(200)) is Verdict.VIOLATED
    assert judged(success(200), p_adjusted=0.2) is Verdict.CONSISTENT, "not after Holm's correction"


def test_an_attack_that_was_not_run_supports_nothing():
    assert judged(None) is Verdict.UNSUPPORTED
    assert judged(None, refusal="needs losses") is Verdict.NOT_APPLICABLE
    assert judged(success(900), classes=2) is Verdict.NOT_APPLICABLE, "half of all guesses are right by chance there"


def test_naming_the_commonest_label_is_no_attack():
    skewed = success(400, chance=0.4)
    assert allowed_rate(claim(), skewed) == 0.4
    assert judged(skewed) is Verdict.CONSISTENT
    assert judged(success(450, chance=0.4)) is Verdict.VIOLATED


@given(st.integers(1, 400), st.data())
def test_the_p_value_and_the_interval_say_the_same(guesses, data):
    """Margin: both are computed from the same counts by one function, at its two sides."""
    found = success(data.draw(st.integers(0, guesses)), guesses, chance=0.0)
    assert (made(found).p_value < ALPHA / 2) == (found.low > 0.117)


def test_a_true_claim_is_seldom_called_violated():
    """The rate is exactly the claimed one: at most alpha/2 of the verdicts are wrong."""
    rights = np.random.default_rng(0).binomial(1437, 0.117, 4000)
    wrong = sum(judged(success(int(k), 1437)) is Verdict.VIOLATED for k in rights)
    assert 0.01 < wrong / 4000 < 0.025 + 3 * (0.025 * 0.975 / 4000) ** 0.5


def test_guesses_of_one_training_that_stand_or_fall_together_are_no_independent_trials():
    """Each training has a rate around the claimed 11.7 %, as if 1437 guesses rested on 20 facts about its model."""
    drawn = np.random.default_rng(1).binomial(20, 0.117, (2000, 8)) / 20
    by_guesses = np.mean([judged(success(round(1437 * row[0]), 1437)) is Verdict.VIOLATED for row in drawn])
    by_trainings = np.mean([made(success(168, 1437), rates=tuple(row)).p_value <= 0.05 for row in drawn])
    assert by_guesses > 0.3
    assert by_trainings <= 0.05


def test_trainings_refute_a_claim_that_they_all_exceed():
    test = made(success(900), rates=(0.9, 0.91, 0.89, 0.9, 0.88, 0.9, 0.92, 0.9))
    found = judge_success(test, p_adjusted=test.p_value, alpha=0.001, confidence=0.95)
    assert found.judgement.verdict is Verdict.VIOLATED
    assert found.bounds is not None
    assert 0.117 < found.bounds[0] < 0.9 < found.bounds[1]
    assert found.judgement.reason.startswith(
        "label_zo_query was right in 90.0 % of its guesses, the mean of 8 independent trainings ("
    )
    alone = made(success(900))
    said = judge_success(alone, p_adjusted=alone.p_value, alpha=0.001, confidence=0.95).judgement
    assert said.verdict is Verdict.VIOLATED
    assert "at 95 % confidence, one training whose guesses are taken as independent)" in said.reason


def test_a_p_value_between_the_levels_is_said():
    found = judge_success(made(success(200)), p_adjusted=0.01, alpha=0.001, confidence=0.95).judgement
    assert found.verdict is Verdict.CONSISTENT
    assert found.reason.endswith(
        "p 0.010 after Holm's correction is below 5 %, not below the 0.1 % that a verdict needs"
    )


ZEROTH_ORDER = [variant for variant, (name, _) in ENGINES.items() if name in ("zoo-vfl", "syn-zoo-vfl", "cascaded")]


@pytest.mark.parametrize("variant", ENGINES)
def test_table_1_is_claimed_by_engines_that_send_losses_and_by_no_other(variant):
    system = make_system(variant)
    claims = system.engine.success_claims(system.settings, system.schedule)
    expected = [("device", 0.117), ("eavesdropper", 0.1)] if variant in ZEROTH_ORDER else []
    assert [(str(c.adversary), c.rate) for c in claims] == expected
    assert {c.attack for c in claims} <= {"label_zo_query"}


def audited(right: float | None, refusal: str | None = None, classes: int = 10) -> Audited:
    """Cascaded, as if `label_zo_query` had been right at this rate through every view."""
    system = make_system("cascaded", data=toy_data(2000, classes=classes), rounds=4)
    labels = system.data.labels
    guess = Guess(torch.arange(2000), labels.clone().unsqueeze(0))
    if right is not None:
        guess.values[0, int(2000 * right) :] = (labels[int(2000 * right) :] + 1) % classes
    found = None if right is None or refusal else label_score(guess, labels)
    attempts = tuple(
        Attempt(
            attack="label_zo_query",
            target="labels",
            adversary=Adversary.parse(view),
            scores=() if found is None else (found,),
            refusal=refusal,
        )
        for view in ("device(0)", "eavesdropper")
    )
    return Audited(
        system=system,
        success_claims=system.success_claims,
        attempts=attempts if right is not None or refusal else (),
    )


def reported(found: Audited) -> Report:
    return build_report([found], load_config(None), reproduce="vflpriv audit")


@pytest.mark.parametrize(
    ("right", "refusal", "word", "code"),
    [
        (0.1, None, Verdict.CONSISTENT, 0),
        (0.9, None, Verdict.VIOLATED, 1),
        (None, None, Verdict.UNSUPPORTED, 3),
        (None, "needs losses", Verdict.NOT_APPLICABLE, 0),
    ],
)
def test_the_report_has_a_row_and_an_exit_code_for_it(right, refusal, word, code):
    report = reported(audited(right, refusal))
    rows = report.systems[0].success_claims
    assert [(row.adversary, row.rate, row.verdict) for row in rows] == [
        ("device", 0.117, word),
        ("eavesdropper", 0.1, word),
    ]
    assert report.exit_code == code
    assert report.count(word) == 2
    assert report.headline == f"2 claims checked: 2 {word}"
    assert Report.model_validate_json(report.to_json()) == report


def test_an_audit_repeats_the_attacks_that_claims_are_about():
    settings = {"name": "cascaded", "rounds": 12, "batch_size": 16, "aggregation": "sum"}
    quiet = {"trials": 0, "sensitivity": False, "noise": False, "state": False, "success_trainings": 3}
    tree = {"data": {"train": 60}, "engine": settings, "audit": quiet | {"attacks": ["label_zo_query"]}}
    report = audit(tree, quiet=True)
    rows = report.systems[0].success_claims
    assert [(row.adversary, row.trainings) for row in rows] == [("device", 3), ("eavesdropper", 3)]
    assert all("the mean of 3 independent trainings" in row.reason for row in rows)
    none = audit(tree | {"audit": quiet | {"attacks": ["label_direct"]}}, quiet=True)
    assert [row.trainings for row in none.systems[0].success_claims] == [0, 0]


def test_every_format_shows_the_claim_the_rate_and_the_reason():
    report = reported(audited(0.9))
    console = Console(width=140, record=True, file=io.StringIO())
    print_result(report, console)
    terminal = console.export_text()
    for text in (terminal, markdown_of(report), page_of(report)):
        plain = text.replace("\\_", "_")
        assert "label_zo_query" in plain
        assert "11.7" in plain
        assert "90.0" in plain
        assert "violated" in plain
    assert "publishes no claim" not in page_of(report)
    assert "2 of 2 claims are violated" in markdown_of(report)


def test_two_classes_are_another_matter():
    (device, _) = reported(audited(0.6, classes=2)).systems[0].success_claims
    assert (device.verdict, device.success) == (Verdict.NOT_APPLICABLE, 0.6)


def test_a_claim_names_its_adversarys_own_attempt():
    found = audited(0.9)
    elsewhere = tuple(replace(a, adversary=Adversary.parse("server")) for a in found.attempts)
    report = reported(replace(found, attempts=elsewhere))
    assert {row.verdict for row in report.systems[0].success_claims} == {Verdict.UNSUPPORTED}


def test_rates_are_shares():
    with pytest.raises(ValueError, match=r"rate=11\.7"):
        claim(11.7)
