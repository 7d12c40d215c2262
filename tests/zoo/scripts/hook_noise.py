"""The server's noise is added by a hook on each embedding, after rows were clipped; its own model is frozen."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import vflpriv

torch.manual_seed(2)
x1, x2 = torch.randn(90, 5), torch.randn(90, 5)
y = (x1[:, 0] > x2[:, 0]).long()
a, b, head = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(6, 2)
head.requires_grad_(False)
optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1, momentum=0.9)
wire = vflpriv.watch([a, b], labels=y, classes=2)


def protect(grad):
    norms = grad.norm(dim=1, keepdim=True)
    clipped = grad / torch.clamp(norms / 0.01, min=1.0)
    return clipped + torch.normal(0.0, 0.1, size=grad.shape)


for _ in range(3):
    rows = torch.randperm(90)[:32]
    wire.batch(rows)
    h1, h2 = a(x1[rows]), b(x2[rows])
    h1.register_hook(protect)
    h2.register_hook(protect)
    optimizer.zero_grad()
    cross_entropy(head(torch.cat([h1, h2], dim=1)), y[rows]).backward()
    optimizer.step()
