"""The assertion about a training in two worlds: sound trainings pass, and each way to send more is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.testing import assert_twin_wires

HEAD = {"devices": 1, "classes": 2, "records": 8}
LEDGER: dict[str, Any] = {
    "public": ["progress"],
    "release": [
        {
            "kind": "zo-scalar",
            "noise": "gaussian",
            "scale": 0.5,
            "sensitivity": {"label": 0.5},
            "independent_of": ["features"],
        },
        {"kind": "embeddings", "noise": "none", "independent_of": ["label"]},
    ],
}
After = Callable[[Any, int, torch.Tensor, torch.Tensor], None]


def training(
    *,
    clip: float = 1.0,
    after: After | None = None,
    seeded: bool = True,
) -> Callable[[Any, int, int], None]:
    """Rounds of embeddings up and a noised scalar down; the worlds differ in the label of record 0."""

    def train(wire: Any, world: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed) if seeded else torch.Generator()
        if not seeded:
            generator.seed()
        features = torch.arange(16.0).reshape(8, 2)
        labels = torch.tensor([world, 1, 0, 1, 0, 1, 0, 1]).float()
        weight = torch.ones(2)
        for round_ in range(6):
            records = torch.randperm(8, generator=generator)[:4]
            sent = wire.up(round_, 0, "embeddings", {"embedding": (features[records] * weight)}, records)
            terms = (100 * (labels[records] - 0.5) * sent["embedding"].sum(1)).clamp(-clip, clip)
            mean = terms.sum() / 4
            noised = mean + 0.5 * torch.randn((), generator=generator)
            delta = wire.down(round_, 0, "zo-scalar", {"delta": noised}, records)["delta"]
            if after is not None:
                after(wire, round_, mean, labels[records])
            weight = weight - 0.1 * delta

    return train


def compared(train: Callable[[Any, int, int], None], **changes: Any) -> float:
    settings = {"ledger": LedgerConfig.model_validate(LEDGER), "unit": "label", "record": 0, **HEAD}
    return assert_twin_wires(train, **{**settings, **changes})


def test_a_sound_training_passes_and_reaches_its_sensitivity() -> None:
    assert compared(training()) == pytest.approx(1.0, abs=1e-3)


def test_the_ledger_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "ledger.toml").write_text(
        'public = ["progress"]\n[[release]]\nkind = "zo-scalar"\nnoise = "gaussian"\nscale = 0.5\n'
        'sensitivity = { label = 0.5 }\n[[release]]\nkind = "embeddings"\nnoise = "none"\nindependent_of = ["label"]\n'
    )
    assert compared(training(), ledger=tmp_path / "ledger.toml") > 0.9


def test_a_clip_that_is_too_wide() -> None:
    with pytest.raises(AssertionError, match=r"at most 0\.5 under the noise .*zo-scalar in round \d.* moves by 1 "):
        compared(training(clip=2.0))


def test_a_noiseless_copy_in_a_public_kind() -> None:
    def copy(wire: Any, round_: int, mean: torch.Tensor, labels: torch.Tensor) -> None:
        wire.down(round_, 0, "progress", {"value": mean})

    with pytest.raises(AssertionError, match=r"progress in round \d, server → device\(0\), has a tensor value"):
        compared(training(after=copy))


def test_a_kind_that_the_ledger_lacks() -> None:
    def labels(wire: Any, round_: int, mean: torch.Tensor, labels: torch.Tensor) -> None:
        wire.down(round_, 0, "hint", {"labels": labels})

    with pytest.raises(AssertionError, match="found hint on the wire only"):
        compared(training(after=labels))


def test_two_tensors_where_one_is_declared() -> None:
    def labels(wire: Any, round_: int, mean: torch.Tensor, labels: torch.Tensor) -> None:
        wire.down(round_, 0, "hint", {"value": torch.zeros(1), "labels": labels})

    listed = {**LEDGER, "release": [*LEDGER["release"], {"kind": "hint", "noise": "none", "tensors": ["value"]}]}
    with pytest.raises(AssertionError, match="tensor labels of 6 hint messages"):
        compared(training(after=labels), ledger=LedgerConfig.model_validate(listed))


def test_messages_that_depend_on_the_world() -> None:
    def sometimes(wire: Any, round_: int, mean: torch.Tensor, labels: torch.Tensor) -> None:
        if labels.sum() > 2:
            wire.down(round_, 0, "progress", {"value": torch.zeros(1)})

    with pytest.raises(AssertionError, match="in both worlds, found"):
        compared(training(after=sometimes))


def test_a_record_that_is_not_in_a_message_must_not_move_it() -> None:
    """The label is carried by a sum over all records, whichever are in the batch."""

    def train(wire: Any, world: int, seed: int) -> None:
        noise = torch.randn(4, generator=torch.Generator().manual_seed(seed))
        for round_ in range(4):
            wire.down(round_, 0, "zo-scalar", {"delta": 0.5 * world + noise[round_]}, [round_])

    with pytest.raises(AssertionError, match=r"at most 0 under the noise .*zo-scalar in round 1"):
        compared(train)
    assert compared(train, record=None) == pytest.approx(1.0, abs=1e-3)


def test_a_training_that_cannot_be_repeated_is_told_so() -> None:
    with pytest.raises(AssertionError, match=r"from two runs of world 0 with seed=0.*draw all randomness"):
        compared(training(seeded=False))


def test_a_unit_that_everyone_sees_anyway_is_not_held_against_it() -> None:
    """Gradients show the label to the device, so that the next embeddings, moved by them, tell it nothing new."""

    def train(wire: Any, world: int, seed: int) -> None:
        weight = torch.ones(1, 1)
        for round_ in range(3):
            sent = wire.up(round_, 0, "embeddings", {"embedding": weight}, [0])
            gradient = sent["embedding"] - world
            weight = weight - wire.down(round_, 0, "embedding-gradient", {"gradient": gradient}, [0])["gradient"]

    release = [{"kind": "embeddings", "noise": "none", "independent_of": ["label"]}]
    exact = {"release": [*release, {"kind": "embedding-gradient", "noise": "none"}]}
    assert compared(train, ledger=LedgerConfig.model_validate(exact)) == 0.0
