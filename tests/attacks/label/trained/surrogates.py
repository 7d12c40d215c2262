"""A server with a known linear model, as one device sees it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.audits.scoring.labels import draw_auxiliary
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device

__all__ = ["CLASSES", "WIDTH", "linear_view", "told"]

CLASSES, WIDTH = 4, 6


def linear_view(*, rounds: int, records: int = 160, batch: int = 40, seed: int = 0) -> tuple[View, Tensor, Tensor]:
    """What device 0 sees of a server whose linear model stays as it is, that model (C, width), and the labels.

    A record's gradient is (softmax(h W) - onehot(y)) W, divided by the size of the batch; embeddings are noise.
    """
    coins = torch.Generator().manual_seed(seed)
    head = torch.randn(CLASSES, WIDTH, generator=coins)
    labels = torch.randint(CLASSES, (records,), generator=coins)
    messages = []
    for t in range(rounds):
        shuffled = torch.randperm(records, generator=coins)
        ids = (torch.arange(records)[t * batch :] if t < records // batch else shuffled)[:batch]
        embedding = 0.3 * torch.randn(1, batch, WIDTH, generator=coins)
        residual = torch.softmax(embedding @ head.T, 2) - one_hot(labels[ids], CLASSES)
        gradient = residual @ head / batch
        up = {"sender": device(0), "receiver": SERVER, "kind": "embeddings", "tensors": {"embedding": embedding}}
        down = {
            "sender": SERVER,
            "receiver": device(0),
            "kind": "embedding-gradient",
            "tensors": {"gradient": gradient},
        }
        messages += [Message(round=t, records=ids, **link) for link in (up, down)]
    return View(Adversary.parse("device(0)"), tuple(messages), CLASSES), head, labels


def told(labels: Tensor, *, per_class: int = 3, classes: int = CLASSES) -> Auxiliary:
    """A few labels of each class."""
    return draw_auxiliary(labels, classes, per_class=per_class, seed=1)
