"""Limits on attacks: a family of cells raises a false alarm as seldom as is said, and real leaks are still found.

Margin: NumPy draws the same from its seeds on every CPU; three standard errors above the level are allowed.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.attack_report import attack_report
from vflpriv.audits.scoring.score import SHARE, mean_score, scored
from vflpriv.audits.statistics.significance import mean_error, mean_interval
from vflpriv.report.attacks import CORRECTIONS, AttackReport, Breach, Cell, Correction, breach_lines
from vflpriv.run.limits import Limit, held_to, judge_limits

SEEDS, CELLS, BOUND = 5, 40, 0.05
LIMIT = [Limit("leakage", BOUND)]


def cells(values: np.ndarray) -> list[Cell]:
    """One cell a row, its values those of the seeds."""
    found = []
    for place, row in enumerate(values.tolist()):
        mean, low, high = mean_interval(row, 0.95, (-1.0, 1.0))
        numbers = {"leakage": mean, "low": low, "high": high, "leakage_error": mean_error(row)}
        found.append(Cell(system=str(place), defence="none", attack="a", adversary="device(0)", **numbers))
    return found


def broken(values: np.ndarray, correction: Correction) -> set[str]:
    rows = judge_limits(LIMIT, cells(values), seeds=values.shape[1], confidence=0.95, correction=correction)[0]
    return {row.system for row in rows}


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_the_family_raises_a_false_alarm_in_at_most_one_of_twenty_runs(shared: float) -> None:
    """All means are at the limit itself, the worst case; cells are independent, or share most of their noise."""
    rng = np.random.default_rng(3)
    alarms, runs = dict.fromkeys(CORRECTIONS, 0), 120
    for _ in range(runs):
        common = rng.normal(size=(1, SEEDS))
        noise = shared**0.5 * common + (1 - shared) ** 0.5 * rng.normal(size=(CELLS, SEEDS))
        for correction in CORRECTIONS:
            alarms[correction] += bool(broken(BOUND + 0.02 * noise, correction))
    # Three standard deviations of the runs above 5 %.
    assert alarms["holm"] / runs <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
    # The same simulation catches what is not corrected: 40 independent tests, each wrong upwards in 2.5 %.
    assert alarms["none"] / runs > (0.5 if shared == 0 else 0.08)


def test_shares_that_are_equal_by_chance_raise_no_alarm() -> None:
    """Two seeds of a hundred guesses each often agree to the last one; that is no certainty."""
    rng = np.random.default_rng(6)
    alarms, naive, runs = 0, 0, 80
    for _ in range(runs):
        rights = rng.binomial(100, 0.15, size=(CELLS, 2)) / 100
        found = []
        for place, row in enumerate(rights.tolist()):
            scores = [scored(SHARE, (share, 0.0, 1.0), chance=0.1, guesses=100) for share in row]
            leakage = mean_score(scores, confidence=0.95).leakage
            names = {"system": str(place), "defence": "none", "attack": "a", "adversary": "device(0)"}
            words = {"leakage": leakage.value, "low": leakage.low, "leakage_error": leakage.error}
            found.append(Cell(**names, **words))
        alarms += bool(judge_limits(LIMIT, found, seeds=2, confidence=0.95, correction="holm")[0])
        naive += bool(broken(rights - 0.1, "holm"))
    assert alarms / runs <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
    assert naive / runs > 0.3, "the same without a least spread"


def test_a_real_leak_is_found_among_many_cells() -> None:
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(50):
        values = 0.02 * rng.normal(size=(CELLS, SEEDS))
        values[7] += 0.6
        found += broken(values, "holm") == {"7"}
    assert found >= 45


def test_one_test_alone_is_the_interval_itself() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        values = rng.normal(0.08, 0.03, size=(1, SEEDS))
        (one,) = cells(values)
        assert one.low is not None
        for correction in CORRECTIONS:
            assert bool(broken(values, correction)) == (one.low > BOUND)


def test_what_is_said_of_the_correction() -> None:
    holm, none = attack_report(), attack_report(correction="none")
    assert [(b.attack, b.defence) for b in holm.breaches] == [("label_direct", "none"), ("feature_inversion", "none")]
    assert {b.attack for b in none.breaches} - {b.attack for b in holm.breaches} == {"label_norm"}
    assert holm.limit_note == (
        "limits: 5 tests with Holm's correction: the chance of any false alarm is at most 5.0 %; "
        "1 more lies above a limit before the correction, but not after it"
    )
    assert none.limit_note == (
        "limits: 5 tests without a correction: each is a false alarm with a chance of at most 5.0 %"
    )
    assert held_to(holm, [], "holm").limit_note is None
    assert AttackReport.model_validate_json(holm.to_json()) == holm


def test_what_is_said_of_a_limit_has_its_unit() -> None:
    names = {"limit": "leakage>0.05", "system": "s", "defence": "none", "attack": "a", "adversary": "server"}
    share = Breach(**names, low=0.8694, p_adjusted=0.001)
    fit = Breach(**names, low=0.8694, p_adjusted=0.001, measure="R²")
    assert breach_lines([share]) == ("leakage>0.05: a on s, defence none: 86.9 % or more, seen by server",)
    assert breach_lines([fit]) == ("leakage>0.05: a on s, defence none: 0.869 of R² or more, seen by server",)
    assert "0.869 of R² or more (p = " in fit.sentence
