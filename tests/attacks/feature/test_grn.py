"""The generative regression network: given the logits it explains them; as published it predicts the mean."""

from __future__ import annotations

import pytest

from tests.attacks.support import attack, two_blocks


@pytest.mark.slow
def test_the_generator_explains_logits_through_known_models():
    tried = attack("feature_grn", "fdml", two_blocks(6, 12), "device(0)")
    assert tried.mean.leakage.low > 0.3


@pytest.mark.slow
def test_the_published_generator_predicts_the_mean_of_features_independent_of_its_own():
    """The two devices' features are independent, and a generator without the logits sees nothing else."""
    tried = attack("feature_grn_published", "fdml", two_blocks(6, 12), "device(0)")
    assert tried.refusal is None
    assert tried.mean.value < 0.05
