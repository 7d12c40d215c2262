"""Batches by a sampler of one's own, which draws each record by itself; labels are the column of a table; no noise."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vflpriv


class Column:
    """As a pandas series, whose items are those at places of its index, whatever their order."""

    def __init__(self, values, index):
        self.values, self.places = np.asarray(values), {name: place for place, name in enumerate(index)}

    def __len__(self):
        return len(self.values)

    def __getitem__(self, name):
        return self.values[self.places[name]]

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


class EachByItself:
    def __init__(self, records, rate, batches):
        self.records, self.rate, self.batches = records, rate, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            yield (torch.rand(self.records) < self.rate).nonzero()[:, 0].tolist()


torch.manual_seed(21)
x1, x2 = torch.randn(80, 5), torch.randn(80, 5)
overdue = Column((x1[:, 0] > x2[:, 0]).numpy().astype(int), reversed(range(80)))
one, two, top = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(6, 2)
optimizer = torch.optim.SGD([*one.parameters(), *two.parameters(), *top.parameters()], lr=0.1)
wire = vflpriv.watch([one, two], labels=overdue, classes=2)
rows = TensorDataset(x1, x2, torch.from_numpy(overdue.values))
for a, b, y in wire.ids(DataLoader(rows, batch_sampler=EachByItself(80, 0.3, 4))):
    loss = nn.functional.cross_entropy(top(torch.cat([one(a), two(b)], dim=1)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
