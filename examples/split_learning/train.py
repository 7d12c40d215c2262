"""Split learning in plain PyTorch: two parties hold halves of each digit, the server sums their logits.

The two lines that name `wire` in the training, and one that ends the recording, are all that was added.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import vflpriv

EPOCHS, BATCH, CLASSES = 5, 64, 10


def main(folder: str) -> None:
    torch.manual_seed(0)
    pixels, truth = load_digits(return_X_y=True)
    order = torch.randperm(len(truth))
    features, truth = torch.tensor(pixels, dtype=torch.float32)[order] / 16, torch.tensor(truth)[order]
    left, right, tests = features[:, :32], features[:, 32:], slice(1437, None)
    labels, canaries = vflpriv.plant(truth[:1437], classes=CLASSES, canaries=300, seed=1)

    parties = [nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES)) for _ in range(2)]
    optimiser = torch.optim.SGD([p for party in parties for p in party.parameters()], lr=0.5)
    loader = DataLoader(TensorDataset(left[:1437], right[:1437], labels), batch_size=BATCH, shuffle=True)

    wire = vflpriv.watch(parties, labels=labels, canaries=canaries, classes=CLASSES, kind="logits", folder=folder)
    for _ in range(EPOCHS):
        for own, others, wanted in wire.ids(loader):
            optimiser.zero_grad()
            cross_entropy(parties[0](own) + parties[1](others), wanted).backward()
            optimiser.step()

    with torch.no_grad():
        guesses = (parties[0](left[tests]) + parties[1](right[tests])).argmax(-1)
    accuracy = float((guesses == truth[tests]).float().mean())
    wire.accuracy(accuracy, tests=len(guesses))
    wire.finish()
    print(f"test accuracy {accuracy:.3f}; the transcript is in {folder}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "transcript")
