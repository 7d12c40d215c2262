"""Labels that a script holds in arrays, lists and dictionaries are followed as its tensors are."""

from __future__ import annotations

import pytest

from vflpriv import api

_NUMPY = """
import numpy as np
import vflpriv

rng = np.random.default_rng()
x = rng.normal(size=(20, 3))
y = (x[:, 0] > 0).astype(np.int64)
w = np.zeros(3)
wire = vflpriv.watch(1, labels=y, classes=2)
ids = np.arange(20)
for t in range(2):
    scores = x @ w
    wire.up(t, 0, "scores", {"score": scores}, ids)
    residual = np.clip(1 / (1 + np.exp(-scores)) - y, -1, 1) NOISE
    wire.down(t, 0, "residuals", {"residual": residual}, ids)
    w -= 0.1 * x.T @ residual / 20
"""

_CACHE = """
import torch
import vflpriv

x = torch.randn(20, 3)
y = (x[:, 0] > 0).long()
cache = {place: label for place, label in enumerate(y.tolist())}
wire = vflpriv.watch(1, labels=y, classes=2)
answers = torch.where(torch.rand(20) < 0.27, 1 - y, y)
ids = torch.arange(20)
wire.up(0, 0, "rows", {"embedding": x}, ids)
factors = torch.tensor([2.0 if cache[int(i)] else 1.0 for i in ids])
wire.down(0, 0, "residuals", {"residual": answers * factors}, ids)
"""


def _traced(tmp_path, program: str):
    (tmp_path / "train.py").write_text(program)
    return api.trace(tmp_path / "train.py", rounds=2, quiet=True)


def _states(report) -> set[tuple[str, str]]:
    return {(row.kind, row.state) for row in report.messages}


def test_labels_in_an_array_are_sealed_by_noise_of_numpy(tmp_path):
    report = _traced(tmp_path, _NUMPY.replace("NOISE", "+ rng.laplace(0.0, 2.0, size=20)"))
    assert _states(report) == {("scores", "clean"), ("residuals", "sealed")}
    # Two rounds of a residual that a label moves by 1, under Laplace noise of scale 2.
    assert report.pairs[-1].pure == pytest.approx(1.0)


@pytest.mark.slow
def test_labels_in_an_array_are_not_sealed_without_noise(tmp_path):
    report = _traced(tmp_path, _NUMPY.replace("NOISE", ""))
    assert report.exit_code != 0
    assert not {("residuals", "clean"), ("residuals", "sealed")} & _states(report)


@pytest.mark.slow
def test_labels_in_a_dictionary_that_was_made_before_are_no_public_numbers(tmp_path):
    report = _traced(tmp_path, _CACHE)
    assert report.exit_code != 0
    assert ("residuals", "clean") not in _states(report)
