"""A curious device of DPZV: it learns labels from a strong signal; without one its guess is that of its features."""

from __future__ import annotations

import torch

from tests.support import make_system
from vflpriv.attacks.label.zo_scalar import LabelZoScalar
from vflpriv.audits.scoring.labels import label_score
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.data.loading import load


def scalars(noise: float, rounds: int = 1500, records: int = 60, batch: int = 4) -> tuple[View, torch.Tensor]:
    """Δ as a mean of slopes of two labels over small batches, and the steps of the device's embeddings."""
    random = torch.Generator().manual_seed(0)
    labels, slopes = torch.randint(2, (records,), generator=random), torch.tensor([[1.0, -0.5, 0.3], [-0.8, 0.6, 0.4]])
    messages = []
    for t in range(rounds):
        ids = torch.randperm(records, generator=random)[:batch]
        moves = torch.randn(1, batch, 3, generator=random)
        delta = (slopes[labels[ids]] * moves[0]).sum(-1).mean() + noise * torch.randn((), generator=random)
        up = {"plus": moves, "minus": torch.zeros_like(moves)}
        ends = {"round": t, "records": ids}
        messages.append(Message(sender=device(0), receiver=SERVER, kind="embedding-pair", tensors=up, **ends))
        down = {"delta": delta.reshape(1)}
        messages.append(Message(sender=SERVER, receiver=device(0), kind="zo-scalar", tensors=down, **ends))
    return View(Adversary.parse("eavesdropper"), tuple(messages), 2), labels


def success(noise: float) -> float:
    view, labels = scalars(noise)
    known = Auxiliary(records=torch.arange(8), labels=labels[:8])
    return label_score(LabelZoScalar().run(view, known), labels, auxiliary=known).value


def test_scalars_of_small_batches_give_labels_away_and_noise_hides_them():
    """Margin: 1, 0.98 and 0.62 of the labels are read; 0.13 more would have to be right under noise."""
    assert success(0.0) > 0.95
    assert success(0.0) > success(2.0) + 0.1 > success(50.0)
    assert success(50.0) < 0.75


def test_devices_of_a_real_training_learn_labels_from_scalars_of_single_records_and_nothing_under_noise():
    leakage = {}
    for noise in (0.0, 20.0):
        system = make_system(
            "dpzv-sgd",
            rounds=1600,
            batch_size=1,
            embedding=8,
            top_hidden=(16,),
            smoothing=1e-3,
            activation="round-robin",
            device_rate=5e-4,
            server_rate=0.01,
            noise_std=noise,
            data=load("digits", devices=4, partition="rows", train=200),
        )
        trials = Trials(system=system, seeds=2, labels_per_class=4, confidence=0.95)
        (tried,) = trials.run([LabelZoScalar()], [Adversary.parse("devices(all)")])
        leakage[noise] = tried.mean
    assert leakage[0.0].value > 0.9
    assert leakage[0.0].leakage.value > 0.1
    assert abs(leakage[20.0].leakage.value) < 0.05


def test_without_a_signal_the_guess_is_that_of_the_features(watch):
    system = make_system("dpzv-joint", rounds=60, noise_std=1e6)
    view = watch(system, "device(0)")
    known = Auxiliary(records=torch.arange(6), labels=system.data.labels[:6])
    alone = LabelZoScalar().blind(view.silent(), known)
    guess = LabelZoScalar().run(view, known)
    assert (guess.values[0] == alone.values[0][guess.records]).to(torch.float32).mean() > 0.9
