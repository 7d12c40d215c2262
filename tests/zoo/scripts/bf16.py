"""Everything in bfloat16 but for the noise, which is added in float32 before the cast."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(3)
data = torch.randn(96, 8).bfloat16()
target = (data[:, 1] > 0).long()
parts = [nn.Linear(4, 4).bfloat16() for _ in range(2)]
server = nn.Linear(8, 2).bfloat16()
sgd = torch.optim.SGD([p for m in parts for p in m.parameters()], lr=0.05)
wire = vflpriv.watch(parts, labels=target, classes=2)
for _it in range(3):
    batch = torch.randperm(96)[:24]
    wire.batch(batch)
    out = [m(block[batch]) for m, block in zip(parts, data.split(4, dim=1))]
    leaf = torch.cat([o.detach() for o in out], 1).requires_grad_()
    nn.functional.cross_entropy(server(leaf).float(), target[batch]).backward()
    g = leaf.grad.float()
    g = g * (0.01 / g.norm(dim=1, keepdim=True).clamp(min=1e-9)).clamp(max=1.0)
    g = (g + 0.2 * torch.randn(g.shape)).bfloat16()
    sgd.zero_grad()
    torch.autograd.backward(out, list(g.split(4, dim=1)))
    sgd.step()
