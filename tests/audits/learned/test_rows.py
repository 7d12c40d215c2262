"""Numbers that describe rows, and the discriminants that are learned from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vflpriv.audits.learned.discriminants import discriminant, discriminants
from vflpriv.audits.learned.rows import integers, row_features, sketched


def test_a_sketch_is_linear_and_keeps_lengths_on_average():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 400, 101, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(sketched(2 * a + b, 8), 2 * sketched(a, 8) + sketched(b, 8))
    assert sketched(a, 8).shape == (400, 8)
    assert float(sketched(a, 8).square().sum() / a.square().sum()) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_bits_are_those_on_the_wire(dtype):
    values = torch.tensor([[1.0, -2.5]], dtype=dtype)
    assert integers(values).element_size() == values.element_size()
    assert torch.equal(integers(values).view(dtype), values)


def test_features_of_rows_without_entries_are_none():
    assert row_features(torch.zeros(3, 0)).shape == (3, 0)


def test_two_classes_are_told_apart_as_by_the_best_linear_test():
    """With the identity for covariance the score is x·(a - b), counted from the middle between the means."""
    residuals = np.repeat(np.concatenate((np.eye(2), -np.eye(2))) * np.sqrt(2), 10, axis=0)
    means = np.array([[1.0, 0.0], [0.0, 3.0]])
    weights, offsets = discriminants(residuals, means, share=0.3, least=1e-9)
    np.testing.assert_allclose(weights, means.T)
    np.testing.assert_allclose(offsets, [-0.5, -4.5])
    w, offset = discriminant(residuals + means[0], residuals + means[1])
    middle = means.mean(0)
    assert w @ middle + offset == pytest.approx(0, abs=1e-9)
    assert w[0] > 0 > w[1]
    assert w[1] / w[0] == pytest.approx(-3)
