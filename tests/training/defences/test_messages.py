"""Defences that round, cut or noise messages, each on values whose result is known."""

from __future__ import annotations

import math

import pytest
import torch

from tests.support import make_system
from vflpriv.common.random import Stream
from vflpriv.common.registry import find
from vflpriv.core.wire import Payload
from vflpriv.errors import InputError
from vflpriv.run.systems import inapplicable
from vflpriv.training.defence import Exchange, Protected, defended, parse_defence
from vflpriv.training.defence import Guard as BaseGuard

VALUES = torch.tensor([[[1.0, -8.0, 0.5, 2.0], [3.0, 0.25, -4.0, 0.0]]])


def protected(name: str, values: torch.Tensor = VALUES, **strengths: float) -> Protected:
    guard = find("defence", name)(**strengths).guard(Stream.of(0, "defence", range(len(values)), torch.device("cpu")))
    labels = torch.zeros(values.shape[:2], dtype=torch.int64)
    return guard.protect(values, Exchange(round=3, party=1, labels=labels, received={}))


def test_compression_keeps_the_largest_entries_of_the_batch():
    found = protected("compression", kept=0.25)
    assert found.values.tolist() == [[[0, -8.0, 0, 0], [0, 0, -4.0, 0]]]
    assert found.size == 2 * 8


def test_top_k_keeps_the_largest_entries_of_each_record():
    found = protected("top-k", kept=0.5)
    assert found.values.tolist() == [[[0, -8.0, 0, 2.0], [3.0, 0, -4.0, 0]]]
    assert found.size == 4 * 6


def test_discrete_gradients_are_multiples_of_a_step():
    found = protected("discrete", steps=4, bound=2.0)
    step = float(VALUES.square().mean().sqrt())
    multiples = found.values / step
    assert torch.allclose(multiples, multiples.round(), atol=1e-5)
    assert float((found.values - VALUES).abs().max()) <= step / 2 + 1e-6
    assert found.size == 2 * 8 + 4


def test_quantised_outputs_have_few_values_and_keep_the_extremes():
    found = protected("quantised", bits=2)
    assert len(found.values.unique()) <= 4
    assert (float(found.values.min()), float(found.values.max())) == (-8.0, 3.0)
    assert found.size == 2 + 8


def test_laplace_noise_has_its_scale_and_no_mean():
    values = torch.zeros(1, 2000, 10)
    noise = protected("laplace", values, scale=0.3).values
    assert float(noise.abs().mean()) == pytest.approx(0.3, rel=0.03)
    assert abs(float(noise.mean())) < 4 * 0.3 * math.sqrt(2 / noise.numel())


def test_max_norm_levels_the_mean_squared_norm():
    values = VALUES.repeat(1, 5000, 1)
    squares = protected("max-norm", values).values.square().sum(-1).reshape(-1, 2).mean(0)
    largest = VALUES.square().sum(-1).max()
    torch.testing.assert_close(squares, torch.stack([largest, largest]), rtol=0.08, atol=0.0)


def test_ppdl_sends_a_share_of_clipped_entries():
    """Margin: of two thousand values none is as close to the threshold as single precision is rounded."""
    values = torch.randn(2, 50, 20, generator=torch.Generator().manual_seed(0))
    quiet = protected("ppdl", values, share=0.3, clip=0.5, threshold=0.4, epsilon=1e9).values
    sent = quiet != 0
    assert (sent.flatten(1).sum(1) == 300).all()
    assert float(quiet.abs().max()) == 0.5
    assert float(values[sent].abs().min()) >= 0.4
    assert torch.allclose(quiet[sent], values[sent].clamp(-0.5, 0.5), atol=1e-4)
    noisy = protected("ppdl", values, share=0.3, clip=0.5, threshold=0.4, epsilon=100.0).values
    assert float(values[noisy != 0].abs().min()) < 0.2, "noise lets small entries pass"


def test_a_value_for_all_devices_is_protected_once_and_other_kinds_not_at_all():
    class Counted(BaseGuard):
        calls = 0

        def protect(self, values, exchange):
            self.calls += 1
            return Protected(values=values + exchange.party + 1, size=7)

    guard, shared = Counted(), VALUES.clone()
    payloads = {m: Payload("logit-gradient", {"gradient": shared}) for m in (2, 4)}
    payloads[5] = Payload("summed-logits", {"logits": shared})
    exchange = Exchange(round=0, party=0, labels=torch.zeros(1, 2), received={})
    sent = defended(guard, find("defence", "laplace").content, payloads, exchange)
    assert guard.calls == 1
    assert torch.equal(sent[2].tensors["gradient"], VALUES + 3)
    assert sent[4].tensors["gradient"] is sent[2].tensors["gradient"]
    assert (sent[2].size, sent[5].size) == (7, None)
    assert torch.equal(sent[5].tensors["logits"], VALUES)


def test_perturbed_outputs_are_protected_as_well():
    engine = make_system("czofo", defence={"name": "quantised", "bits": 1}).train((0,))
    from vflpriv.core.wire import Transcript, Wire

    transcript = Transcript()
    engine.round(0, Wire(transcript))
    up = next(m for m in transcript.messages if not m.sender.is_server)
    assert all(len(value.unique()) <= 2 for value in up.tensors.values())
    assert len(up.tensors) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nothing", "defence = 'nothing': expected one of alibi, "),
        ({"kept": 0.5}, "defence = {'kept': 0.5}: expected the name of a defence"),
        (3, "defence = 3: expected the name of a defence"),
    ],
)
def test_what_is_no_defence_is_refused(value, message):
    with pytest.raises(InputError, match="expected") as caught:
        parse_defence(value)
    assert str(caught.value).startswith(message)


def test_a_defence_sets_the_settings_of_its_engine_and_contradicts_none():
    settings = make_system("split-concat", defence={"name": "randomised-response", "epsilon": 2.0}).settings
    assert (settings.label_protection, settings.label_noise) == ("rr", 2.0)
    assert type(settings).model_validate(settings.model_dump()) == settings
    with pytest.raises(ValueError, match=r"label_noise is 2\.0 by the defence alibi, not 1\.0"):
        make_system("split-concat", defence="alibi", label_noise=1.0)


def test_answers_to_the_server_are_protected_like_all_outputs():
    from vflpriv.core.wire import Transcript, Wire

    transcript = Transcript()
    make_system("vafl-weighted", rounds=12, defence={"name": "quantised", "bits": 1}).train((0,)).run(Wire(transcript))
    asked = {(m.round, m.receiver) for m in transcript.messages if m.kind == "refresh-request"}
    up = [m for m in transcript.messages if not m.sender.is_server]
    assert any((m.round, m.sender) in asked for m in up), "some outputs are answers"
    assert all(len(value.unique()) <= 2 for m in up for value in m.tensors.values())


def test_noise_that_audits_follow_is_not_changed_on_its_way():
    plain = make_system("split-embedding")
    for name, applies in (("quantised", False), ("compression", True)):
        defence = find("defence", name)()
        reason = inapplicable(defence, plain.engine, plain.settings, plain.schedule, plain.classes)
        assert (reason is None) is applies
    assert "without noise of the engine's own" in inapplicable(
        find("defence", "quantised")(), plain.engine, plain.settings, plain.schedule, plain.classes
    )
