"""Vertical gradient boosting in NumPy, of SecureBoost's shape: two hosts hold features, the server holds the labels.

For each tree the server sends every record's gradient and hessian; each host answers with their sums over the bins of
its features; the server picks the best split, and its owner says which records go left. Gradients are sent in clear
(`plain`), with noise (`noised`), or encrypted (`encrypted`). The lines that name `vflpriv` or `wire` were added.
"""

from __future__ import annotations

import sys

import numpy as np
from paillier import Key
from sklearn.datasets import load_breast_cancer

import vflpriv

BINS, DEPTH, RATE, PENALTY = 8, 2, 0.5, 1.0
TREES = {"plain": 5, "noised": 5, "encrypted": 2}
NOISE_STD = 10.0


def sums(bins, gradient, hessian, members):
    """(2, features, bins): the sums of both over the members of a node."""
    return np.array(
        [
            [np.bincount(column[members], weights=values[members], minlength=BINS) for column in bins.T]
            for values in (gradient, hessian)
        ]
    )


def best_split(histograms):
    """Host, feature and bin with the largest gain, of all hosts' (2, features, bins)."""
    gains = []
    for g, h in histograms:
        left_g, left_h = g.cumsum(-1)[:, :-1], h.cumsum(-1)[:, :-1]
        right_g, right_h = g.sum(-1, keepdims=True) - left_g, h.sum(-1, keepdims=True) - left_h
        gains.append(left_g**2 / (left_h + PENALTY) + right_g**2 / (right_h + PENALTY))
    host = int(np.argmax([gain.max() for gain in gains]))
    feature, bin_ = np.unravel_index(gains[host].argmax(), gains[host].shape)
    return host, int(feature), int(bin_)


def main(mode: str, folder: str) -> None:
    generator, key = np.random.default_rng(0), Key(seed=0)
    features, labels = load_breast_cancer(return_X_y=True)
    edges = np.quantile(features, np.linspace(0, 1, BINS + 1)[1:-1], axis=0)
    binned = (features[:, None, :] > edges[None]).sum(1)
    hosts, everyone = (binned[:, :15], binned[:, 15:]), np.arange(len(labels))
    labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)
    wire = vflpriv.watch(len(hosts), labels=labels, canaries=canaries, classes=2, folder=folder)

    scores = np.zeros(len(labels))
    for tree in range(TREES[mode]):
        p = 1 / (1 + np.exp(-scores))
        gradient, hessian = p - labels, p * (1 - p)
        if mode == "noised":
            gradient, hessian = (v + NOISE_STD * generator.standard_normal(len(v)) for v in (gradient, hessian))
        sent = {"gradient": gradient, "hessian": hessian}
        if mode == "encrypted":
            ciphertexts = [key.encrypt(g, h) for g, h in zip(gradient, hessian, strict=True)]
            sent = vflpriv.opaque(ciphertexts)
        for m in range(len(hosts)):
            wire.down(tree, m, "tree-gradients", sent, everyone)

        nodes = [everyone]
        for _ in range(DEPTH):
            children = []
            for members in nodes:
                answers = []
                for m, bins in enumerate(hosts):
                    if mode == "encrypted":
                        answer = key.histograms(bins[members], [ciphertexts[i] for i in members], BINS)
                        wire.up(tree, m, "tree-histograms", vflpriv.opaque(answer), members)
                        answers.append(key.decrypt(answer).reshape(2, -1, BINS))
                    else:
                        answers.append(sums(bins, gradient, hessian, members))
                        wire.up(tree, m, "tree-histograms", dict(zip(sent, answers[m], strict=True)), members)
                owner, feature, bin_ = best_split(answers)
                left = hosts[owner][members, feature] <= bin_
                wire.up(tree, owner, "tree-splits", {"left": left}, members)
                wire.down(tree, 1 - owner, "tree-splits", {"left": left}, members)
                children += [side for side in (members[left], members[~left]) if len(side)]
            nodes = children
        for members in nodes:
            total_g, total_h = gradient[members].sum(), max(0.0, hessian[members].sum())
            scores[members] -= RATE * total_g / (total_h + PENALTY)

    accuracy = float(((scores > 0) == (labels == 1)).mean())
    wire.finish()
    print(f"{mode}: accuracy on the records trained on {accuracy:.3f}; the transcript is in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
