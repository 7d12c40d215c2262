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
