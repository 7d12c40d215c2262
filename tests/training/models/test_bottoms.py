"""Engines whose devices have convolutional bottom models."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from vflpriv.core.data import VerticalData
from vflpriv.core.wire import Transcript, Wire
from vflpriv.errors import InputError
from vflpriv.training.models import modules
from vflpriv.training.models.architectures import ConvNet
from vflpriv.training.models.modules import ModuleModel

VARIANTS = ["split-concat", "fedbcd", "vafl-concat", "dpzv-joint", "cascaded", "czofo", "vimadmm", "vimadmm-j"]


def pictures(records: int = 60) -> VerticalData:
    """Three devices with 4x6 pictures: a bright column tells the class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(records + 30) % 3
    blocks = []
    for _ in range(3):
        block = 0.2 * torch.randn(records + 30, 4, 6, generator=generator)
        block[torch.arange(records + 30), :, 2 * labels] += 1.0
        blocks.append(block)
    return VerticalData(
        name="pictures",
        classes=3,
        blocks=tuple(b[:records] for b in blocks),
        labels=labels[:records],
        test_blocks=tuple(b[records:] for b in blocks),
        test_labels=labels[records:],
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_replicas_of_convolutional_bottoms_are_independent(variant):
    system = make_system(variant, data=pictures(), bottom="cnn2", hidden=(2, 3), rounds=4)
    sent = {}
    for replicas in ((3, 0), (0,)):
        transcript = Transcript()
        system.train(replicas).run(Wire(transcript))
        sent[replicas] = transcript.messages
    for together, alone in zip(sent[3, 0], sent[0,], strict=True):
        for name, tensor in alone.tensors.items():
            torch.testing.assert_close(together.tensors[name][1], tensor[0], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shared", [True, False])
def test_many_records_are_computed_replica_by_replica_with_the_same_outputs_and_gradients(shared, monkeypatch):
    module = ConvNet((1, 4, 6), (2, 3), 5, average=False, activate=True)
    model = ModuleModel(module, inputs=24, key=("cnn",))
    generator = torch.Generator().manual_seed(0)
    parameters = {n: torch.randn(3, *shape, generator=generator) for n, shape in model.shapes.items()}
    rows = torch.randn(*(() if shared else (3,)), 40, 24, generator=generator)
    found = []
    for many in (41, 40):
        monkeypatch.setattr(modules, "_MANY", many)
        leaves = {n: v.clone().requires_grad_() for n, v in parameters.items()}
        outputs = model.apply(leaves, rows)
        found.append((outputs.detach(), *torch.autograd.grad(outputs.square().sum(), list(leaves.values()))))
    assert found[0][0].shape == (3, 40, 5)
    for together, alone in zip(*found, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


def test_a_convolutional_bottom_learns():
    """Margin: a thousandth of the loss is left, and all images are classified."""
    system = make_system(
        "split-concat",
        data=pictures(120),
        bottom="cnn2",
        hidden=(4, 8),
        embedding=16,
        top_hidden=(),
        rounds=200,
        batch_size=30,
        device_rate=0.5,
        server_rate=0.5,
    )
    engine = system.train([0])
    before = engine.evaluate()
    engine.run(Wire())
    after = engine.evaluate()
    assert float(after.loss) < 0.5 * float(before.loss)
    assert float(after.accuracy) > 0.9


def test_a_convolutional_bottom_refuses_blocks_that_are_not_images():
    with pytest.raises(InputError, match="cnn2"):
        make_system("split-concat", bottom="cnn2").train([0])


def test_random_neurons_need_layers_that_take_them():
    with pytest.raises(ValueError, match="nothing with bottom = 'resnet18': only mlp, cnn2 and cnn4"):
        make_system("vafl-noise", bottom="resnet18", hidden=(4,))
