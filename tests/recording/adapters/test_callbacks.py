"""The callbacks and loggers of other packages, with the packages themselves where they are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vflpriv
from vflpriv.errors import InputError
from vflpriv.recording.transcripts import read_transcript
from vflpriv.report.loggers import figures, words

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LEDGER = """
key = "mine"
attacks = ["label_direction"]
release = [{kind = "embeddings", noise = "none", independent_of = ["label"]},
           {kind = "embedding-gradient", noise = "none"}]
claim = [{key = "labels", unit = "label", view = "device", epsilon = 1.0, delta = 1e-5}]
"""


def needs(package):
    """Skips without a package, which is looked for and not loaded."""
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: pip install it to run this")


def run(code, *arguments, **environment):
    """In a process of its own, since these packages warn and keep state."""
    command = [sys.executable, *([code] if code.endswith(".py") else ["-c", code]), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        pytest.param("lightning", 30, marks=[needs("lightning"), pytest.mark.slow]),
        pytest.param("huggingface", 24, marks=[needs("transformers"), needs("accelerate"), pytest.mark.slow]),
    ],
)
def test_the_example_is_recorded_with_the_right_ids_and_its_claim_is_violated(tmp_path, name, rounds):
    run(str(EXAMPLES / name / "train.py"), tmp_path / "t", HF_HUB_OFFLINE="1")
    head = read_transcript(tmp_path / "t").head
    assert head.finished
    assert head.rounds == rounds
    assert head.messages == {"embeddings": 2 * rounds, "embedding-gradient": 2 * rounds}
    assert (head.failed_checks, head.remarks, head.labels_different) == ((), (), 0)
    assert head.labels_compared == (200 if name == "lightning" else 120)
    report = vflpriv.audit(transcript=tmp_path / "t", ledger=EXAMPLES / name / "ledger.toml", quiet=True)
    assert report.exit_code != 0
    assert not [check for check in report.systems[0].checks if check.audit == "watched"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of a training that gives every label away."""
    folder = tmp_path_factory.mktemp("logged")
    labels = torch.arange(40) % 2
    with vflpriv.record(folder / "t", devices=1, classes=2, records=40, labels=labels) as wire:
        for t in range(4):
            ids = torch.arange(10) + 10 * t
            gradient = (0.5 - labels[ids].float())[:, None] * torch.ones(10, 3)
            wire.up(t, 0, "embeddings", {"embedding": torch.randn(10, 3)}, ids)
            wire.down(t, 0, "embedding-gradient", {"gradient": gradient}, ids)
    (folder / "ledger.toml").write_text(LEDGER)
    report = vflpriv.audit(transcript=folder / "t", ledger=folder / "ledger.toml", quiet=True)
    report.save(folder / "report")
    return report, folder / "report" / "report.json"


def test_figures_and_words_are_those_of_the_report(report):
    report, _ = report
    (system,) = report.systems
    (claim,) = system.claims
    found = figures(report)
    assert found["mine/labels/epsilon_claimed"] == 1.0
    assert "mine/labels/epsilon_accounted" not in found  # there is no finite one
    assert found["mine/labels/holds"] == 0.0
    assert found["mine/label_direction/device_0_"] == 1.0
    assert words(report) == {"mine/labels/verdict": f"{claim.verdict}: {claim.reason}"}


class Writer:
    """Has the two functions of TensorBoard's that are used."""

    def __init__(self):
        self.scalars, self.texts = {}, {}

    def add_scalar(self, name, value):
        self.scalars[name] = value

    def add_text(self, name, value):
        self.texts[name] = value


def test_a_summary_writer_is_given_all_of_them(report):
    writer = Writer()
    vflpriv.log(report[0], writer)
    assert writer.scalars == figures(report[0])
    assert writer.texts == words(report[0])
    with pytest.raises(InputError, match="a SummaryWriter"):
        vflpriv.log(report[0], "paper")


LOGGED = """
import json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import vflpriv
from vflpriv.report.audit import read_report
report, folder = read_report(Path(sys.argv[1])), sys.argv[2]
"""
BY = {
    "mlflow": """
import mlflow
mlflow.set_tracking_uri(f"file://{folder}/runs")
with mlflow.start_run() as run:
    vflpriv.log(report, "mlflow")
data = mlflow.get_run(run.info.run_id).data
print(json.dumps(data.metrics))
assert data.tags["mine/labels/verdict"].split(":")[0] in ("violated", "unsupported")
""",
    "wandb": """
import wandb
run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True))
vflpriv.log(report, "wandb")
print(json.dumps({k: v for k, v in dict(run.summary).items() if isinstance(v, (int, float)) and k[0] != "_"}))
run.finish()
""",
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
with SummaryWriter(folder) as writer:
    vflpriv.log(report, writer)
events = EventAccumulator(folder)
events.Reload()
print(json.dumps({tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("package", [pytest.param(package, marks=needs(package)) for package in BY])
def test_the_package_keeps_the_figures(tmp_path, report, package):
    out = run(LOGGED + BY[package], report[1], tmp_path, MLFLOW_ALLOW_FILE_STORE="true", WANDB_MODE="offline")
    assert json.loads(out.splitlines()[-1]) == pytest.approx(figures(report[0]))


def test_a_package_that_is_missing_is_one_line(monkeypatch, report):
    for name in ("mlflow", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"vflpriv\[mlflow\]"):
        vflpriv.log(report[0], "mlflow")
    for name in ("lightning", "huggingface"):
        module = importlib.import_module(f"vflpriv.{name}")
        vars(module).pop("Watch", None)
        with pytest.raises(InputError, match=rf"vflpriv\[{name}\]"):
            _ = module.Watch
