"""Split learning whose parties bound their embeddings, and add noise to them before they send them.

The server's own model is watched too: what a party sends is what that model is given, with its noise.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

import vflpriv

EPOCHS, BATCH, CLASSES, NOISE_STD = 4, 64, 10, 8.0


def released(embedding: torch.Tensor) -> torch.Tensor:
    """Each record's embedding at length 1, with noise."""
    return normalize(embedding, dim=-1) + NOISE_STD * torch.randn_like(embedding)


def main(folder: str) -> None:
    torch.manual_seed(0)
    pixels, truth = load_digits(return_X_y=True)
    features, truth = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(truth)
    labels, canaries = vflpriv.plant(truth, classes=CLASSES, canaries=300, seed=1)

    bottoms, top = [nn.Linear(32, 16) for _ in range(2)], nn.Linear(32, CLASSES)
    optimiser = torch.optim.SGD([p for part in (*bottoms, top) for p in part.parameters()], lr=0.1)
    loader = DataLoader(TensorDataset(features, labels), batch_size=BATCH, shuffle=True)

    wire = vflpriv.watch(bottoms, top=top, labels=labels, canaries=canaries, classes=CLASSES, folder=folder)
    for _ in range(EPOCHS):
        for rows, wanted in wire.ids(loader):
            halves = rows.split(32, dim=1)
            sent = [released(bottom(half)) for bottom, half in zip(bottoms, halves, strict=True)]
            optimiser.zero_grad()
            cross_entropy(top(torch.cat(sent, dim=1)), wanted).backward()
            optimiser.step()
    wire.finish()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "transcript")
