"""Split learning of an MLP whose parties clip each row of their embeddings and add Gaussian noise before they send it.

    python train.py
    vflpriv audit --transcript transcript --ledger ledger.toml --out report   # exit code 1: one claim is violated

Two lines were added to record it, beside the import. The server's model is watched too (top=top): noise is added
between the parties' models and the server's, and what is sent is what the server's model is given. A third, optional
line decides the labels of 200 records by fair coins, so that ε of labels can be measured.
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import vflpriv

STD = 8.0  # of the noise on every entry; a row is clipped to the norm 1
torch.manual_seed(0)
features, labels = (torch.tensor(values) for values in load_breast_cancer(return_X_y=True))
features = ((features - features.mean(0)) / features.std(0)).float()
blocks = features[:, :15], features[:, 15:]
labels, canaries = vflpriv.plant(labels, classes=2, canaries=200, seed=1)  # optional

bottoms = [nn.Sequential(nn.Linear(15, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in blocks]
top = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
optimiser = torch.optim.SGD([p for model in (*bottoms, top) for p in model.parameters()], lr=0.1)
wire = vflpriv.watch(bottoms, top=top, labels=labels, classes=2, folder="transcript", canaries=canaries)  # added


def noised(embedding):
    """The rows, each scaled down to the norm 1 if it is longer, with noise."""
    clipped = torch.where(embedding.norm(dim=1, keepdim=True) > 1, normalize(embedding), embedding)
    return clipped + STD * torch.randn_like(clipped)


for _ in range(40):
    records = torch.randperm(len(labels))[:64]
    wire.batch(records)  # added
    optimiser.zero_grad()
    sent = [noised(bottom(block[records])) for bottom, block in zip(bottoms, blocks, strict=True)]
    cross_entropy(top(torch.cat(sent, dim=1)), labels[records]).backward()
    optimiser.step()
