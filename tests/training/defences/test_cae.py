"""CAE and DCAE: labels are confused, can be decoded, and gradients are those of the soft labels."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import seen, two_blocks
from tests.support import make_system
from vflpriv.attacks.label.clusters import LabelGradientClusters
from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.training.defences.cae import Autoencoder, Cae


def stream(replicas: int = 4) -> Stream:
    return Stream.of(0, "defence", range(replicas), torch.device("cpu"))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_soft_labels_are_largest_at_another_class_and_can_be_decoded(classes):
    made = Autoencoder(stream(), classes, confusion=1.0, entropy=2.0)
    every = torch.arange(classes)
    torch.testing.assert_close(made.soft.sum(-1), torch.ones(4, classes))
    assert not bool((made.soft.argmax(-1) == every).any())
    assert bool((made.decoded(made.soft).argmax(-1) == every).all())


def test_without_confusion_labels_may_stay_as_they_are():
    made = Autoencoder(stream(8), 2, confusion=0.0, entropy=0.0)
    assert bool((made.soft.argmax(-1) == torch.arange(2)).any())


def test_probabilities_of_labels_become_the_same_mixture_of_soft_labels():
    guard = Cae().guard(stream())
    labels = torch.tensor([[0, 2, 1]]).expand(4, -1)
    onehot = torch.nn.functional.one_hot(labels, 3).to(torch.float32)
    torch.testing.assert_close(guard.targets(onehot, 3), guard.targets(labels, 3))


def test_gradients_are_those_of_soft_labels_and_predictions_are_decoded():
    """Margin: all records are classified where 0.9 are asked."""
    system, tape = make_system("split-sum", defence="cae", rounds=200, device_rate=0.5), Transcript()
    engine = system.train([0])
    engine.run(Wire(tape))
    message = next(m for m in tape.messages if m.kind == "logit-gradient")
    guessed = message.tensors["gradient"][0].argmin(-1)
    assert not bool((guessed == system.data.labels[message.records]).any()), "the label is where no gradient points"
    assert float(engine.evaluate().accuracy) > 0.9
    raw = engine.predict(system.data.test_blocks, 1).argmax(-1)[0]
    assert float((raw == system.data.test_labels).to(torch.float32).mean()) < 0.1


@pytest.mark.parametrize("name", ["cae", "dcae"])
def test_a_few_known_labels_undo_it(name):
    data = two_blocks(6, 6, classes=3, records=300)
    training = {"rounds": 40, "batch_size": 64, "device_rate": 0.1, "server_rate": 0.1, "top_hidden": ()}
    view = seen(make_system("split-concat", data=data, defence=name, **training), "device(0)")
    few = torch.cat([(data.labels == c).nonzero().flatten()[:4] for c in range(3)]).sort().values
    guess = LabelGradientClusters().run(view, Auxiliary(records=few, labels=data.labels[few], seed=1))
    assert float((guess.values[0] == data.labels[guess.records]).to(torch.float32).mean()) > 0.6
