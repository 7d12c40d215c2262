"""The callback for SecretFlow's split learning, with stand-ins that call its hooks by the same names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import vflpriv
from vflpriv.errors import InputError
from vflpriv.recording.adapters.secretflow import watch_split_learning

RECORDS, BATCH = 5, 2
PHASES = ("base_forward", "base_backward", "fuse_forward", "fuse_backward")
AROUND = ("predict", "test", "batch", "test_batch", "predict_batch", *PHASES)
ENDS = [f"on_{what}_{end}" for what in AROUND for end in ("begin", "end")]
HOOKS = [*ENDS, "on_train_begin", "on_epoch_end", "on_agglayer_forward_end", "on_agglayer_backward_begin"]
"""Those of SecretFlow's `Callback` that the recording does not need."""


def party(name):
    """A SecretFlow device."""
    return SimpleNamespace(party=name)


class Held:
    """A value at a party, which the driver must reveal."""

    def __init__(self, value):
        self.value = value


class Devices(dict):
    """Values by device: devices are not hashable here, and are looked up by identity, as objects are."""

    def items(self):
        return [(party(name), value) for name, value in super().items()]


def callback_of(folder, **options):
    labels = torch.arange(RECORDS) % 2
    given = {"labels": labels, "classes": 2, "batch_size": BATCH, "folder": folder, "reveal": lambda held: held.value}
    callback = watch_split_learning([party("alice"), "carol"], **(given | options))
    callback.set_workers({}, party("bob"))
    callback.set_params({})
    return callback


def fit(callback, *, epochs=2, evaluate=False):
    """The hooks of a training, in SecretFlow's order; alice's values are the number of the step, carol's ten times."""
    step = 0
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch=epoch, logs={})
        for batch, rows in enumerate((2, 2, 1)):
            callback.on_train_batch_begin(batch)
            values = Devices(
                {
                    "alice": Held([torch.full((rows, 3), float(step))]),
                    "bob": Held(torch.zeros(rows, 3)),
                    "carol": Held(torch.full((rows, 3), 10.0 * step)),
                }
            )
            callback.on_agglayer_forward_begin(values)
            callback.on_agglayer_backward_end(values)
            callback.on_train_batch_end(batch)
            step += 1
        if evaluate:
            callback.on_test_batch_begin(0)
            callback.on_agglayer_forward_begin(values)
            callback.on_test_batch_end(0)
    callback.on_train_end()


def test_outputs_and_gradients_of_parties_without_labels_are_recorded(tmp_path):
    fit(callback_of(tmp_path), evaluate=True)
    messages = vflpriv.read_transcript(tmp_path).transcript.messages
    expected = [(step, kind, m) for step in range(6) for kind in ("embeddings", "embedding-gradient") for m in range(2)]
    assert [(m.round, m.kind, m.device.index) for m in messages] == expected
    assert [m.records.tolist() for m in messages[::4]] == [[0, 1], [2, 3], [4]] * 2
    assert {float(m.tensors["embedding"].max()) for m in messages if m.kind == "embeddings"} == {
        *map(float, range(6)),
        *(10.0 * step for step in range(6)),
    }


def test_shuffled_batches_are_told(tmp_path):
    order = {
        (epoch, batch): [4 - r for r in range(RECORDS)][2 * batch : 2 * batch + 2]
        for epoch in range(2)
        for batch in range(3)
    }
    fit(callback_of(tmp_path, ids=lambda epoch, batch: order[epoch, batch]))
    messages = vflpriv.read_transcript(tmp_path).transcript.messages
    assert [m.records.tolist() for m in messages[::4]] == [[4, 3], [2, 1], [0]] * 2


def test_every_other_hook_is_there_and_does_nothing(tmp_path):
    callback = callback_of(tmp_path)
    for hook in HOOKS:
        assert getattr(callback, hook)(None) is None
    with pytest.raises(AttributeError):
        _ = callback.workers
    callback.on_train_end()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"dave": Held(torch.zeros(2, 3))},
            "hiddens = 'dave': expected a party from watch_split_learning(parties=...)",
        ),
        ({"alice": Held([torch.zeros(2, 3)] * 2)}, "hiddens: alice = '2 outputs': expected one output for each party"),
        ({"alice": Held(torch.zeros(3, 3))}, "embeddings: embedding = (3, 3): expected 2 (batch)"),
    ],
)
def test_what_cannot_be_recorded_is_one_clear_line(tmp_path, values, expected):
    callback = callback_of(tmp_path)
    callback.on_train_batch_begin(0)
    with pytest.raises(InputError) as error:
        callback.on_agglayer_forward_begin(Devices(values))
    assert str(error.value).startswith(expected)


def test_values_that_only_secretflow_can_reveal_need_it(tmp_path):
    callback = callback_of(tmp_path, reveal=None)
    callback.on_train_batch_begin(0)
    with pytest.raises(InputError, match="hiddens = 'Held': expected an array, or SecretFlow installed"):
        callback.on_agglayer_forward_begin(Devices({"alice": Held(None)}))


def test_batches_have_a_size(tmp_path):
    with pytest.raises(InputError, match="batch_size = 0"):
        callback_of(tmp_path, batch_size=0)
