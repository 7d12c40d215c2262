"""The other devices' share of the summed logits, as a device can compute it from the replies it receives."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from vflpriv.attacks._observations import Observation
from vflpriv.core.kinds import Content, Direction, names_of
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["SHARED", "class_differences", "missing_shares", "other_devices", "other_shares"]

SHARED = names_of(per_class=True) - names_of(content=Content.LOSS_CHANGE)
_DOWN = SHARED & names_of(direction=Direction.DOWN)


def missing_shares(view: View) -> str | None:
    """What a view lacks for `other_shares`, or None."""
    if not view.own:
        return "an adversary that controls a device; this one sees the embeddings directly"
    if not view.kinds & _DOWN:
        return "summed logits of each record, or messages that determine them"
    if any("head.weight0" in m.tensors for m in view.of_kind("admm-variables")):
        return "logits that the other devices compute; here the server computes them with its heads"
    if "embedding-gradient" in view.kinds:
        return "summed logits; the server sends gradients of embeddings"
    return None


def other_devices(view: View, devices: Iterable[int]) -> list[int]:
    """Those of the devices that are not part of the adversary, sorted."""
    return [m for m in sorted(devices) if m not in view.own]


def class_differences(logits: Tensor) -> Tensor:
    """(…, C - 1): the logit of each class less that of the next, which softmax determines."""
    return logits[..., :-1] - logits[..., 1:]


def other_shares(view: View) -> list[Observation]:
    """For each reply and record, differences (B, C - 1) of the logits that all other devices add up to.

    - FDML: the sum, less what the device itself sent.
    - ADMM: softmax(z) = λ + onehot(y), the label being λ's smallest entry; z less the residuals s is the others' sum.
    - Gradients of a sum: softmax = B·g + onehot, likewise; predictions are the softmax itself.
    """
    uplinks = {(m.round, m.device): m for m in view.of_kind("logits", "logit-pair")}
    messages = [m for m in view.of_kind(*_DOWN) if m.records is not None]
    batch = max(len(m.records) for m in messages if m.records is not None)
    observations, rounds = [], set()
    for m in messages:
        if m.round in rounds:
            continue  # every device of a coalition receives the same information
        own = [s for (round_, _), s in uplinks.items() if round_ == m.round]
        if m.kind == "admm-variables":
            # The residuals exclude the receiver's own share already; a coalition subtracts its other members' shares.
            own = [s for s in own if s.device != m.device]
        own_share = sum((class_differences(s.tensors["embedding"][0].double()) for s in own), torch.zeros(()))
        rounds.add(m.round)
        assert m.records is not None
        observations.append(Observation(m.round, m.records, _total(m, batch) - own_share))
    return observations


def _total(message: Message, batch: int) -> Tensor:
    """Differences of the sum over all devices; with ADMM's residuals, over all devices but the receiver."""
    t = {name: value[0].double() for name, value in message.tensors.items()}
    if "logits" in t:
        return class_differences(t["logits"])
    if "confidences" in t:
        return class_differences(t["confidences"].clamp(min=1e-300).log())
    residual = t["duals"] if "duals" in t else batch * t["gradient"]
    label = torch.nn.functional.one_hot(residual.argmin(-1), residual.shape[-1])
    total = class_differences((residual + label).clamp(min=1e-12).log())
    return total - class_differences(t["residuals"]) if "residuals" in t else total
