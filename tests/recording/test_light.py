"""Recording needs neither SciPy, nor scikit-learn, nor Matplotlib, nor what the command line prints with."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"scipy", "sklearn", "matplotlib", "typer", "rich", "jinja2", "PIL", "yaml"}:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocked())
import torch
import vflpriv

bottom, top = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
labels, canaries = vflpriv.plant(torch.arange(20) % 2, classes=2, canaries=4, seed=0)
wire = vflpriv.watch([bottom], labels=labels, classes=2, folder="transcript", canaries=canaries)
for ids in torch.arange(20).split(10):
    wire.batch(ids)
    torch.nn.functional.cross_entropy(top(bottom(torch.randn(10, 2))), labels[ids]).backward()
wire.finish()
"""


def test_a_training_is_recorded_without_the_libraries_of_audits(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "transcript").is_dir()
