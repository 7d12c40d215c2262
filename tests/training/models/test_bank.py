"""The bank of bottom models: a part of it steps its leaves devices, and no others."""

from __future__ import annotations

import pytest
import torch

from tests.support import toy_data
from vflpriv.common.random import Stream
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Mlp
from vflpriv.training.models.mlp import FusedMlp
from vflpriv.training.models.passes import Sgd, constant

STREAM = Stream.of(0, "init", range(6), torch.device("cpu"))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_part_of_a_bank_steps_its_devices_and_keeps_their_momentum(momentum):
    data = toy_data()
    models = [FusedMlp((5, w, 4), activate=True) for w in (6, 6, 7, 6)]
    whole = Bank(models, STREAM)
    reference = [{n: v.clone() for n, v in p.items()} for p in whole.parameters]
    velocity = [dict.fromkeys(p, 0.0) for p in reference]
    records, blocks = torch.arange(10), [0, 1, 2, 0]
    data = data.__class__(**{**vars(data), "blocks": tuple(data.blocks[k] for k in blocks)})
    assert whole.groups == [[0, 1, 3], [2]]
    for members in ([0, 3], [2], [1, 2, 3], [0, 1, 2, 3], [3]):
        part = whole.part(members)
        passes = part.start(part.inputs(data, records))
        slopes = [constant(torch.ones_like(own.outputs)) for own in passes]
        part.descend(passes, slopes, Sgd(rate=0.1, momentum=momentum, weight_decay=0.01))
        for m in members:
            w = {n: v.clone().requires_grad_() for n, v in reference[m].items()}
            out = Mlp(models[m].widths, activate=True).apply(w, data.blocks[m][records].expand(6, -1, -1))
            for (n, v), g in zip(w.items(), torch.autograd.grad(out.sum(), list(w.values())), strict=True):
                velocity[m][n] = momentum * velocity[m][n] + g + 0.01 * v.detach()
                reference[m][n] = v.detach() - 0.1 * velocity[m][n]
        for trained, expected in zip(whole.parameters, reference, strict=True):
            for n, v in expected.items():
                torch.testing.assert_close(trained[n], v, atol=1e-5, rtol=1e-4)
    assert whole.part([0, 1, 2, 3]) is whole


@pytest.mark.parametrize("cache", [1, 1 << 10, 1 << 20], ids=["one model at once", "a few", "all"])
@pytest.mark.parametrize("steps", [1, 3])
def test_rows_that_replicas_share_give_what_copies_of_them_give(monkeypatch, cache, steps):
    monkeypatch.setattr("vflpriv.training.models.layers._CACHE", cache)
    data, records = toy_data(), torch.arange(10)
    shared, copied = (Bank([FusedMlp((5, 6, 4), activate=True) for _ in data.blocks], STREAM) for _ in range(2))
    inputs = shared.inputs(data, records)
    assert inputs[0].shape == (3, 6, 10, 5), "three devices, six replicas"
    assert inputs[0].stride(1) == 0, "not copied for each replica"
    for bank, rows in (
        (shared, inputs),
        (copied, [own.clone(memory_format=torch.contiguous_format) for own in inputs]),
    ):
        passes = bank.start(rows)
        bank.descend(passes, [lambda models, step, out: out * (1 + step)], Sgd(rate=0.1, momentum=0.9), steps=steps)
    for ours, theirs in zip(shared.parameters, copied.parameters, strict=True):
        for name, value in theirs.items():
            torch.testing.assert_close(ours[name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("ids", [[7, 0, 3], []])
@pytest.mark.parametrize("members", [[0, 1, 2], [1, 2], [2, 0]])
def test_blocks_side_by_side_in_memory_give_the_same_rows(members, ids):
    data, records = toy_data().standardised(), torch.tensor(ids, dtype=torch.int64)
    bank = Bank([FusedMlp((5, 4), activate=True) for _ in data.blocks], STREAM).part(members)
    (rows,) = bank.inputs(data, records)
    for own, m in zip(rows, members, strict=True):
        assert torch.equal(own[0], data.blocks[m][records])
