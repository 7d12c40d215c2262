"""Trials of one's own training: kept as they finish, the same whoever runs them, and never two with one seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.run.own_training.support import SYSTEMS, audited, ledger, measured
from vflpriv.common.tasks import InProcess
from vflpriv.errors import StoreWarning
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.run.own_training import trials
from vflpriv.run.own_training.audit import audit_training, trials_of
from vflpriv.run.own_training.function import find_training
from vflpriv.run.own_training.trials import training_seed

pytestmark = pytest.mark.usefixtures("few_trees")


def test_the_report_does_not_depend_on_the_workers(tmp_path):
    for workers in (1, 2):
        options = {"out": tmp_path / str(workers), "workers": workers}
        audited(tmp_path, "global_noise", count=16, options=options)
    one, two = ((tmp_path / name / "report.json").read_bytes() for name in ("1", "2"))
    assert one == two
    assert len(list((tmp_path / "2" / "trials").iterdir())) >= 4


def test_a_stopped_audit_goes_on_with_the_trials_that_are_there(tmp_path, monkeypatch):
    options = {"out": tmp_path / "out"}
    whole = audited(tmp_path, "sound", count=16, options={"out": tmp_path / "whole"})
    trained = []

    def stopping(plan, numbers, worker, *, most):
        if len(trained) >= most:
            raise KeyboardInterrupt
        trained.append(numbers)
        return shard(plan, numbers, worker)

    shard = trials.trained_shard
    monkeypatch.setattr(trials, "trained_shard", lambda *given: stopping(*given, most=3))
    with pytest.raises(KeyboardInterrupt):
        audited(tmp_path, "sound", count=16, options=options)
    monkeypatch.setattr(trials, "trained_shard", lambda *given: stopping(*given, most=9))
    resumed = audited(tmp_path, "sound", count=16, options=options)
    assert len(trained) == len(set(trained)) == 4
    assert (tmp_path / "out/report.json").read_bytes() == (tmp_path / "whole/report.json").read_bytes()
    assert measured(resumed) == measured(whole)
    audited(tmp_path, "sound", count=16, options=options | {"fresh": True})
    assert len(trained) == 8


def test_trials_of_other_data_are_not_used(tmp_path, monkeypatch):
    counted = []
    shard = trials.trained_shard
    monkeypatch.setattr(trials, "trained_shard", lambda *given: counted.append(given[1]) or shard(*given))
    (tmp_path / "train.py").write_text(
        "from pathlib import Path\nimport torch\ndef train(wire, world, seed):\n"
        "    level = float((Path(__file__).parent / 'data.txt').read_text())\n"
        "    noise = torch.randn(1, generator=torch.Generator().manual_seed(seed))\n"
        "    wire.down(0, 0, 'answer', {'x': level * world + noise}, [3])\n"
    )
    for level in ("1.0", "1.0", "2.0"):
        (tmp_path / "data.txt").write_text(level)
        options = {"out": tmp_path / "out", "train": f"{tmp_path / 'train.py'}:train"}
        audited(tmp_path, "", count=4, options=options)
    assert len(counted) == 2


def test_a_function_whose_code_is_unknown_is_not_stored(tmp_path):
    class Noise:
        pass

    names = {"noise": Noise(), "__name__": "of_a_notebook"}
    exec("def train(wire, world, seed):\n    noise\n    wire.down(0, 0, 'answer', {'x': float(world)}, [3])", names)  # noqa: S102
    with pytest.warns(StoreWarning, match="not all code that"):
        audited(tmp_path, "", count=4, options={"out": tmp_path / "out", "train": names["train"]})
    before = len(list((tmp_path / "out" / "trials").iterdir()))
    with pytest.warns(StoreWarning, match="not all code that"):
        audited(tmp_path, "", count=8, options={"out": tmp_path / "out", "train": names["train"], "fresh": True})
    assert len(list((tmp_path / "out" / "trials").iterdir())) == before  # of the recorded training alone


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_no_two_trainings_have_the_same_seed_nor_one_next_to_it(seed):
    seeds = sorted(training_seed(seed, number) for number in range(-4, 4000))
    assert min(b - a for a, b in pairwise(seeds)) > 1000
    assert 0 <= seeds[0] <= seeds[-1] < 2**31


def test_no_two_trials_run_in_one_process_at_the_same_time(tmp_path):
    """They seed generators that are global."""
    seen = []

    class Told(InProcess):
        def run(self, tasks, **options):
            seen.append(tasks.isolated)
            return super().run(tasks, **options)

    config, training = trials_of(load_ledger(ledger(tmp_path)), 4), find_training(f"{SYSTEMS}:sound")
    audit_training(training, config, store=None, command="", quiet=True, executor=Told())
    assert seen == [True]
