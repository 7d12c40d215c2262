"""Sanitised texts: replacements occur as often as published, ε holds, padding stays, and tokens are hidden by it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from tests.attacks.text.test_nearest import TOKENS, WORDS, encoder, split, texts, tried  # noqa: F401 (a fixture)
from tests.support import make_system
from vflpriv.attacks.text.nearest import TextNearest
from vflpriv.common.random import Stream
from vflpriv.core.wire import Transcript, Wire
from vflpriv.run.systems import inapplicable
from vflpriv.training.defences.texts import CusText, SanText

VECTORS = torch.randn(25, 4, generator=torch.Generator().manual_seed(1))


def stream(replicas: int = 1) -> Stream:
    return Stream.of(0, "defence", list(range(replicas)), torch.device("cpu"))


def drawn(defence, token: int, count: int = 20_000) -> np.ndarray:
    """How often each of 25 tokens takes the place of this one."""
    ids = torch.full((1, count // 8, 8), token)
    replaced = defence.guard(stream()).texts(ids, VECTORS, 0)
    return np.bincount(replaced.flatten().numpy(), minlength=25)


def test_santext_draws_by_distance_and_keeps_its_metric_epsilon():
    defence, token = SanText(epsilon=1.5), 7
    distances = torch.cdist(VECTORS, VECTORS).double()
    weights = torch.exp(-0.75 * distances[:, 1:])
    table = (weights / weights.sum(1, keepdim=True)).numpy()
    counts = drawn(defence, token)
    assert counts[0] == 0
    # Margin: one of 10,000 samples of the right law has a smaller p-value.
    assert chisquare(counts[1:], counts.sum() * table[token]).pvalue > 1e-4
    assert chisquare(counts[1:], counts.sum() * table[token + 1]).pvalue < 1e-12
    losses = np.log(table[1:, None] / table[None, 1:]).max(-1)
    assert np.all(losses <= 1.5 * distances[1:, 1:].numpy() + 1e-9)
    assert "1.5 for each unit of distance" in defence.promise


def test_custext_draws_within_sets_of_near_tokens_and_keeps_epsilon_there():
    """Margin: one of 10,000 samples of the right law has a smaller p-value."""
    defence = CusText(epsilon=2.0, size=5)
    sets = defence.outputs(VECTORS)
    assert sets.shape == (25, 5)
    for token in range(1, 25):
        assert token in sets[token]
        assert all(torch.equal(sets[other].sort().values, sets[token].sort().values) for other in sets[token].tolist())
    token = int(sets[1][-1])
    counts = drawn(defence, token)
    assert set(np.flatnonzero(counts)) <= set(sets[token].tolist())
    tables = []
    for other in sets[token].tolist():
        distances = torch.cdist(VECTORS[other : other + 1], VECTORS[sets[token]])[0].double()
        nearness = (distances.max() - distances) / (distances.max() - distances.min())
        tables.append(torch.softmax(nearness, 0).numpy())
    own = tables[sets[token].tolist().index(token)]
    assert chisquare(counts[sets[token].numpy()], counts.sum() * own).pvalue > 1e-4
    assert np.log(np.max(np.array(tables)[:, None] / np.array(tables)[None])) <= 2.0
    assert defence.promise == "token ε = 2 within sets of 5"


@pytest.mark.parametrize("name", ["santext", "custext"])
def test_the_defence_hides_tokens_the_more_the_smaller_epsilon_is(encoder: Path, name: str) -> None:  # noqa: F811
    rates = []
    for epsilon in (0.05, 40.0):
        system = split(encoder, "split-concat", rounds=4, defence={"name": name, "epsilon": epsilon})
        (attempt,) = tried(system, TextNearest())
        rates.append(attempt.mean.value)
    # Margin: 0.00 and 0.05 of the tokens are right at ε = 0.05, and all at ε = 40.
    assert rates[0] < 0.2
    assert rates[1] > 0.8


def test_replicas_have_texts_of_their_own_padding_stays_and_so_do_labels(encoder: Path) -> None:  # noqa: F811
    system = split(encoder, "split-concat", rounds=1, batch_size=40, defence={"name": "santext", "epsilon": 1.0})
    together = [engine.data.features(0, torch.arange(40)) for engine in (system.train([3, 5]), system.train([5]))]
    assert torch.equal(together[0][1], together[1][0])
    assert not torch.equal(together[0][0], together[0][1])
    for replaced in together[0]:
        assert torch.equal(replaced == 0, system.data.blocks[0] == 0)
        assert int((replaced != system.data.blocks[0]).sum()) > 0
        assert int(replaced.max()) < WORDS
    assert torch.equal(system.train([3]).data.labels, system.data.labels)
    transcript = Transcript()
    system.train([3]).run(Wire(transcript))
    assert transcript.messages[0].tensors["embedding"].shape[2] % TOKENS == 0


def test_it_says_where_it_does_not_apply() -> None:
    plain = make_system("split-concat")
    reason = inapplicable(SanText(), plain.engine, plain.settings, plain.schedule, plain.classes)
    assert reason == "needs texts, and an encoder whose word vectors are published"
    without = make_system("split-concat", data=texts(), bottom="lstm", hidden=(8, 8))
    assert inapplicable(CusText(), without.engine, without.settings, without.schedule, without.classes) == reason
    assert math.isfinite(CusText().epsilon)
