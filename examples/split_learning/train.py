"""Split learning in plain PyTorch: two parties hold halves of each digit, the server sums their logits.

The recorder only listens: the lines that name `wire` are all that was added to the training.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import vflpriv

ROUNDS, BATCH, CLASSES = 120, 64, 10


def main(folder: str) -> None:
    torch.manual_seed(0)
    pixels, truth = load_digits(return_X_y=True)
    order = torch.randperm(len(truth))
    features, truth = torch.tensor(pixels, dtype=torch.float32)[order] / 16, torch.tensor(truth)[order]
    halves, tests = (features[:, :32], features[:, 32:]), slice(1437, None)
    labels, canaries = vflpriv.plant(truth[:1437], classes=CLASSES, canaries=300, seed=1)

    parties = [nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES)) for _ in halves]
    optimisers = [torch.optim.SGD(party.parameters(), lr=0.5) for party in parties]

    with vflpriv.record(folder, devices=2, classes=CLASSES, records=1437, name="digits") as wire:
        wire.labels(labels, canaries=canaries)
        for round_ in range(ROUNDS):
            records = torch.randperm(1437)[:BATCH]

            # Each party sends its logits.
            logits = [party(half[records]) for party, half in zip(parties, halves, strict=True)]
            for m, own in enumerate(logits):
                wire.up(round_, m, "logits", {"embedding": own}, records)

            # The server sums them, and answers with the gradient of each record's loss.
            total = torch.stack([own.detach() for own in logits]).sum(0).requires_grad_()
            (gradient,) = torch.autograd.grad(cross_entropy(total, labels[records], reduction="sum"), total)
            for m in range(len(parties)):
                wire.down(round_, m, "logit-gradient", {"gradient": gradient}, records)

            # Each party goes on with it.
            for own, optimiser in zip(logits, optimisers, strict=True):
                optimiser.zero_grad()
                own.backward(gradient / BATCH)
                optimiser.step()

        with torch.no_grad():
            guesses = sum(party(half[tests]) for party, half in zip(parties, halves, strict=True)).argmax(-1)
        accuracy = float((guesses == truth[tests]).float().mean())
        wire.accuracy(accuracy, tests=len(guesses))
    print(f"test accuracy {accuracy:.3f}; the transcript is in {folder}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "transcript")
