"""Vertical logistic regression in NumPy: parties send partial scores, the label holder sends residuals back.

    python train.py
    vflpriv audit --transcript transcript --ledger ledger.toml --out report   # exit code 1: violated

Three lines were added to record it, beside the import: a system that is not of PyTorch modules says what it sends. A
fourth, optional one decides the labels of 200 records by fair coins, so that ε can be measured.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import vflpriv

features, labels = load_breast_cancer(return_X_y=True)
features = (features - features.mean(0)) / features.std(0)
blocks = features[:, :15], features[:, 15:]
labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)  # optional

weights, rng = [np.zeros(15), np.zeros(15)], np.random.default_rng(0)
wire = vflpriv.record("transcript", devices=2, classes=2, labels=labels, canaries=canaries, fresh=True)  # added

for round_ in range(40):
    records = rng.permutation(len(labels))[:64]
    scores = [block[records] @ own for block, own in zip(blocks, weights, strict=True)]
    residuals = 1 / (1 + np.exp(-sum(scores))) - labels[records]
    for party, block in enumerate(blocks):
        wire.up(round_, party, "logits", {"embedding": scores[party]}, records)  # added
        wire.down(round_, party, "logit-gradient", {"gradient": residuals}, records)  # added
        weights[party] -= 0.5 * block[records].T @ residuals / len(records)
