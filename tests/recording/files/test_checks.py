"""Messages as attacks compute with them."""

from __future__ import annotations

import pytest
import torch

from vflpriv.core.wire import SERVER, Message, device
from vflpriv.recording.files.checks import readable


def message(kind: str, name: str, value: torch.Tensor) -> Message:
    down = kind != "logits"
    return Message(
        round=0,
        sender=SERVER if down else device(0),
        receiver=device(0) if down else SERVER,
        kind=kind,
        tensors={name: value.unsqueeze(0)},
        records=torch.arange(len(value)),
    )


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize(
    ("kind", "name", "columns"),
    [
        ("logit-gradient", "gradient", lambda score: [-score, score]),
        ("logits", "embedding", lambda score: [0 * score, score]),
        ("predictions", "confidences", lambda score: [1 - score, score]),
    ],
)
def test_one_score_of_two_classes_becomes_two(shape, kind, name, columns):
    score = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)
    read = readable(message(kind, name, score.reshape(shape)), 2).tensors[name]
    assert read.dtype == torch.float32
    assert read.tolist() == torch.stack(columns(score), dim=-1).unsqueeze(0).tolist()


def test_two_scores_stay_as_they_are_and_images_become_rows():
    scores = torch.rand(3, 2)
    assert torch.equal(readable(message("logit-gradient", "gradient", scores), 2).tensors["gradient"][0], scores)
    pictures = torch.rand(3, 2, 4, 4)
    read = readable(message("embedding-gradient", "gradient", pictures), 10).tensors["gradient"]
    assert torch.equal(read, pictures.reshape(1, 3, 32))


def test_kinds_that_no_attack_computes_with_keep_every_bit():
    note = message("note", "x", torch.tensor([1, 2, 3]))
    assert readable(note, 2) is note
