"""A decoder learnt on made-up texts reads tokens behind layers better than the nearest neighbours; not noised ones."""

from __future__ import annotations

from pathlib import Path

from tests.attacks.text.test_nearest import RECORDS, SERVER, encoder, split, tried  # noqa: F401 (a fixture)
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.attacks.text.decoder import TextDecoder, TextDecoderLayers
from vflpriv.attacks.text.nearest import TextNearest
from vflpriv.core.units import Unit


def test_every_token_is_decoded_from_exact_embeddings(encoder: Path) -> None:  # noqa: F811
    (attempt,) = tried(split(encoder, "split-concat"), TextDecoder())
    # Margin: 100 %.
    assert attempt.mean.value > 0.95
    assert attempt.mean.guesses == RECORDS - 20  # the others are texts that it knows


def test_a_learnt_start_reads_more_behind_two_layers(encoder: Path) -> None:  # noqa: F811
    system = split(encoder, "split-concat", encoder_layers=2, rounds=1, batch_size=RECORDS)
    attempts = tried(system, TextNearest(), TextDecoder(), TextDecoderLayers())
    nearest, decoded, searched = (attempt.mean.value for attempt in attempts)
    # Margin: 0.12, 0.29 and 0.82; the search that begins at the nearest neighbours reads 0.63.
    assert decoded > nearest + 0.08
    assert searched > 0.7


def test_noise_at_epsilon_one_leaves_nothing(encoder: Path) -> None:  # noqa: F811
    system = split(encoder, "split-concat", protection="embedding", clip=1.0, noise_std=70.0)
    assert 0.3 < AutoAccountant().budget(system.ledger.exposure(SERVER, Unit.FEATURES), 1e-5).upper < 1.0
    (attempt,) = tried(system, TextDecoder())
    # Margin: one token of 200 is right by luck; the share of the commonest token is 0.08.
    assert attempt.mean.value < 0.05
    assert attempt.mean.leakage.value < 0


def test_without_texts_that_it_knows_it_says_so(encoder: Path) -> None:  # noqa: F811
    system = split(encoder, "split-concat", rounds=1, batch_size=2)
    (attempt,) = tried(system, TextDecoder())
    assert attempt.refusal == "needs states of at least 3 known records; it saw 1"
