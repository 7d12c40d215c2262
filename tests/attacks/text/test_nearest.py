"""Tokens of a text split: all of them from exact states, in any round and behind layers; none from noised ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import make_system
from tests.training.models import encoders
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.attacks.text.nearest import TextLayers, TextNearest
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

SERVER = Adversary.parse("server")
WORDS, TOKENS, WIDTH, RECORDS = 200, 8, 16, 40


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published encoder of 200 words with two layers."""
    for name, size in {"WORDS": WORDS, "WIDTH": WIDTH, "INNER": 24}.items():
        monkeypatch.setattr(encoders, name, size)
    encoders.checkpoint(tmp_path, positions=TOKENS)
    weights = load_file(tmp_path / "model.safetensors")
    for name, value in weights.items():
        # As in trained encoders: normalisation that scales little, and layers that add to a token's state.
        if "LayerNorm" in name:
            value.mul_(0.1).add_(float(name.endswith("weight")))
        elif "layer." in name:
            value.mul_(0.5)
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


def texts() -> VerticalData:
    """Texts of 3 to 8 tokens at one device, the commonest of which are more than others; labels mean little."""
    generator = torch.Generator().manual_seed(0)
    ids = 1 + (WORDS - 1) * torch.rand(RECORDS + 20, TOKENS, generator=generator) ** 2
    ids = ids.long()
    ids[torch.arange(TOKENS) >= torch.randint(3, TOKENS + 1, (RECORDS + 20, 1), generator=generator)] = 0
    labels = ids[:, 0] % 2
    return VerticalData(
        name="texts",
        classes=2,
        blocks=(ids[:RECORDS],),
        labels=labels[:RECORDS],
        test_blocks=(ids[RECORDS:],),
        test_labels=labels[RECORDS:],
        vocabulary=WORDS,
    )


def split(folder: Path, variant: str = "cascaded", **changes: Any) -> System:
    """The text split of VFL-Cascaded: the embedding layer at the device, all further layers at the server."""
    sizes = {"bottom": "transformer-embedding", "encoder": str(folder), "embedding": TOKENS * WIDTH}
    sizes |= {"top": "transformer", "top_hidden": (), "rounds": 4, "batch_size": 10}
    return make_system(variant, data=texts(), **(sizes | changes))


def tried(system: System, *attacks: Any, view: str = "server") -> list[Any]:
    return list(Trials(system=system, seeds=1, confidence=0.95).run(attacks, [Adversary.parse(view)]))


@pytest.mark.parametrize(("variant", "view"), [("cascaded", "server"), ("split-concat", "eavesdropper")])
def test_every_token_is_read_off_exact_embeddings(encoder: Path, variant: str, view: str) -> None:
    (attempt,) = tried(split(encoder, variant), TextNearest(), view=view)
    score = attempt.mean
    # Margin: 100 %; training moves the embedding layer by less than words are apart.
    assert score.value > 0.95
    assert score.low > 0.9
    assert score.figures["exact"].value > 0.8
    assert score.figures["rouge"].value > 0.95
    assert score.chance < 0.2
    assert score.guesses == RECORDS


def test_trained_embeddings_are_near_enough_to_the_published_ones(encoder: Path) -> None:
    """Texts that are first sent in the last rounds, after the embedding layer has been trained."""
    system = split(encoder, "split-concat", rounds=12, device_rate=0.2)
    training = Trials(system=system, seeds=1, confidence=0.95).training([TextNearest()], [SERVER])
    late = [m for m in training.transcript.messages if m.round >= 8]
    training.transcript.messages[:] = late
    (attempt,) = Trials(system=system, seeds=1, confidence=0.95).run([TextNearest()], [SERVER], training=training)
    assert attempt.mean.value > 0.95


def test_tokens_are_read_through_a_public_layer(encoder: Path) -> None:
    system = split(encoder, "split-concat", encoder_layers=1, rounds=1, batch_size=RECORDS)
    nearest, through = (attempt.mean for attempt in tried(system, TextNearest(), TextLayers()))
    # Margin: 0.94 and 0.44; the layer's random weights mix tokens more than trained ones do.
    assert through.value > nearest.value + 0.2
    assert through.low > 0.6


def test_noise_at_epsilon_one_leaves_nothing(encoder: Path) -> None:
    """ε = 1 for one record's features: each text is sent once, clipped and noised."""
    changes = {"protection": "embedding", "clip": 1.0, "noise_std": 70.0}
    system = split(encoder, "split-concat", **changes)
    exposure = system.ledger.exposure(SERVER, Unit.FEATURES)
    assert 0.3 < AutoAccountant().budget(exposure, 1e-5).upper < 1.0
    for attempt in tried(system, TextNearest()):
        # Margin: one token of 200 is right by luck; the share of the commonest token is 0.08.
        assert attempt.mean.value < 0.04
        assert attempt.mean.leakage.value < 0
        assert attempt.mean.figures["exact"].value == 0.0


def test_without_published_weights_it_says_so(encoder: Path) -> None:
    system = make_system("split-concat", data=texts(), bottom="lstm", hidden=(8, 8), rounds=4)
    (attempt,) = tried(system, TextNearest())
    assert attempt.refusal == "needs published weights for all of the victim's model"
    system = make_system("split-concat", data=texts(), bottom="transformer", encoder=str(encoder), rounds=4)
    (attempt,) = tried(system, TextNearest())
    assert attempt.refusal == "needs published weights for all of the victim's model"


def test_a_server_that_runs_layers_the_device_has_already_run_computes_the_same(encoder: Path) -> None:
    """The network is one, wherever it is cut."""
    outputs = []
    for layers in (0, 1, 2):
        engine = split(encoder, "split-concat", encoder_layers=layers).train([0])
        model, block = engine.device_model(0), engine.data.blocks[0]
        states = model.apply(model.parameters, block)
        for name, value in engine.top_parameters.items():
            if name.startswith("head"):
                value.fill_(0.1)
        outputs.append(engine.top.apply(engine.top_parameters, states))
    torch.testing.assert_close(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0], outputs[2])
