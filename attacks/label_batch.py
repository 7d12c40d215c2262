"""Labels by inverting the gradients of a batch (Zou et al. 2022): which labels, under which head, would give them?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softmax

from vflpriv.attacks._base import LabelAttack, ids_of, what_it_gets
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Party

__all__ = ["LabelBatch"]

_STEPS = 200
_RATE = 0.05


@register("attack")
class LabelBatch(LabelAttack):
    """Adam over labels ŷ, what the others add to the logits ŝ, and a linear head W, so that for every record
    (softmax(ŝ) - softmax(ŷ)) W comes close to the gradient of its embedding.

    The first gradient of each record is taken: heads move little in one pass over the data. The few known labels are
    held fixed, and W starts from their gradients: nothing else says which class is which. ŝ holds the device's own
    logits too, since W is unknown anyway. Colluding devices' gradients are put side by side.
    """

    name = "label_batch"
    summary = "finds the labels whose gradients would be those of a batch"
    needs = frozenset({"embedding-gradient"})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"gradients of embeddings; {what_it_gets(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        records, _ = ids_of(view.of_kind(*self.needs))
        links = sorted({m.device for m in view.of_kind(*self.needs)})
        parts = [_first_gradients(view, link, records) for link in links]
        gradients, seen = (torch.cat(side, dim=-1) for side in zip(*parts, strict=True))
        at = torch.searchsorted(records, auxiliary.records).clamp(max=len(records) - 1)
        here = records[at] == auxiliary.records
        known, labels = at[here], one_hot(auxiliary.labels[here], view.classes).to(gradients.dtype)
        guess = _invert(gradients, seen, known, labels)
        return LabelGuess(records, guess.argmax(-1).unsqueeze(0))


def _first_gradients(view: View, link: Party, records: Tensor) -> tuple[Tensor, Tensor]:
    """(n, width) of each record at one device, scaled to 1 on the whole, and where there is one."""
    messages = [m for m in view.of_kind("embedding-gradient") if m.device == link]
    width = messages[0].tensors["gradient"].shape[-1]
    found = torch.zeros(len(records), width, device=records.device)
    for m in reversed(messages):
        assert m.records is not None
        found[torch.searchsorted(records, m.records)] = m.tensors["gradient"][0]
    seen = found.abs().sum(-1, keepdim=True).gt(0).to(found.dtype).expand(-1, width)
    return found / found.square().mean().sqrt().clamp(min=1e-30), seen


def _invert(gradients: Tensor, seen: Tensor, known: Tensor, labels: Tensor) -> Tensor:
    """(n, classes) the labels' logits."""
    classes = labels.shape[1]
    # With logits all alike a record's gradient is (1/C - onehot) W.
    design = 1 / classes - labels
    gram = design.T @ design + 1e-2 * torch.eye(classes, device=design.device)
    head = torch.linalg.solve(gram, design.T @ gradients[known]).detach().requires_grad_()
    others = gradients.new_zeros(len(gradients), classes).requires_grad_()
    guess = gradients.new_zeros(len(gradients), classes).requires_grad_()
    optimiser = torch.optim.Adam([head, others, guess], lr=_RATE)
    for _ in range(_STEPS):
        wanted = softmax(guess, -1).index_copy(0, known, labels)
        missed = ((softmax(others, -1) - wanted) @ head - gradients) * seen
        optimiser.zero_grad()
        missed.square().sum(-1).mean().backward()
        optimiser.step()
    return guess.detach()
