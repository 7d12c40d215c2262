"""The embeddings of each record that a view holds: of its own trained models, or those that were sent last."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._observations import last_values, records_of
from vflpriv.attacks._samples import Sample
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import View

__all__ = ["EMBEDDING_NEEDS", "embeddings_of", "without_embeddings"]

_UPLINKS = ("embeddings", "logits")
EMBEDDING_NEEDS = frozenset({"own-model", *_UPLINKS})
"""What an attack on embeddings needs: one of these."""


def without_embeddings(view: View) -> str | None:
    """What a view without embeddings lacks; None if it has them."""
    held = view.own or view.kinds & set(_UPLINKS)
    return None if held else "embeddings of each record; this view holds none"


def embeddings_of(view: View, auxiliary: Auxiliary, most: int) -> tuple[Sample, Tensor]:
    """Sorted records (n,) and their embeddings (n, width), those of all devices in the view side by side."""
    if view.own:
        outputs = [own.apply(own.trained, own.features)[0] for own in view.own.values()]
        sample = Sample.draw(torch.arange(len(outputs[0]), device=outputs[0].device), auxiliary, most)
        return sample, torch.cat(outputs, dim=-1).index_select(0, sample.positions)
    messages = view.of_kind(*_UPLINKS)
    sample = Sample.draw(records_of(messages), auxiliary, most)
    columns = [
        last_values([m for m in messages if m.device == device], "embedding", sample.records)[0]
        for device in sorted({m.device for m in messages})
    ]
    return sample, torch.cat(columns, dim=-1)
