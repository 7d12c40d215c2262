"""A training function that is named wrongly, cannot be loaded or fails is one clear line."""

from __future__ import annotations

import random
import sys
import threading

import numpy as np
import pytest
import torch

import vflpriv
from tests.cli.test_cli import run
from tests.run.own_training import systems
from tests.run.own_training.support import SYSTEMS, audited, ledger, measured
from vflpriv.errors import InputError
from vflpriv.run.own_training.function import find_training

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("train.py", "expected FILE.py:FUNCTION or MODULE:FUNCTION"),
        (":train", "expected FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("train.py:two words", "expected FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("nowhere.py:train", "expected a file that exists; there is no nowhere.py"),
        ("no_such_module.inner:train", "expected a module that can be imported; there is no no_such_module"),
        (f"{SYSTEMS}:absent", "expected the name of a function: there is no absent in it"),
        (f"{SYSTEMS}:not_a_function", "expected the name of a function: there is no not_a_function in it"),
        (f"{SYSTEMS}:without_seed", "expected a function of (wire, world, seed), not without_seed(wire, world)"),
    ],
)
def test_a_function_that_is_not_there_is_named(given, said):
    with pytest.raises(InputError) as raised:
        find_training(given)
    assert str(raised.value).startswith("--train = ")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\nx = torch.zeros(2) @ torch.zeros(3)\n", "RuntimeError: "),
        ("def train(wire, world, seed:\n", "SyntaxError: "),
        ("import no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library' (train.py, line 1)"),
        ("import sys\nsys.exit('usage: train.py DATA')\n", "SystemExit: usage: train.py DATA (train.py, line 2)"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(tmp_path, text, said):
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(InputError, match="code that can be loaded") as raised:
        find_training(f"{tmp_path / 'train.py'}:train")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("failing", "in world 1 with seed "),
        ("failing", "KeyError: 'embedding' (systems.py, line "),
        ("wrong_message", "answer: device = 5: expected 0 to 0 (systems.py, line "),
    ],
)
def test_an_error_in_a_training_says_where(tmp_path, name, said):
    with pytest.raises(InputError, match="expected a training without errors; ") as raised:
        audited(tmp_path, name)
    assert said in str(raised.value)


def test_modules_beside_the_file_and_importable_names_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside_it.py").write_text("STD = 2.0\n")
    (tmp_path / "own_train.py").write_text("from beside_it import STD\ndef train(wire, world, seed): return STD\n")
    assert find_training("own_train.py:train").function(None, 0, 0) == 2.0
    assert find_training("own_train:train").function(None, 0, 0) == 2.0
    sys.modules.pop("beside_it")
    sys.modules.pop("own_train")


def test_a_function_may_be_given_itself(tmp_path):
    options = {"ledger": ledger(tmp_path), "workers": 1, "trials": 60}
    report = vflpriv.audit(train=systems.low_bit, **options)
    assert measured(report).refutes
    assert f"--train {systems.__name__}:low_bit" in report.systems[0].claims[0].reproduce
    lock = threading.Lock()
    with pytest.raises(InputError, match="a function that can be sent to another process"):
        vflpriv.audit(train=lambda wire, world, seed: lock, **options)


def test_a_training_leaves_the_process_as_it_was():
    def careless(wire, world, seed):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        seen.append((random.random(), np.random.rand(), float(torch.rand(()))))  # noqa: NPY002

    seen = []
    training = find_training(f"{SYSTEMS}:sound")
    object.__setattr__(training, "given", careless)
    before = torch.get_rng_state(), random.getstate()
    for seed in (7, 7, 8):
        training.run(None, 0, seed)
    assert seen[0] == seen[1]
    assert not any(one == other for one, other in zip(seen[1], seen[2], strict=True))
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (torch.float32, True)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audit.toml"], "CONFIG = 'audit.toml': expected nothing beside --train"),
        (["--seed", "3"], "--seed = '3': expected nothing beside --train"),
        (["--set", "data.train=40"], "--set = 'data.train=40': expected nothing beside --train"),
        (["--transcript", "run"], "--transcript = 'run': expected nothing beside --train"),
        (["--trials", "many"], "--trials = 'many': expected a whole number"),
        (["--workers", "none"], "--workers = 'none': expected a number of workers"),
    ],
)
def test_options_that_do_not_go_together_are_refused(monkeypatch, capsys, tmp_path, arguments, said):
    flags = ["--train", f"{SYSTEMS}:sound", "--ledger", str(ledger(tmp_path)), "--out", str(tmp_path / "out")]
    code, _, error = run(monkeypatch, capsys, "audit", *flags, *arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert said in error


def test_a_training_needs_a_ledger_that_describes_its_worlds(monkeypatch, capsys, tmp_path):
    code, _, error = run(monkeypatch, capsys, "audit", "--train", f"{SYSTEMS}:sound")
    assert (code, error) == (
        2,
        "vflpriv: --ledger = 'nothing': expected a path: --train and --ledger go together; `vflpriv trace train.py "
        "--ledger ledger.toml` writes one\n",
    )
    bare = tmp_path / "bare.toml"
    bare.write_text('[[claim]]\nkey = "labels"\nunit = "label"\nview = "device"\nepsilon = 1.0\n')
    code, _, error = run(monkeypatch, capsys, "audit", "--train", f"{SYSTEMS}:sound", "--ledger", str(bare))
    assert (code, "ledger.trials = 'nothing': expected a section [trials]" in error) == (2, True)


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ({"record": None}, "a record, 0 to 7, with unit = 'label', found none"),
        ({"record": 8}, "record to be 0 to 7, found 8"),
        ({"unit": "features"}, "a device, 0 to 0, with unit = 'features', found none"),
        ({"unit": "client", "device": 0}, "no record with unit = 'client', found 3"),
        ({"device": 0}, "no device with unit = 'label', found 0"),
        ({"unit": "labels"}, "ledger.trials.unit = 'labels'"),
    ],
)
def test_worlds_that_are_not_described_are_refused(tmp_path, trials, said):
    with pytest.raises(InputError) as raised:
        audited(tmp_path, "sound", trials=trials)
    assert said in str(raised.value)
