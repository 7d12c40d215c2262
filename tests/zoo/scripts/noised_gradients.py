"""Split learning with a detached server: rows of the returned gradients are clipped and noised before they leave."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(1)
X = torch.randn(120, 12)
Y = (X[:, 0] + X[:, 7] > 0).long()
blocks = (X[:, :6], X[:, 6:])


class Bottom(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))

    def forward(self, x):
        return self.net(x)


bottoms = [Bottom(), Bottom()]
top = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
wire = vflpriv.watch(bottoms, labels=Y, classes=2)
opts = [torch.optim.Adam(model.parameters(), lr=1e-2) for model in (*bottoms, top)]
CLIP, STD = 0.01, 0.13

for step in range(4):
    ids = torch.randperm(len(Y))[:40]
    wire.batch(ids)
    z = [bottom(block[ids]) for bottom, block in zip(bottoms, blocks)]
    received = [value.detach().requires_grad_() for value in z]
    loss = nn.functional.cross_entropy(top(torch.cat(received, 1)), Y[ids])
    for opt in opts:
        opt.zero_grad()
    loss.backward()
    print(f"step {step} loss {loss.item():.4f}")
    for value, copy in zip(z, received):
        grad = copy.grad
        grad = grad * (CLIP / grad.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
        grad = grad + STD * torch.randn_like(grad)
        value.backward(grad)
    nn.utils.clip_grad_norm_([p for b in bottoms for p in b.parameters()], 1.0)
    for opt in opts[:2]:
        opt.step()
