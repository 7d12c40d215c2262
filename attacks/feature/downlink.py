"""Features of another device from the server's replies: sums, residuals and gradients depend on its outputs."""

from __future__ import annotations

import torch

from vflpriv.attacks._base import FeatureInference, decode_features, few_known, own_features
from vflpriv.attacks._observations import REPLIES, UPLINKS, last_and_mean, replies_to_own
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, Guess
from vflpriv.core.views import View

__all__ = ["FeatureDownlink"]


@register("attack")
class FeatureDownlink(FeatureInference):
    """A curious device decodes another's features from the replies about each record and its own features.

    ADMM's s_k and FDML's sums contain the others' logits; a gradient depends on the embeddings of the other devices in
    the server's table, however old (VAFL). So do losses: per record, they are a noisy gradient along the direction in
    which the device moved its embedding (CZOFO); per batch, that gradient is hidden among the other records' losses
    (ZOO-VFL, VFL-Cascaded, DPZV) unless batches are small and rounds many. Known records train the decoder. What the
    device's own features predict alone is the baseline, not leakage of the protocol.
    """

    name = "feature_downlink"
    summary = "decodes another device's features from the replies to one's own embeddings"
    needs = REPLIES | UPLINKS
    knows = frozenset({"records"})
    by_record = True

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if not view.own:
            return "an adversary that controls a device; this one sees the embeddings directly"
        replies = replies_to_own(view)
        if not replies:
            return "replies to its own devices; this view holds none"
        return few_known(replies, auxiliary, "replies")

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        records, rows = last_and_mean(replies_to_own(view))
        rows = torch.cat((rows, own_features(view).index_select(0, records)), dim=1)
        blocks = decode_features(records, rows, auxiliary).unsqueeze(0)
        return Guess(records, blocks)
