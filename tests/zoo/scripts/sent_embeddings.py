"""Two parties send clipped and noised embeddings, and get noised gradients of the server's frozen head back."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(5)
x1, x2 = torch.randn(60, 4), torch.randn(60, 4)
y = (x1[:, 0] + x2[:, 0] > 0).long()
bottoms = [nn.Linear(4, 3), nn.Linear(4, 3)]
for bottom in bottoms:
    bottom.requires_grad_(False)  # random features

with vflpriv.trace(labels=y, features=[x1, x2], classes=2) as wire:
    for step, ids in enumerate(torch.randperm(60).split(20)):
        for device, (bottom, x) in enumerate(zip(bottoms, (x1, x2))):
            h = bottom(x[ids])
            h = h / torch.linalg.vector_norm(h, dim=1, keepdim=True).clamp(min=1.0)
            wire.up(step, device, "embeddings", {"embedding": h + 1.5 * torch.randn(h.shape)}, records=ids)
