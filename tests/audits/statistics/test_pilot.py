"""The pilot study: its size, the densities that it fits, and the number of guesses that it plans."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from vflpriv.audits.statistics.pilot import Pilot, pilot_size


@pytest.mark.parametrize(
    ("trials", "size"), [(3, 0), (40, 10), (41, 10), (139, 31), (1000, 75), (9490, 499), (10**6, 500)]
)
def test_the_size_of_a_pilot(trials: int, size: int) -> None:
    assert pilot_size(trials) == size


def test_a_pilot_is_two_normal_densities_of_one_width() -> None:
    inside, outside = np.array([3.0, 4.5, 6.0, 2.5]), np.array([-1.0, 0.5, 2.0])
    pilot = Pilot.of(inside, outside)
    width = math.sqrt((inside.var() + outside.var()) / 2)
    x = np.linspace(-3, 8, 9)
    odds = norm.logpdf(x, inside.mean(), width) - norm.logpdf(x, outside.mean(), width)
    assert pilot.evidence(x) == pytest.approx(odds)
    assert (pilot.centre, pilot.gap) == pytest.approx((2.25, 3.5 / width))
    assert Pilot.of_ratios().evidence(x) == pytest.approx(x)
    assert Pilot.of(np.full(3, 2.0), np.full(3, 1.0)) == Pilot(centre=1.5, slope=1.0, gap=1.0), (
        "of no width: of width 1"
    )
    assert Pilot.of_ratios() == Pilot(centre=0.0, slope=1.0, gap=0.0)


@pytest.mark.parametrize("gap", [0.0, 0.7, -1.9, 4.0])
def test_the_number_of_guesses_is_the_one_that_promises_most(gap: float) -> None:
    count, asked = 431, []

    def promise(made: int, right: int) -> float:
        asked.append((made, right))
        return (right - 0.75 * made + 0.1) / 1000

    made = Pilot(centre=0.0, slope=1.0, gap=gap).guesses(count, promise)
    assert sorted({m for m, _ in asked}) == [m for m, _ in asked]
    assert {m for m, _ in asked} == {max(1, round(0.002 * 490 ** (i / 23) * count)) for i in range(24)}

    def share(distance: float) -> tuple[float, float]:
        """Of scores so far from the middle: how many there are, and how many of them are guessed rightly."""
        right, wrong = norm.sf(distance - abs(gap) / 2), norm.sf(distance + abs(gap) / 2)
        return right + wrong, right

    for guesses, right in asked:
        distance = brentq(lambda reach, guesses=guesses: share(reach)[0] - guesses / count, 0, 12)
        assert right == pytest.approx(guesses * share(distance)[1] / share(distance)[0], abs=0.51)
    promised = [right - 0.75 * m + 0.1 for m, right in asked]
    assert made == (asked[int(np.argmax(promised))][0] if max(promised) > 0 else count // 10)
    assert Pilot(centre=0.0, slope=1.0, gap=gap).guesses(70, lambda made, right: 0.0) == 7
    assert Pilot(centre=0.0, slope=1.0, gap=gap).guesses(7, lambda made, right: -1.0) == 1
