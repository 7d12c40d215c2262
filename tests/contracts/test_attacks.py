"""What every attack must keep: it declares what it needs, and sees nothing but its view."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from tests.support import ENGINES, make_system
from vflpriv.registry import available
from vflpriv.views import Adversary, View
from vflpriv.wire import Transcript, Wire

ATTACKS = list(available("attack").values())


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_declares_itself(attack):
    assert attack.name
    assert attack.summary
    assert attack.target in ("labels", "features")
    assert attack.needs
    assert list(inspect.signature(attack.run).parameters) == ["self", "view"]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("variant", list(ENGINES))
@pytest.mark.parametrize("adversary", ["device(0)", "eavesdropper", "outsider", "model"])
def test_it_runs_or_says_why_not(attack, variant, adversary):
    system = make_system(variant, rounds=6)
    transcript = Transcript()
    engine = system.train([0])
    engine.run(Wire(transcript))
    shape = {"devices": system.data.devices, "classes": system.data.classes}
    view = View.of(transcript, Adversary.parse(adversary), **shape)
    reason = attack().refusal(view)
    if reason is None:
        guess = attack().run(view)
        assert guess.labels.shape[-1] == len(guess.records) > 0
    else:
        assert reason.startswith("needs ")


def test_a_view_has_no_path_to_the_servers_labels():
    """Walk everything that hangs on a device's view: no tensor in it holds the training labels."""
    system = make_system("split-sum")
    transcript = Transcript()
    engine = system.train([0])
    engine.run(Wire(transcript))
    view = View.of(transcript, Adversary.parse("device(0)"), devices=3, classes=3)
    assert {f.name for f in dataclasses.fields(view)} == {"adversary", "messages", "classes", "secrets"}
    for message in view.messages:
        assert {f.name for f in dataclasses.fields(message)} == {
            "round",
            "sender",
            "receiver",
            "kind",
            "tensors",
            "records",
            "worlds",
            "shifts",
        }
        assert not message.worlds
        assert message.device.index == 0
    assert not view.secrets
