"""Split learning on labels that were noised once, before training, by randomised response (label differential privacy).

    python train.py
    vflpriv audit --transcript transcript --ledger ledger.toml --out report   # exit code 0: consistent

Two lines were added to record it, beside the import. A third, optional one decides the labels of 200 records by fair
coins, so that ε can be measured; attacks are scored by the labels before they were noised.
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.nn.functional import cross_entropy

import vflpriv

EPSILON = 0.5
torch.manual_seed(0)
features, labels = (torch.tensor(values) for values in load_breast_cancer(return_X_y=True))
features = ((features - features.mean(0)) / features.std(0)).float()
blocks = features[:, :15], features[:, 15:]
labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)  # optional
kept = torch.rand(len(labels)) < torch.sigmoid(torch.tensor(EPSILON))  # each label with probability e^ε / (1 + e^ε)
noised = torch.where(kept, labels, 1 - labels)

bottoms, top = [nn.Linear(15, 8) for _ in blocks], nn.Linear(16, 2)
optimiser = torch.optim.SGD([p for model in (*bottoms, top) for p in model.parameters()], lr=0.1)
wire = vflpriv.watch(bottoms, labels=labels, classes=2, folder="transcript", canaries=canaries)  # added

for _ in range(60):
    records = torch.randperm(len(labels))[:64]
    wire.batch(records)  # added
    optimiser.zero_grad()
    sent = [bottom(block[records]) for bottom, block in zip(bottoms, blocks, strict=True)]
    cross_entropy(top(torch.cat(sent, dim=1)), noised[records]).backward()
    optimiser.step()
