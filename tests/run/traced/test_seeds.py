"""Seeds that a script fixes for the global generators stand for secret ones, of torch, NumPy and Python alike."""

from __future__ import annotations

from vflpriv import api

_SCRIPT = """
import random
import numpy as np
import torch
import vflpriv

random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
x = torch.randn(20, 3)
y = (x[:, 0] > 0).float()
wire = vflpriv.watch(1, labels=y.long(), classes=2)
ids = torch.arange(20)
wire.up(0, 0, "rows", {"embedding": x}, ids)
noise = torch.from_numpy(np.random.normal(size=20)).float() + random.gauss(0, 1)
wire.down(0, 0, "residuals", {"residual": 0.5 - y + 4 * noise}, ids)
"""


def test_noise_under_a_fixed_global_seed_is_taken_as_secret_and_the_lines_are_named(tmp_path):
    (tmp_path / "train.py").write_text(_SCRIPT)
    report = api.trace(tmp_path / "train.py", rounds=1, quiet=True)
    assert {row.state for row in report.messages if row.kind == "residuals"} == {"sealed"}
    # A label moves one entry by 1, under noise of std 4 of its own; what is the same on all entries hides little of it.
    assert 0.2 < report.pairs[-1].mu < 0.25
    named = [line for line in (7, 8, 9) for note in report.notes if note.startswith(f"train.py:{line}: the seed")]
    assert named == [7, 8, 9]
