"""Noise of recorded trainings: noise that is missing, too small or returns is found beside a large signal."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vflpriv.audits.recorded.noise import QUESTIONS, noise_limit, recorded_noises
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

STD = 0.1


def ledger(noise=None, **fields):
    release = SimpleNamespace(kind="rows", noise=noise or Gaussian(STD), once=False, **fields)
    return SimpleNamespace(releases=(release,))


def gaussian(generator, shape):
    return STD * generator.standard_normal(shape)


def transcript(noise_of, *, rounds=60, devices=2, records=16, batch=8, width=6, drift=1e-3, seed=0, **options):
    """Embeddings of size 10, 100 times the noise, that move slowly; `noise_of(round, device, shape, generator)`."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((devices, records, 3))
    weights = 10 / 3**0.5 * generator.standard_normal((devices, 3, width))
    messages = []
    for t in range(rounds):
        ids = np.arange(records) if options.get("full") else (np.arange(batch) + t * batch) % records
        ids = generator.permutation(records)[:batch] if options.get("shuffled") else ids
        weights = weights + 10 * drift * generator.standard_normal(weights.shape)
        for m in range(devices):
            signal = features[m, ids] @ weights[m]
            x = torch.from_numpy(signal + noise_of(t, m, signal.shape, generator)).to(
                options.get("dtype", torch.float32)
            )
            if options.get("mean"):
                x, ids_of = x.mean(0), None
            else:
                ids_of = torch.from_numpy(ids)
            messages.append(
                Message(round=t, sender=device(m), receiver=SERVER, kind="rows", tensors={"x": x[None]}, records=ids_of)
            )
    return messages


def sound(t, m, shape, generator):
    return gaussian(generator, shape)


def seeded(*seed):
    return np.random.default_rng(seed)


