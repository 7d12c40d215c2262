"""The embeddings of each record that a view holds: of its own trained models, or those that were sent last."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.attacks._observations import last_values, records_of, union_of
from vflpriv.attacks._samples import Sample
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import View

__all__ = ["EMBEDDING_NEEDS", "SENT_EMBEDDINGS", "embeddings_by_device", "embeddings_of", "without_embeddings"]

SENT_EMBEDDINGS = ("embeddings", "logits")
"""Kinds of messages with one embedding of each record."""
EMBEDDING_NEEDS = frozenset({"own-model", *SENT_EMBEDDINGS})
"""What an attack on embeddings needs: one of these."""


def without_embeddings(view: View) -> str | None:
    """What a view without embeddings lacks; None if it has them."""
    held = view.has_models or view.kinds & set(SENT_EMBEDDINGS)
    return None if held else "embeddings of each record; this view holds none"


def embeddings_of(view: View, auxiliary: Auxiliary, most: int) -> tuple[Sample, Tensor]:
    """Sorted records (n,) and their embeddings (n, width), those of all devices in the view side by side."""
    (sample,), columns = embeddings_by_device(view, [auxiliary], most)
    return sample, torch.cat([column[0] for column in columns.values()], dim=-1)


def embeddings_by_device(
    view: View, auxiliaries: Sequence[Auxiliary], most: int
) -> tuple[list[Sample], dict[int, Tensor]]:
    """For each replica its sorted records (n,), and by device, in order, their embeddings (R, n, width)."""
    messages = view.of_kind(*SENT_EMBEDDINGS)
    if view.has_models:
        features = next(iter(view.own.values())).features
        records = torch.arange(len(features), device=features.device)
    else:
        records = records_of(messages)
    samples = [Sample.draw(records, auxiliary, most) for auxiliary in auxiliaries]
    chosen = torch.stack([sample.records for sample in samples])
    asked = union_of(chosen)
    if view.has_models:
        own = sorted(view.own.items())
        rows = {m: b.apply(b.trained, b.features.index_select(0, asked)).flatten(2) for m, b in own}
    else:
        devices = sorted({m.device.index for m in messages})
        rows = {d: last_values([m for m in messages if m.device.index == d], "embedding", asked) for d in devices}
    places = torch.searchsorted(asked, chosen).unsqueeze(2)
    return samples, {d: r.gather(1, places.expand(-1, -1, r.shape[2])) for d, r in rows.items()}
