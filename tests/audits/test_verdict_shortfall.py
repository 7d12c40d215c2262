"""Where the largest exact figure is well below what is accounted, the verdict says what is to blame."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from vflpriv.audits.verdict import _deciding, _short_of
from vflpriv.core.audit import AT_CLIP, EPSILON, MU

CLIP, PAIR = "the bound counts more", "no pair that was looked for"


def figure(value: float, *, exact: bool = True, proves: bool = True, decides: str = EPSILON, clip: bool = False) -> Any:
    measured = SimpleNamespace(figure=value, exact=exact, proves=proves, decides=decides, facts={AT_CLIP: clip})
    return SimpleNamespace(finding=SimpleNamespace(measurement=measured))


def said(upper: float, mu: float | None, *tests: Any) -> str:
    budget: Any = SimpleNamespace(upper=upper, mu=mu)
    return "; ".join(_short_of(budget, tests))


@pytest.mark.parametrize(
    ("upper", "mu", "tests", "blame"),
    [
        (4.0, None, [figure(1.0)], PAIR),
        (4.0, None, [figure(1.0, clip=True)], CLIP),
        (4.0, None, [figure(1.0, clip=True), figure(2.0)], PAIR),
        (4.0, None, [figure(1.0, clip=True), figure(3.8)], ""),
        (4.0, None, [figure(1.0), figure(3.8, exact=False), figure(3.8, proves=False)], PAIR),
        (4.0, None, [figure(3.5)], PAIR),
        (4.0, None, [figure(0.9 * 4.0)], ""),
        (0.5, None, [figure(0.1)], PAIR),
        (0.5, None, [figure(0.48)], ""),
        (4.0, 1.0, [figure(0.95, decides=MU)], ""),
        (1.0, 4.0, [figure(0.95, decides=MU)], PAIR),
        (4.0, 1.0, [figure(0.95)], PAIR),
        (4.0, None, [figure(0.5, decides=MU)], ""),
        (math.inf, None, [figure(1.0)], ""),
        (4.0, None, [figure(1.0, exact=False)], ""),
        (4.0, None, [], ""),
    ],
)
def test_the_largest_exact_figure_is_compared_with_what_is_accounted(
    upper: float, mu: float | None, tests: list[Any], blame: str
) -> None:
    found = said(upper, mu, *tests)
    assert (blame in found) if blame else not found


def refuting(value: float, *, proof: bool, p_value: float | None) -> Any:
    finding = SimpleNamespace(
        measurement=SimpleNamespace(figure=value), is_proof=proof, p_value=p_value, figure=value, trials=1000
    )
    return SimpleNamespace(finding=finding, refutes=True)


def test_a_proof_is_quoted_before_any_larger_figure_of_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflpriv.audits.verdict._enough", lambda finding, least: True)
    monkeypatch.setattr("vflpriv.audits.verdict._strength", lambda test: test.finding.figure)
    proof, small, large = (refuting(v, proof=v == 2.0, p_value=None if v == 2.0 else 0.01 * v) for v in (2.0, 1.0, 3.0))
    assert _deciding([proof, large], 10) is proof
    assert _deciding([proof, small], 10) is proof
    assert _deciding([small, large], 10) is large