WRONG = {
    "absent": ({}, lambda t, m, shape, g: 0.0),
    "half": ({}, lambda t, m, shape, g: 0.5 * gaussian(g, shape)),
    "a fifth less": ({"rounds": 200, "drift": 1e-4}, lambda t, m, shape, g: 0.8 * gaussian(g, shape)),
    "the same every round": ({"full": True}, lambda t, m, shape, g: gaussian(seeded(m), shape)),
    "constant after round 40": ({"full": True}, lambda t, m, shape, g: gaussian(seeded(m, min(t, 40)), shape)),
    "period of 13 rounds": ({"full": True}, lambda t, m, shape, g: gaussian(seeded(m, t % 13), shape)),
    "opposite in every second round": (
        {"full": True},
        lambda t, m, shape, g: (-1) ** t * gaussian(seeded(m, t // 2), shape),
    ),
    "the same in all batches": ({"shuffled": True, "rounds": 120}, lambda t, m, shape, g: gaussian(seeded(m), shape)),
    "the same at both devices": ({"full": True}, lambda t, m, shape, g: gaussian(seeded(t), shape)),
    "absent at one device": ({}, lambda t, m, shape, g: m * gaussian(g, shape)),
    "absent in the last quarter": ({}, lambda t, m, shape, g: (t < 45) * gaussian(g, shape)),
    "absent in the second half of the entries": (
        {},
        lambda t, m, shape, g: (np.arange(shape[1]) < 3) * gaussian(g, shape),
    ),
    "absent in a signal that jumps": ({"drift": 0.5}, lambda t, m, shape, g: 0.0),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_noise_beside_a_large_signal_is_found(name):
    """Margin: the noise alone has p = 1, the draws are the same everywhere."""
    options, noise_of = WRONG[name]
    (noise,) = recorded_noises(ledger(), transcript(noise_of, **options), shared=(), confidence=0.95)
    assert not noise.holds, noise.sentence
    assert "too small to hold it" in noise.sentence
    assert "as they are" not in noise.sentence
    (alone,) = (t for t in noise.tests if t.name == "size")
    assert alone.p_value > 0.9


SOUND = {
    "rows": {},
    "whole messages": {"mean": True},
    "full batches": {"full": True},
    "a signal that stands still": {"full": True, "drift": 0.0},
    "half precision": {"full": True, "dtype": torch.float16},
    "noise below the precision": {"full": True, "drift": 0.0, "dtype": torch.bfloat16},
    "long": {"rounds": 400, "records": 8, "devices": 1, "width": 2, "full": True},
}


@pytest.mark.parametrize("name", list(SOUND))
def test_sound_noise_is_not_accused(name):
    noise_of = sound
    if SOUND[name].get("mean"):

        def noise_of(t, m, shape, generator):
            return gaussian(generator, (1, shape[1]))

    messages = transcript(noise_of, **SOUND[name])
    (noise,) = recorded_noises(ledger(), messages, shared=(), confidence=0.95)
    assert noise.holds, noise.sentence
    assert f"{sum(m.tensors['x'].numel() for m in messages)} entries of {len(messages)} messages" in noise.sentence
    assert "large enough to hold it in" in noise.sentence


def refuted(noise, draw, repetitions, level=0.05):
    """How often each test has a p-value below the level, with a signal that remembers all earlier noise."""
    counts = {}
    for seed in range(repetitions):
        memory = {}

        def noise_of(t, m, shape, generator, memory=memory):
            fresh = draw(generator, shape)
            kept = 0.9 * memory.get(m, 0.0)
            memory[m] = kept + fresh  # the signal holds the noise before: the hardest case for differences
            return memory[m]

        (result,) = recorded_noises(
            ledger(noise),
            transcript(
                noise_of, rounds=10, records=8, width=4, drift=0.0, seed=seed, full=seed % 2 == 0, shuffled=seed % 2
            ),
            shared=(),
            confidence=0.95,
        )
        for test in result.tests:
            counts.setdefault(test.name, []).append(test.p_value <= level)
        counts.setdefault("together", []).append(result.p_adjusted <= level)
    return {name: float(np.mean(found)) for name, found in counts.items()}


def laplacian(generator, shape):
    return generator.laplace(scale=STD, size=shape)


@pytest.mark.parametrize(("noise", "draw"), [(Gaussian(STD), gaussian), (Laplace(STD), laplacian)])
def test_declared_noise_is_rarely_refuted_by_any_prediction(noise, draw):
    """Margin: the draws are the same everywhere, and three and a half standard errors are allowed."""
    rates = refuted(noise, draw, 60)
    assert set(rates) == {*QUESTIONS, "together"}
    assert max(rates.values()) <= 0.05 + 3.5 * 0.0282, rates


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "draw"), [(Gaussian(STD), gaussian), (Laplace(STD), laplacian)])
def test_declared_noise_is_rarely_refuted_over_many_trainings(noise, draw):
    """Margin: the draws are the same everywhere, and three and a half standard errors are allowed."""
    rates = refuted(noise, draw, 1000)
    assert max(rates.values()) <= 0.05 + 3.5 * 0.0069, rates


@pytest.mark.parametrize("fault", [0.5, 0.0])
def test_laplace_noise_that_is_too_small_is_found(fault):
    messages = transcript(lambda t, m, shape, g: fault * laplacian(g, shape))
    (noise,) = recorded_noises(ledger(Laplace(STD)), messages, shared=(), confidence=0.95)
    assert not noise.holds


@pytest.mark.parametrize(("step", "holds"), [(0.5, False), (STD, True)])
def test_values_rounded_to_a_coarse_step_after_the_noise_are_not_too_small(step, holds):
    """Steps so coarse that values would pass without noise say nothing of it."""
    messages = [
        Message(round=m.round, sender=m.sender, receiver=SERVER, kind="rows", tensors={"x": x}, records=m.records)
        for m in transcript(sound, full=True, drift=0.0)
        for x in [(m.tensors["x"] / step).round() * step]
    ]
    (noise,) = recorded_noises(ledger(), messages, shared=(), confidence=0.95)
    assert not noise.rejected, noise.sentence
    assert noise.holds == holds
    assert noise.coarse != holds


def test_claims_about_values_without_their_noise_are_unmeasured_and_not_violated():
    (noise,) = recorded_noises(ledger(), transcript(lambda t, m, shape, g: 0.0), shared=(), confidence=0.95)
    claims = [
        Claim.of_epsilon(1.0, 1e-5, key=view, source="", where="", statement="", unit=Unit.RECORD, view=view)
        for view in ("server", "device(0)")
    ]
    seen = {"seen_by": {"server"}, "sensitivity": {Unit.RECORD: 1.0}}
    finding, *others = noise.findings(claims, ledger(**seen).releases)
    assert finding.verdict is Verdict.UNMEASURED
    assert "missing, or they were processed after it" in finding.sentence
    assert [other.claim for other in others] == ["server"]
    assert {other.verdict for other in others} == {Verdict.UNMEASURED}


def test_one_value_for_all_devices_is_one_release():
    generator = np.random.default_rng(0)
    messages = []
    for t in range(30):
        x = torch.from_numpy(5 + gaussian(generator, (1, 20))).float()
        messages += [
            Message(round=t, sender=SERVER, receiver=device(m), kind="rows", tensors={"x": x.clone()}) for m in range(3)
        ]
    (noise,) = recorded_noises(ledger(), messages, shared=(), confidence=0.95)
    assert noise.holds, noise.sentence
    assert noise.entries == 600
    (noise,) = recorded_noises(ledger(), messages, shared=("rows",), confidence=0.95)
    assert noise.entries == 600


def test_kinds_without_such_noise_or_without_messages_are_not_tested():
    messages = transcript(sound, rounds=2)
    assert recorded_noises(ledger(RandomizedResponse(1.0)), messages, shared=(), confidence=0.95) == []
    assert recorded_noises(ledger(), [], shared=(), confidence=0.95) == []


def test_of_a_long_recording_some_entries_of_every_message_are_looked_at(monkeypatch):
    monkeypatch.setattr("vflpriv.audits.recorded.noise._MOST", 10_000)
    options = {"rounds": 40, "width": 30}
    (noise,) = recorded_noises(ledger(), transcript(sound, **options), shared=(), confidence=0.95)
    assert (noise.holds, noise.entries, noise.messages) == (True, 80 * 8 * 16, 80)
    messages = transcript(lambda t, m, shape, g: 0.0, **options)
    (noise,) = recorded_noises(ledger(), messages, shared=(), confidence=0.95)
    assert not noise.holds


def test_what_a_recording_cannot_show():
    """A signal that nothing predicts hides missing noise."""
    generator = np.random.default_rng(0)
    unpredictable = transcript(lambda t, m, shape, g: generator.standard_normal(shape))
    (noise,) = recorded_noises(ledger(), unpredictable, shared=(), confidence=0.95)
    assert noise.holds


def test_a_close_call_is_no_refutation():
    """At 5 % one sound training in twenty would be accused."""
    generator = np.random.default_rng(0)
    x = torch.from_numpy(0.85 * gaussian(generator, (1, 60))).float()
    message = Message(round=0, sender=SERVER, receiver=device(0), kind="rows", tensors={"x": x})
    (noise,) = recorded_noises(ledger(), [message], shared=(), confidence=0.95)
    assert 1e-3 < noise.p_adjusted < 0.2
    assert noise.holds


@pytest.mark.parametrize("factor", [0.0, 1.0, 20.0])
def test_the_largest_noise_that_messages_can_hold_is_never_below_theirs(factor):
    messages = transcript(lambda t, m, shape, g: factor * gaussian(g, shape), drift=1e-4)
    limit = noise_limit(messages, "rows")
    assert factor * STD <= limit.std <= 1.5 * factor * STD + 0.02
    assert limit.size > 5
    assert noise_limit(messages, "others") is None


def test_of_noise_alone_the_limit_is_its_size_and_no_less():
    rng = np.random.default_rng(0)
    messages = []
    for t in range(400):
        noise = torch.from_numpy(gaussian(rng, (1, 4, 6)))
        ids = torch.arange(4) + 4 * t
        messages.append(
            Message(round=t, sender=device(0), receiver=SERVER, kind="rows", tensors={"x": noise}, records=ids)
        )
    limit = noise_limit(messages, "rows")
    assert limit.question == QUESTIONS["size"]
    assert STD <= limit.std <= 1.06 * STD
    assert limit.size == pytest.approx(STD, rel=0.03)
