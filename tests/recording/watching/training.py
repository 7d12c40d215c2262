"""A training of two parties with all that tests of watched trainings need."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import vflpriv
from vflpriv.recording.transcripts import read_transcript

__all__ = ["CLASSES", "RECORDS", "Training", "head_of", "messages_of", "sent_ids"]

RECORDS, CLASSES = 24, 3


class Training:
    """Two bottoms and a top; a record's first feature at each party is its number."""

    def __init__(self, folder, *, records=RECORDS, labels=None, **options):
        torch.manual_seed(0)
        self.x = torch.randn(records, 4)
        self.x[:, 0] = self.x[:, 2] = torch.arange(records)
        self.y = torch.randint(0, CLASSES, (records,), generator=torch.Generator().manual_seed(1))
        self.bottoms, self.top = [nn.Linear(2, 2, bias=False) for _ in range(2)], nn.Linear(4, CLASSES)
        with torch.no_grad():
            for bottom in self.bottoms:
                bottom.weight.copy_(torch.eye(2))
        modules = [*self.bottoms, self.top]
        self.optimiser = torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.0)
        options = {"folder": folder, "classes": CLASSES, "fresh": True} | options
        self.wire = vflpriv.watch(self.bottoms, labels=self.y if labels is None else labels, **options)

    def forward(self, x):
        return self.top(torch.cat([bottom(part) for bottom, part in zip(self.bottoms, x.chunk(2, 1), strict=True)], 1))

    def step(self, x, y):
        loss = cross_entropy(self.forward(x), y)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def messages_of(folder):
    return read_transcript(folder).transcript.messages


def head_of(folder):
    return read_transcript(folder).head


def sent_ids(folder):
    """By round the records of the first device's embeddings, after a check that all embeddings are of their records."""
    ids: dict[int, list[int]] = {}
    for message in messages_of(folder):
        if message.kind == "embeddings":
            assert message.tensors["embedding"][0, :, 0].tolist() == message.records.tolist()
            if message.device.index == 0:
                ids.setdefault(message.round, []).extend(message.records.tolist())
    return list(ids.values())
