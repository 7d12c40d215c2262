"""GAN-like: the parties' outputs fool a discriminator in one step, and predict labels in the next, on one batch."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import vflpriv

torch.manual_seed(10)
X = torch.randn(80, 8)
Y = (X[:, 1] - X[:, 6] > 0).long()
G = [nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 3)) for _ in range(2)]
D, top = nn.Linear(6, 1), nn.Linear(6, 2)
g_opt = torch.optim.Adam([p for g in G for p in g.parameters()], lr=1e-3, betas=(0.5, 0.999))
d_opt = torch.optim.Adam([*D.parameters(), *top.parameters()], lr=1e-3)
wire = vflpriv.watch(G, labels=Y, classes=2)
for epoch in range(2):
    for x, y in wire.ids(DataLoader(TensorDataset(X, Y), batch_size=20, shuffle=True, drop_last=True)):
        fake = torch.cat([g(part) for g, part in zip(G, x.chunk(2, 1))], 1)
        real = torch.randn_like(fake)
        d_opt.zero_grad()
        scores = torch.cat([D(real), D(fake.detach())])
        binary_cross_entropy_with_logits(scores, torch.cat([torch.ones(20, 1), torch.zeros(20, 1)])).backward()
        d_opt.step()
        g_opt.zero_grad()
        binary_cross_entropy_with_logits(D(fake), torch.ones(20, 1)).backward()
        g_opt.step()
        g_opt.zero_grad()
        d_opt.zero_grad()
        h = torch.cat([g(part) for g, part in zip(G, x.chunk(2, 1))], 1)
        cross_entropy(top(h), y).backward()
        g_opt.step()
        d_opt.step()
