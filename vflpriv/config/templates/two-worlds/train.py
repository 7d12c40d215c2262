"""Vertical logistic regression whose label holder adds noise to the residuals, as a function that trains in two worlds.

    vflpriv audit --train train.py:train --ledger ledger.toml --out report   # exit code 0: consistent

The function is called again and again with another seed, in world 0 and in world 1: one customer's label differs, and
whoever reads the messages is asked which world it was. So noise that leaves is measured, not only believed.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

STD = 5.0  # of the noise on every residual
RECORD = 17  # whose label differs between the worlds; it is in every batch here, which is the worst case
FEATURES, LABELS = load_breast_cancer(return_X_y=True)
FEATURES = (FEATURES - FEATURES.mean(0)) / FEATURES.std(0)


def train(wire, world, seed):
    """Train once; all randomness comes from the seed, and all messages go through the wire."""
    rng = np.random.default_rng(seed)
    blocks, labels = (FEATURES[:, :15], FEATURES[:, 15:]), LABELS.copy()
    labels[RECORD] = world
    wire.labels(labels)  # attacks are scored by them

    weights = [np.zeros(15), np.zeros(15)]
    for round_ in range(4):
        records = np.arange(64)
        scores = [block[records] @ own for block, own in zip(blocks, weights, strict=True)]
        residuals = 1 / (1 + np.exp(-sum(scores))) - labels[records]
        noised = residuals + STD * rng.standard_normal(len(records))
        for party, block in enumerate(blocks):
            wire.up(round_, party, "logits", {"embedding": scores[party]}, records)
            wire.down(round_, party, "logit-gradient", {"gradient": noised}, records)
            weights[party] -= 0.1 * block[records].T @ noised / len(records)
