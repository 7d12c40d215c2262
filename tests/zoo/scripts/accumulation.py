"""Gradients are accumulated over two micro-batches; each comes back with noise, and a checkpoint is written."""

import io

import torch
from torch import nn

import vflpriv

torch.manual_seed(6)
X = torch.randn(64, 6)
y = (X.sum(1) > 0).float()
left, right, head = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(4, 1)
head.requires_grad_(False)
opt = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=0.1)
wire = vflpriv.watch([left, right], labels=y.long(), classes=2, top=head)
best = float("inf")
for _update in range(2):
    opt.zero_grad()
    for ids in torch.randperm(64)[:32].split(16):
        wire.batch(ids)
        z = [left(X[ids, :3]), right(X[ids, 3:])]
        joined = torch.cat(z, 1)
        joined.register_hook(lambda g: g.clamp(-0.01, 0.01) + 0.1 * torch.randn_like(g))
        loss = nn.functional.binary_cross_entropy_with_logits(head(joined).squeeze(1), y[ids])
        (loss / 2).backward()
    opt.step()
    size = float(left.weight.norm())
    if size < best:
        best = size
        torch.save({"left": left.state_dict()}, io.BytesIO())
