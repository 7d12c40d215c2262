"""What a device can compute of the others' share of the logits: from sums, ADMM's variables, gradients, predictions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.attacks._observations import Seen
from vflpriv.core.kinds import Content, Direction, names_of
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["SHARED", "differences", "missing_shares", "others", "shares"]

SHARED = names_of(per_class=True) - names_of(content=Content.LOSS_CHANGE)
_DOWN = SHARED & names_of(direction=Direction.DOWN)


def missing_shares(view: View) -> str | None:
    """What a view lacks for `shares`, or None."""
    if not view.own:
        return "a device of its own; a server has the embeddings themselves"
    if not view.kinds & _DOWN:
        return "summed logits, in any form, of each record"
    if any("head.weight0" in m.tensors for m in view.of_kind("admm-variables")):
        return "logits that the other devices make themselves; here the server's heads make them"
    if "embedding-gradient" in view.kinds:
        return "logits that are summed"
    return None


def others(view: View, models: Sequence[int]) -> list[int]:
    """The devices whose features it does not hold."""
    return [m for m in sorted(models) if m not in view.own]


def differences(logits: Tensor) -> Tensor:
    """(…, C - 1): each class against the next, what softmax keeps of logits."""
    return logits[..., :-1] - logits[..., 1:]


def shares(view: View) -> list[Seen]:
    """For each reply: of each record, differences (B, C - 1) of the logits that all other devices add up to.

    - FDML: the sum, less what it sent itself.
    - ADMM: softmax(z) = λ + onehot(y), the label being λ's smallest entry; z less the residuals s is the others' sum.
    - Gradients of a sum: softmax = B·g + onehot, likewise; predictions are the softmax as it is.
    """
    sent = {(m.round, m.device): m for m in view.of_kind("logits", "logit-pair")}
    messages = [m for m in view.of_kind(*_DOWN) if m.records is not None]
    batch = max(len(m.records) for m in messages if m.records is not None)
    found, told = [], set()
    for m in messages:
        if m.round in told and m.kind != "admm-variables":
            continue
        mine = [s for link, s in sent.items() if link[0] == m.round]
        total = _total(m, batch)
        if m.kind != "admm-variables":
            total = total - sum((differences(s.tensors["embedding"][0].double()) for s in mine), torch.zeros(()))
        elif len(mine) > 1:
            # Residuals leave only the device's own share in; a coalition subtracts its other members' too.
            rest = [s for s in mine if s.device != m.device]
            total = total - sum((differences(s.tensors["embedding"][0].double()) for s in rest), torch.zeros(()))
            if m.round in told:
                continue
        told.add(m.round)
        assert m.records is not None
        found.append(Seen(m.round, m.records, total))
    return found


def _total(message: Message, batch: int) -> Tensor:
    """Differences of the sum over all devices; of all but the receiver where ADMM's residuals are sent."""
    t = {name: value[0].double() for name, value in message.tensors.items()}
    if "logits" in t:
        return differences(t["logits"])
    if "confidences" in t:
        return differences(t["confidences"].clamp(min=1e-300).log())
    exact = t["duals"] if "duals" in t else batch * t["gradient"]
    label = torch.nn.functional.one_hot(exact.argmin(-1), exact.shape[-1])
    total = differences((exact + label).clamp(min=1e-12).log())
    return total - differences(t["residuals"]) if "residuals" in t else total
