"""Split learning with SecretFlow's `SLModel`: alice has features, bob has features and the labels.

Its own package does not install everywhere, so that a stand-in with the same hooks takes its place here. The two lines
that name `vflpriv` or `callback`, beside their imports, and the argument `callbacks` were added.
"""

from __future__ import annotations

import sys

import torch
from sklearn.datasets import load_breast_cancer
from stand_in import SLModel
from torch import nn

import vflpriv
from vflpriv.recording.adapters.secretflow import watch_split_learning

EPOCHS, BATCH = 4, 64


def main(folder: str) -> None:
    torch.manual_seed(0)
    features, labels = (torch.tensor(values) for values in load_breast_cancer(return_X_y=True))
    features = ((features - features.mean(0)) / features.std(0)).float()
    blocks = {"alice": features[:, :15], "bob": features[:, 15:]}
    labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)
    model = SLModel({party: nn.Linear(15, 8) for party in blocks}, "bob", nn.Linear(16, 1))
    callback = watch_split_learning(
        ["alice"], labels=labels, canaries=canaries, classes=2, batch_size=BATCH, folder=folder
    )
    model.fit(blocks, labels, epochs=EPOCHS, batch_size=BATCH, callbacks=[callback])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "transcript")
