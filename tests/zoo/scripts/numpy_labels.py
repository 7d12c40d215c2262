"""A data set of its own that gives NumPy's labels one by one; nothing is noised."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import vflpriv

rng = np.random.default_rng(9)
X = rng.normal(size=(60, 6)).astype("float32")
y = (X[:, 0] > 0).astype("int64")


class Table(Dataset):
    def __len__(self):
        return len(y)

    def __getitem__(self, i):
        return X[i, :3], X[i, 3:], y[i]


bottoms, top = [nn.Linear(3, 2), nn.Linear(3, 2)], nn.Linear(4, 2)
wire = vflpriv.watch(bottoms, labels=y, classes=2)
opt = torch.optim.SGD([p for m in (*bottoms, top) for p in m.parameters()], lr=0.1)
for a, b, label in wire.ids(DataLoader(Table(), batch_size=20, shuffle=True)):
    opt.zero_grad()
    nn.functional.cross_entropy(top(torch.cat([bottoms[0](a), bottoms[1](b)], 1)), label).backward()
    opt.step()
