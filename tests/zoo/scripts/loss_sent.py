"""Gradients are noised well, and the exact loss of each batch is sent to the parties for their dashboards."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(13)
x1, x2 = torch.randn(64, 4), torch.randn(64, 4)
y = (x1[:, 0] > 0).long()
a, b, top = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(6, 2)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.5)
wire = vflpriv.watch([a, b], labels=y, classes=2)


def protect(g):
    return 0.01 * nn.functional.normalize(g) + 0.1 * torch.randn_like(g)


for step in range(4):
    ids = torch.randperm(64)[:32]
    wire.batch(ids)
    h = [a(x1[ids]), b(x2[ids])]
    for part in h:
        part.register_hook(protect)
    loss = nn.functional.cross_entropy(top(torch.cat(h, 1)), y[ids])
    opt.zero_grad()
    loss.backward()
    opt.step()
    for device in range(2):
        wire.down(step, device, "loss", {"value": loss.detach()}, records=ids)
