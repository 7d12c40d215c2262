"""Labels by inverting the gradients of a batch (Zou et al. 2022): the labels and the head that would give them.

Zou et al., "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning", 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softmax

from vflpriv.attacks._base import LabelInference, sent_instead
from vflpriv.attacks._observations import known_positions, last_values, record_positions
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Party

__all__ = ["LabelBatch"]

_STEPS = 200
_RATE = 0.05


@register("attack")
class LabelBatch(LabelInference):
    """Adam over labels ŷ, the other devices' logits ŝ and a linear head W, so that for every record
    (softmax(ŝ) - softmax(ŷ)) W comes close to the gradient of its embedding.

    Each record's first gradient is used: heads move little in one pass over the data. The few known labels are held
    fixed and W is initialised from their gradients, because nothing else tells one class from another. ŝ includes the
    device's own logits, since W is unknown anyway. Gradients of colluding devices are concatenated.
    """

    name = "label_batch"
    summary = "finds the labels whose gradients would be those of a batch"
    needs = frozenset({"embedding-gradient"})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"gradients of embeddings; {sent_instead(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        messages = view.of_kind(*self.needs)
        records, _ = record_positions(messages)
        by_device = [_first_gradients(view, device, records) for device in sorted({m.device for m in messages})]
        gradients, present = (torch.cat(columns, dim=-1) for columns in zip(*by_device, strict=True))
        positions, known = known_positions(records, auxiliary.records)
        labels = one_hot(auxiliary.labels[known], view.classes).to(gradients.dtype)
        return LabelGuess(records, _invert(gradients, present, positions, labels).argmax(-1).unsqueeze(0))


def _first_gradients(view: View, device: Party, records: Tensor) -> tuple[Tensor, Tensor]:
    """(n, width) each record's first gradient at one device, with mean square 1, and 1 where there is one, else 0."""
    messages = [m for m in view.of_kind("embedding-gradient") if m.device == device]
    gradients = last_values(messages[::-1], "gradient", records)
    present = gradients.abs().sum(-1, keepdim=True).gt(0).to(gradients.dtype).expand(-1, gradients.shape[1])
    return gradients / gradients.square().mean().sqrt().clamp(min=1e-30), present


def _invert(gradients: Tensor, present: Tensor, known: Tensor, labels: Tensor) -> Tensor:
    """(n, classes) logits of the labels ŷ; the records at positions `known` have `labels` (k, classes), one-hot."""
    classes = labels.shape[1]
    # With equal logits for all classes a record's gradient is (1/C - onehot) W.
    design = 1 / classes - labels
    gram = design.T @ design + 1e-2 * torch.eye(classes, device=design.device)
    head = torch.linalg.solve(gram, design.T @ gradients[known]).detach().requires_grad_()
    others = gradients.new_zeros(len(gradients), classes).requires_grad_()
    guess = gradients.new_zeros(len(gradients), classes).requires_grad_()
    optimiser = torch.optim.Adam([head, others, guess], lr=_RATE)
    for _ in range(_STEPS):
        targets = softmax(guess, -1).index_copy(0, known, labels)
        errors = ((softmax(others, -1) - targets) @ head - gradients) * present
        optimiser.zero_grad()
        errors.square().sum(-1).mean().backward()
        optimiser.step()
    return guess.detach()
