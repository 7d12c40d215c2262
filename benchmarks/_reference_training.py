"""Straightforward VFL training as published code implements it: a loop over clients, each a module and optimiser.

It is the peer that `rounds.py` measures our engines against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

__all__ = ["COMBINATION", "REFERENCES", "Reference"]

DECAY = 1e-3
COMBINATION = 0.01
"""The learning rate of the weights with which VAFL combines embeddings."""


class Reference:
    """Clients with an MLP each (ReLU behind both layers) and an optimiser each; a variant overrides `round`."""

    def __init__(
        self,
        features: Sequence[int],
        *,
        hidden: int,
        embedding: int,
        classes: int,
        device: float,
        server: float,
        penalty: float = 1.0,
    ) -> None:
        """`device` and `server` are the learning rates."""
        torch.manual_seed(0)
        self.classes, self.embedding, self.penalty, self.device_rate = classes, embedding, penalty, device
        self.clients = [
            nn.Sequential(nn.Linear(n, hidden), nn.ReLU(), nn.Linear(hidden, embedding), nn.ReLU()) for n in features
        ]
        self.optimisers = [self._sgd(client, device, 0.9) for client in self.clients]
        self.build(server)

    @staticmethod
    def _sgd(module: nn.Module, rate: float, momentum: float = 0.0) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum, weight_decay=DECAY)

    def build(self, rate: float) -> None:
        """Build the server's model and optimiser."""
        self.server = nn.Linear(self.embedding * len(self.clients), self.classes, bias=False)
        self.server_optimiser = self._sgd(self.server, rate)

    def logits(self, embeddings: Sequence[Tensor]) -> Tensor:
        output: Tensor = self.server(torch.cat(list(embeddings), dim=1))
        return output

    def predict(self, blocks: Sequence[Tensor]) -> Tensor:
        with torch.no_grad():
            return self.logits([client(x) for client, x in zip(self.clients, blocks, strict=True)])

    def server_step(self, embeddings: Sequence[Tensor], labels: Tensor) -> list[Tensor]:
        """Update the server; the gradients of the embeddings under the updated server."""
        self.server_optimiser.zero_grad()
        cross_entropy(self.logits([e.detach() for e in embeddings]), labels).backward()
        self.server_optimiser.step()
        leaves = [e.detach().requires_grad_() for e in embeddings]
        cross_entropy(self.logits(leaves), labels).backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    def round(self, blocks: Sequence[Tensor], labels: Tensor, ids: Tensor) -> None:
        embeddings = [client(x) for client, x in zip(self.clients, blocks, strict=True)]
        gradients = self.server_step(embeddings, labels)
        for optimiser, embedding, gradient in zip(self.optimisers, embeddings, gradients, strict=True):
            optimiser.zero_grad()
            embedding.backward(gradient)
            optimiser.step()


class Vafl(Reference):
    """Embeddings combined with learnable weights under one linear layer."""

    def build(self, rate: float) -> None:
        self.server = nn.Linear(self.embedding, self.classes, bias=False)
        self.weights = nn.Parameter(torch.full((len(self.clients),), 1 / len(self.clients)))
        combination = {"params": [self.weights], "lr": COMBINATION, "weight_decay": 0.0}
        self.server_optimiser = torch.optim.SGD(
            [{"params": self.server.parameters()}, combination], lr=rate, weight_decay=DECAY
        )

    def logits(self, embeddings: Sequence[Tensor]) -> Tensor:
        output: Tensor = self.server(sum(w * e for w, e in zip(self.weights, embeddings, strict=True)))
        return output


class FedBcd(Reference):
    """Five local steps with the same gradient."""

    steps = 5

    def round(self, blocks: Sequence[Tensor], labels: Tensor, ids: Tensor) -> None:
        with torch.no_grad():
            embeddings = [client(x) for client, x in zip(self.clients, blocks, strict=True)]
        gradients = self.server_step(embeddings, labels)
        for client, optimiser, x, gradient in zip(self.clients, self.optimisers, blocks, gradients, strict=True):
            for _ in range(self.steps):
                optimiser.zero_grad()
                client(x).backward(gradient)
                optimiser.step()


