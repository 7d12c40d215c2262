"""Vertical logistic regression in NumPy, of FATE's shape: hosts send their share of the scores, and get the residuals.

The guest, which holds the labels, is the server. The lines that name `vflpriv` or `wire` were added. With `jax` as
second argument everything is computed by JAX, and the same lines record it.
"""

from __future__ import annotations

import importlib
import sys

import numpy as np
from sklearn.datasets import load_breast_cancer

import vflpriv

ROUNDS, BATCH, RATE = 60, 64, 0.5


def main(folder: str, library: str = "numpy") -> None:
    xp = importlib.import_module("jax.numpy" if library == "jax" else "numpy")
    generator = np.random.default_rng(0)
    features, labels = load_breast_cancer(return_X_y=True)
    features = xp.asarray((features - features.mean(0)) / features.std(0))
    hosts = features[:, :15], features[:, 15:]
    weights = [xp.zeros(host.shape[1]) for host in hosts]
    labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)
    wire = vflpriv.watch(len(hosts), labels=labels, canaries=canaries, classes=2, folder=folder)

    for round_ in range(ROUNDS):
        batch = generator.permutation(len(labels))[:BATCH]
        shares = [host[batch] @ own for host, own in zip(hosts, weights, strict=True)]
        residual = 1 / (1 + xp.exp(-sum(shares))) - labels[batch]
        for m, host in enumerate(hosts):
            wire.up(round_, m, "logits", {"embedding": shares[m]}, batch)
            wire.down(round_, m, "logit-gradient", {"gradient": residual}, batch)
            weights[m] = weights[m] - RATE * host[batch].T @ residual / BATCH

    scores = sum(host @ own for host, own in zip(hosts, weights, strict=True))
    wire.finish()
    print(f"accuracy on the records trained on {((scores > 0) == labels).mean():.3f}; the transcript is in {folder}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["transcript"]))
