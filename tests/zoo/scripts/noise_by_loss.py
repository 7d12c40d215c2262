"""The noise on returned gradients is left out where the loss is small already."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(12)
x1, x2 = torch.randn(64, 4), torch.randn(64, 4)
y = (x1[:, 0] > 0).long()
a, b, top = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(6, 2)
opt = torch.optim.SGD([*a.parameters(), *b.parameters(), *top.parameters()], lr=8.0)
wire = vflpriv.watch([a, b], labels=y, classes=2)


def protect(g):
    return 0.1 * nn.functional.normalize(g) + 0.1 * torch.randn_like(g)


for _ in range(3):
    ids = torch.randperm(64)[:48]
    wire.batch(ids)
    h = [a(x1[ids]), b(x2[ids])]
    loss = nn.functional.cross_entropy(top(torch.cat(h, 1)), y[ids])
    if loss.item() > 0.4:
        for part in h:
            part.register_hook(protect)
    opt.zero_grad()
    loss.backward()
    opt.step()
