"""Scripts as strangers write them, recorded: ids, embeddings and gradients are those that a reference has taken."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tests.zoo.reference import recorded_beside
from vflpriv.recording.transcripts import read_transcript

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "vflpriv.watch(" in path.read_text("utf-8")]
REMARKS = {
    "slow_party": ("device 2 sent nothing in 4 of 6 rounds: bottoms[2] was not called in them",),
    "embeddings_noised": (
        "the server's model was given other values than the bottoms gave, which are those that are recorded",
    ),
}
NOISED_LABELS = {"randomised_response", "responses_each_epoch"}


def test_the_zoo_has_fifteen_scripts():
    assert len(SCRIPTS) >= 15


@pytest.mark.filterwarnings("ignore::UserWarning")  # as a program of its own shows them
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_transcript_is_what_a_reference_has_taken(tmp_path, script, capsys):
    reference = recorded_beside(script, tmp_path)
    capsys.readouterr()
    recording = read_transcript(tmp_path)
    ids, sent, received = defaultdict(list), defaultdict(list), defaultdict(list)
    for message in recording.transcript.messages:
        if message.kind == "embeddings":
            ids[message.device.index].append(message.records.tolist())
            sent[message.device.index].append(message.tensors["embedding"][0])
        elif message.kind == "embedding-gradient":
            received[message.device.index].append(message.tensors["gradient"][0])
    assert ids == reference.ids
    for own, taken in ((sent, reference.sent), (received, {m: v for m, v in reference.received.items() if v})):
        assert set(own) == set(taken)
        for m, values in taken.items():
            assert len(own[m]) == len(values)
            assert all(torch.equal(a, b) for a, b in zip(own[m], values, strict=True))
    head = recording.head
    assert head.failed_checks == ()
    assert head.remarks == REMARKS.get(script.stem, ())
    assert head.labels_compared > 0
    assert (head.labels_different > 0) == (script.stem in NOISED_LABELS)
