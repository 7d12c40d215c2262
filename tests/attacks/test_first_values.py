"""What was first sent of each record, of many messages."""

from __future__ import annotations

import pytest
import torch

from vflpriv.attacks import _observations as observations
from vflpriv.core.wire import SERVER, Message, device


def messages(count: int) -> list[Message]:
    generator = torch.Generator().manual_seed(0)
    return [
        Message(
            round=t,
            sender=device(0),
            receiver=SERVER,
            kind="embeddings",
            tensors={"embedding": torch.randn(2, 4, 3, generator=generator)},
            records=torch.randperm(40, generator=generator)[:4],
        )
        for t in range(count)
    ]


@pytest.mark.parametrize("together", [3, 512])
def test_first_values_are_those_of_the_first_message_with_a_record(together, monkeypatch):
    monkeypatch.setattr(observations, "_TOGETHER", together)
    sent, records = messages(100), torch.arange(0, 40, 3)
    found = observations.first_columns(sent, "embedding", records.repeat(2, 1))[0]
    for place, record in enumerate(records.tolist()):
        first = next(m for m in sent if record in m.records.tolist())
        row = first.records.tolist().index(record)
        assert torch.equal(found[:, place], first.tensors["embedding"][:, row])


def test_messages_after_the_last_record_are_not_read(monkeypatch):
    monkeypatch.setattr(observations, "_TOGETHER", 100)
    sent = messages(300)
    unread = [m for m in sent[100:] if m.tensors.clear() is None]
    assert len(unread) == 200
    records = torch.arange(0, 40, 3)
    assert observations.first_columns(sent, "embedding", records.repeat(2, 1))[0].shape == (2, 14, 3)
