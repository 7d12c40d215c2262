"""The logistic regression among the examples with arrays of JAX, where it is installed."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import vflpriv

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "logistic_regression"


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_residuals_are_recorded_whatever_library_computes_them(tmp_path, library):
    if library == "jax":
        pytest.importorskip("jax", reason="needs pip install jax")
    runpy.run_path(str(FOLDER / "train.py"))["main"](str(tmp_path / "transcript"), library)
    report = vflpriv.audit(transcript=tmp_path / "transcript", ledger=FOLDER / "ledger.toml")
    (system,) = report.systems
    direct = [a.success for a in system.attacks if a.attack == "label_direct" and a.adversary == "device(0)"]
    assert direct == [1.0]
    assert report.exit_code == 1