class Fdml(Reference):
    """Every client has a head of its own and knows the labels; the server only sums."""

    def build(self, rate: float) -> None:
        heads = [nn.Linear(self.embedding, self.classes, bias=False) for _ in self.clients]
        self.clients = [nn.Sequential(*client, head) for client, head in zip(self.clients, heads, strict=True)]
        self.optimisers = [self._sgd(client, self.device_rate, 0.9) for client in self.clients]

    def logits(self, embeddings: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(embeddings)).sum(0)

    def round(self, blocks: Sequence[Tensor], labels: Tensor, ids: Tensor) -> None:
        outputs = [client(x) for client, x in zip(self.clients, blocks, strict=True)]
        total = self.logits([o.detach() for o in outputs])
        for optimiser, output in zip(self.optimisers, outputs, strict=True):
            optimiser.zero_grad()
            cross_entropy(total - output.detach() + output, labels).backward()
            optimiser.step()


class Vimadmm(Reference):
    """ADMM with linear heads at the server; z by scipy's L-BFGS-B, one record at a time."""

    steps, split = 20, True

    def build(self, rate: float) -> None:
        self.heads = [nn.Linear(self.embedding, self.classes, bias=False) for _ in self.clients]
        head_rate = rate if self.split else self.device_rate
        self.head_optimisers = [self._sgd(head, rate=head_rate) for head in self.heads]
        self.duals: dict[int, np.ndarray] = {}

    def logits(self, embeddings: Sequence[Tensor]) -> Tensor:
        outputs = [head(e) for head, e in zip(self.heads, embeddings, strict=True)]
        return torch.stack(outputs).sum(0)

    def _auxiliary(self, total: np.ndarray, label: int, dual: np.ndarray) -> np.ndarray:
        def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            exponentials = np.exp(z - z.max())
            softmax = exponentials / exponentials.sum()
            gap = total - z
            value = -np.log(softmax[label]) - dual @ z + self.penalty / 2 * gap @ gap
            gradient = softmax - np.eye(self.classes)[label] - dual - self.penalty * gap
            return float(value), gradient

        solution: np.ndarray = minimize(objective, total, jac=True, method="L-BFGS-B").x
        return solution

    def _server(self, total: Tensor, labels: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """z and λ of the batch, record by record (VIMADMM eqs. 5 and 6)."""
        zs, duals = [], []
        for row, label, record in zip(total.cpu().double().numpy(), labels.tolist(), ids.tolist(), strict=True):
            dual = self.duals.get(record, np.zeros(self.classes))
            z = self._auxiliary(row, label, dual)
            self.duals[record] = dual + self.penalty * (row - z)
            zs.append(z)
            duals.append(self.duals[record])
        return total.new_tensor(np.array(zs)), total.new_tensor(np.array(duals))

    def _objective(self, own: Tensor, dual: Tensor, residual: Tensor) -> Tensor:
        return (dual * own).sum(1).mean() + self.penalty / 2 * (residual - own).square().sum(1).mean()

    def round(self, blocks: Sequence[Tensor], labels: Tensor, ids: Tensor) -> None:
        with torch.no_grad():
            embeddings = [client(x) for client, x in zip(self.clients, blocks, strict=True)]
            shares = [head(e) for head, e in zip(self.heads, embeddings, strict=True)]
            total = torch.stack(shares).sum(0)
        z, dual = self._server(total, labels, ids)
        for k, (head, optimiser) in enumerate(zip(self.heads, self.head_optimisers, strict=True) if self.split else ()):
            optimiser.zero_grad()
            self._objective(head(embeddings[k]), dual, z - (total - shares[k])).backward()
            optimiser.step()
        for k, x in enumerate(blocks):
            self._local(k, x, dual, z - (total - shares[k]))

    def _local(self, k: int, x: Tensor, dual: Tensor, residual: Tensor) -> None:
        optimisers = [self.optimisers[k]] if self.split else [self.head_optimisers[k], self.optimisers[k]]
        for _ in range(self.steps):
            self.optimisers[k].zero_grad()
            self.head_optimisers[k].zero_grad()
            self._objective(self.heads[k](self.clients[k](x)), dual, residual).backward()
            for optimiser in optimisers:
                optimiser.step()


class VimadmmJ(Vimadmm):
    """The heads live at the clients: each local step moves head and model along one gradient."""

    split = False


REFERENCES: dict[str, Callable[..., Reference]] = {
    "split": Reference,
    "vafl-tsync": Vafl,
    "fedbcd": FedBcd,
    "fdml": Fdml,
    "vimadmm": Vimadmm,
    "vimadmm-j": VimadmmJ,
}
