"""MixMatch on a replica axis: its draws, and the slope of its loss, which is each model's own."""

from __future__ import annotations

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import beta

from vflpriv.attacks.label.trained._mixmatch import MixMatch, mixup_shares, uniform_integers
from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary

CPU = torch.device("cpu")


def mixmatch(seeds, *, augment: float = 0.0) -> MixMatch:
    features = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    known = [Auxiliary(records=torch.arange(6) + 7 * s, labels=torch.arange(6) % 3) for s in seeds]
    settings = {"classes": 3, "batch": 8, "sharpness": 0.8, "mixing": 0.75, "augment": augment}
    stream = Stream.of(0, "attack", seeds, CPU)
    return MixMatch(features=[features.unsqueeze(0)], auxiliaries=known, stream=stream, **settings)


def test_mixing_shares_are_those_of_beta():
    shares = mixup_shares(0.75, Stream.of(0, "attack", [0], CPU).uniform(20000, 0))
    assert 0.5 <= float(shares.min()) <= float(shares.max()) <= 1
    expected = 2 * quad(lambda x: x * beta.pdf(x, 0.75, 0.75), 0.5, 1)[0]
    assert abs(float(shares.mean()) - expected) < 0.005


def test_integers_are_uniform_and_below_their_bounds():
    drawn = uniform_integers(Stream.of(0, "attack", [0, 1], CPU), torch.tensor([[7], [3]]), 21000, 0)
    for row, below in zip(drawn, (7, 3), strict=True):
        share = torch.bincount(row, minlength=below) / len(row)
        assert len(share) == below
        assert torch.allclose(share, torch.full_like(share, 1 / below), atol=0.02)


@pytest.mark.parametrize("augment", [0.0, 0.1])
def test_a_models_draws_do_not_depend_on_the_models_beside_it(augment, monkeypatch):
    together = list(mixmatch([0, 1, 2], augment=augment).batches(12))
    monkeypatch.setattr("vflpriv.attacks.label.trained._mixmatch._DRAWN_AT_ONCE", 100)
    alone = list(mixmatch([2], augment=augment).batches(12))
    for a, b in zip(together, alone, strict=True):
        for name in ("records", "targets", "share"):
            assert torch.equal(getattr(a, name)[2:], getattr(b, name))
        rows = mixmatch([0], augment=augment).rows
        assert torch.equal(a.partners[2 * rows :] - 2 * rows, b.partners)
        assert [torch.equal(x[:, 2:], y) for x, y in zip(a.noise, b.noise, strict=True)] == [True] * len(b.noise)


def test_each_model_has_its_own_known_records_and_all_are_mixed_within_it():
    several = mixmatch([0, 1, 2])
    for batch in several.batches(20):
        for r, known in enumerate(several.auxiliaries):
            assert bool(torch.isin(batch.records[r, : several.batch], known.records).all())
        assert torch.equal(batch.partners.sort().values, torch.arange(3 * several.rows))
        owners = batch.partners.unflatten(0, (3, several.rows)) // several.rows
        assert torch.equal(owners, torch.arange(3).unsqueeze(1).expand_as(owners))


def loss(mixmatch: MixMatch, models, batch, weight: float) -> torch.Tensor:
    """The losses of all models, operation by operation: what `slope` is the derivative of."""
    rows = mixmatch.features[0][0][batch.records] + (batch.noise[0][0] if batch.noise else 0)
    with torch.no_grad():
        unlabelled = rows[:, mixmatch.batch :].split(mixmatch.batch, dim=1)
        guess = torch.stack([models([copy.unsqueeze(0)]).softmax(-1) for copy in unlabelled]).mean(0)
        guess = guess ** (1 / mixmatch.sharpness)
        guess = guess / guess.sum(-1, keepdim=True)
    targets = torch.cat([batch.targets, *[guess] * mixmatch.copies], dim=1)
    mixed = [batch.share * t + (1 - batch.share) * t.flatten(0, 1)[batch.partners].view_as(t) for t in (rows, targets)]
    logits, (known, guessed) = models([mixed[0].unsqueeze(0)]), mixed[1].tensor_split([mixmatch.batch], dim=1)
    entropy = -(known * logits[:, : mixmatch.batch].log_softmax(-1)).sum(-1).mean(1)
    squares = (logits[:, mixmatch.batch :].softmax(-1) - guessed).square().mean((1, 2))
    return (entropy + weight * squares).sum()


@pytest.mark.parametrize("augment", [0.0, 0.1])
def test_the_slope_is_that_of_the_loss(augment):
    weights = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(2)).requires_grad_()
    several = mixmatch([0, 1, 2], augment=augment)
    batch = next(several.batches(1))
    logits, slope = several.slope(lambda rows: rows[0][0] @ weights, batch, 2.0)
    (expected,) = torch.autograd.grad(loss(several, lambda rows: rows[0][0] @ weights, batch, 2.0), [weights])
    (found,) = torch.autograd.grad(logits, [weights], slope)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_slope_of_a_model_is_its_own():
    weights = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(2))
    together = mixmatch([0, 1, 2])
    _, slope = together.slope(lambda rows: rows[0][0] @ weights, next(together.batches(1)), 2.0)
    for r in range(3):
        alone = mixmatch([r])
        _, own = alone.slope(lambda rows, r=r: rows[0][0] @ weights[r], next(alone.batches(1)), 2.0)
        assert torch.allclose(slope[r], own[0], atol=1e-6)
