"""A stand-in for SecretFlow's `SLModel`, which calls a callback's hooks by the same names and in the same order.

With SecretFlow itself, `alice` and `bob` are devices (`sf.PYU("alice")`), and `SLModel` is SecretFlow's own.
"""

from __future__ import annotations

import torch
from torch import nn


class SLModel:
    """Split learning of two parties: both have a base model, `device_y` has the labels and the fuse model too."""

    def __init__(self, base_model_dict: dict[str, nn.Module], device_y: str, model_fuse: nn.Module) -> None:
        self.bases, self.device_y, self.fuse = base_model_dict, device_y, model_fuse
        parameters = [p for model in (*base_model_dict.values(), model_fuse) for p in model.parameters()]
        self.optimiser, self.loss = torch.optim.SGD(parameters, lr=0.2), nn.BCEWithLogitsLoss()

    def fit(self, x, y, *, epochs, batch_size, callbacks):
        """Train; batches are in the order of the records (`shuffle=False`)."""

        def call(hook, *arguments, **named):
            for callback in callbacks:
                getattr(callback, hook)(*arguments, **named)

        call("set_workers", self.bases, self.device_y)
        call("on_train_begin")
        for epoch in range(epochs):
            call("on_epoch_begin", epoch=epoch)
            for batch in range(-(-len(y) // batch_size)):
                rows = slice(batch * batch_size, (batch + 1) * batch_size)
                call("on_train_batch_begin", batch)
                self._step({party: block[rows] for party, block in x.items()}, y[rows], call)
                call("on_train_batch_end", batch)
            call("on_epoch_end", epoch=epoch)
        call("on_train_end")

    def _step(self, x, y, call):
        call("on_base_forward_begin")
        outputs = {party: self.bases[party](block) for party, block in x.items()}
        call("on_base_forward_end")
        hiddens = {party: output.detach().requires_grad_() for party, output in outputs.items()}
        call("on_agglayer_forward_begin", hiddens)
        call("on_agglayer_forward_end", hiddens)
        call("on_fuse_forward_begin")
        self.optimiser.zero_grad()
        self.loss(self.fuse(torch.cat(list(hiddens.values()), dim=1))[:, 0], y.float()).backward()
        call("on_fuse_backward_end")
        gradients = {party: hidden.grad for party, hidden in hiddens.items()}
        call("on_agglayer_backward_begin", gradients)
        call("on_agglayer_backward_end", gradients)
        call("on_base_backward_begin")
        for party, output in outputs.items():
            output.backward(gradients[party])
        call("on_base_backward_end")
        self.optimiser.step()
