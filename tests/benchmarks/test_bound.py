"""The arithmetic bound counts no more multiplications than a round makes, and not far fewer."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.support import toy_data
from tests.tree import ROOT
from vflpriv.core.wire import Wire

# Benchmarks are scripts, not a package.
_FOLDER = str(ROOT / "benchmarks")
_SPEC = importlib.util.spec_from_file_location("bound", f"{_FOLDER}/bound.py")
assert _SPEC is not None
assert _SPEC.loader is not None
bound = importlib.util.module_from_spec(_SPEC)
sys.modules["bound"] = bound
sys.path.insert(0, _FOLDER)
_SPEC.loader.exec_module(bound)
sys.path.remove(_FOLDER)


@pytest.mark.parametrize("name", list(bound.CASES))
def test_a_round_makes_the_products_that_are_counted_and_few_others(name):
    case, data = bound.CASES[name], toy_data(256)
    size = bound.Size(name="toy", data=data, embedding=6, replicas=3, goal=1)
    settings = {"rounds": 4, "batch_size": bound.BATCH, "embedding": size.embedding, **case.settings}
    engine = bound.build(data, case.engine, **settings).train(range(size.replicas))
    with FlopCounterMode(display=False) as counter:
        for round_ in range(data.devices):
            engine.round(round_, Wire())
    made = counter.get_total_flops() / data.devices / size.replicas
    counted = case.work(size).flops
    assert counted <= made * (1 + 1e-9)
    assert made <= 1.8 * counted


def test_the_normals_are_those_of_the_directions():
    data = toy_data(256)
    size = bound.Size(name="toy", data=data, embedding=6, replicas=3, goal=1)
    engine = bound.build(data, "dpzv", rounds=1, batch_size=8, embedding=6, noise="given", noise_std=1.0).train([0])
    of_device = sum(v.numel() for own in engine.bank.parameters for v in own.values()) / data.devices
    of_server = sum(v.numel() for v in engine.server_parameters().values())
    assert bound.CASES["dpzv-sgd"].work(size).normals == of_device
    assert bound.CASES["dpzv-joint"].work(size).normals == of_device + of_server
    assert bound.CASES["split"].work(size).normals == 0


def test_the_least_cost_of_each_counts():
    seconds = iter([2.0, 9.0, 9.0, 9.0, 1.0, 8.0, 3.0, 9.0])
    machine = bound.Machine(torch.device("cpu"), lambda work: next(seconds))
    machine.measure()
    machine.measure()
    work = bound.Work(flops=2.0 * 1024**3, normals=2**20)
    assert machine.seconds(work) == pytest.approx(1.0 + 3.0)
