"""Features of another device from what the server sends: sums, residuals and gradients carry the others' outputs."""

from __future__ import annotations

import torch

from vflpriv.attacks._decoder import decode
from vflpriv.attacks._feature_base import FeatureInference, own_features
from vflpriv.attacks._observations import REPLIES, UPLINKS, known_rows, last_and_mean, replies_of_own
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureDownlink"]


@register("attack")
class FeatureDownlink(FeatureInference):
    """A curious device decodes another's features from the replies of each record and its own features.

    ADMM's s_k and FDML's sums hold the others' logits; a gradient holds what the server has in its table of the other
    devices, however old (VAFL). So do losses: of each record they are a noisy gradient along the direction its own
    embedding was moved in (CZOFO); of a whole batch, one that the other records' losses drown (ZOO-VFL, VFL-Cascaded,
    DPZV) unless batches are small and rounds many. Known records train the decoder. What its own features say alone is
    not the protocol's leak.
    """

    name = "feature_downlink"
    summary = "decodes another device's features from the replies to one's own embeddings"
    needs = REPLIES | UPLINKS
    knows = frozenset({"records"})

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if not view.own:
            return "a device of its own; who is no device has the embeddings themselves"
        seen = replies_of_own(view)
        if not seen:
            return "replies to its own devices; this view holds none"
        places, _ = known_rows(last_and_mean(seen)[0], auxiliary.records)
        return None if len(places) >= 3 else f"replies for known records; it saw {len(places)}"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        records, rows = last_and_mean(replies_of_own(view))
        rows = torch.cat((rows, own_features(view).index_select(0, records)), dim=1)
        places, known = known_rows(records, auxiliary.records)
        made = decode(rows.index_select(0, places), auxiliary.block.index_select(0, known), rows)
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=made.unsqueeze(0))
