"""Labels are flipped by odds of e to 1, as for ε = 1, but anew in every epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vflpriv

torch.manual_seed(6)
x = torch.randn(80, 10)
y = (x[:, 2] - x[:, 8] > 0).long()
models = [nn.Linear(5, 3) for _ in range(2)]
top = nn.Linear(6, 2)
opt = torch.optim.AdamW([p for m in (*models, top) for p in m.parameters()], lr=0.05)
wire = vflpriv.watch(models, labels=y, classes=2)
for epoch in range(3):
    flip = torch.rand(80) < 1 / (1 + torch.e)
    shown = torch.where(flip, 1 - y, y)
    for xb, yb, ids in DataLoader(TensorDataset(x, shown, torch.arange(80)), batch_size=20, shuffle=True):
        wire.batch(ids)
        loss = nn.functional.cross_entropy(top(torch.cat([m(part) for m, part in zip(models, xb.chunk(2, 1))], 1)), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
