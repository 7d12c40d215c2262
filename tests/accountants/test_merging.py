"""Exposures are merged into pairs: what each event becomes, and which delta may be asked for."""

from __future__ import annotations

import math

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants._merging import FIXED, FIXED_SEEN, SECRET, SEEN, Merged, check, merge
from vflpriv.core.law import Law
from vflpriv.core.ledger import Event, Sampling
from vflpriv.core.units import Unit
from vflpriv.laws import CorrelatedGaussian, Gaussian, Laplace, RandomizedResponse
from vflpriv.laws.correlated import tree_encoder
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.pairs import Diluted
from vflpriv.laws.sampled import SampledGaussianPair, SampledReplacementPair, WithoutReplacementPair


def sampled(law: Law, scheme: str, rate: float = 0.25) -> Event:
    return Event(kind="message", noise=law, sensitivity=1.0, count=3, sampling=Sampling(scheme, rate))


def test_gaussians_are_one_pair_beside_the_others() -> None:
    small = Merged(mu=0.5, pairs={GaussianPair(3.0): 2})
    assert small.all_pairs == {GaussianPair(0.5): 1, GaussianPair(3.0): 2}
    bounded = Merged(mu=0.5, pairs={}, attained=False)
    assert bounded.all_pairs == {GaussianPair(0.5, bound=True): 1}
    assert Merged(mu=0.0, pairs={}).all_pairs == {}


def test_secret_batches_hide_a_record_in_their_sum() -> None:
    for unit, scheme, pair in (
        (Unit.ADD_REMOVE, SECRET, SampledGaussianPair(0.5, 0.25)),
        (Unit.RECORD, SECRET, SampledReplacementPair(0.5, 0.25)),
        (Unit.RECORD, FIXED, WithoutReplacementPair(0.5, 0.25)),
    ):
        assert merge(expose(sampled(Gaussian(2.0), scheme), unit=unit)).pairs == {pair: 3}


@pytest.mark.parametrize("law", [Gaussian(2.0), Laplace(2.0), RandomizedResponse(1.0)], ids=str)
@pytest.mark.parametrize("scheme", [SECRET, FIXED, SEEN, FIXED_SEEN])
def test_a_batch_hides_whose_record_it_is_only_in_a_sum_that_is_not_seen(law: Law, scheme: str) -> None:
    (pair,) = merge(expose(sampled(law, scheme), unit=Unit.RECORD)).pairs
    seen = scheme in (SEEN, FIXED_SEEN)
    if law.gaussian and not seen:
        assert not isinstance(pair, Diluted)
    else:
        assert pair == Diluted(law.pair(1.0), 0.25, law.norm is not None and not seen)


def test_a_delta_lies_from_0_to_below_1() -> None:
    check(None, 0.0)
    check(None, 0.999)
    for delta in (-0.1, 1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="Expected 0 <= delta < 1"):
            check(None, delta)
    with pytest.raises(ValueError, match="can be accounted for: a reason"):
        check("a reason", 0.5)


def test_a_bound_that_no_neighbours_reach_stays_one() -> None:
    independent = event(Gaussian(2.0), 1.0, 4)
    once, often = (event(CorrelatedGaussian(2.0, tree_encoder(4)), 1.0, count) for count in (1, 4))
    for events, attained in (((independent, once), True), ((often,), False), ((often, independent), False)):
        assert merge(expose(*events)).attained == attained
