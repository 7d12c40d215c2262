"""Each party normalises and noises its embeddings before they leave; the server's model is watched for that."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import vflpriv

torch.manual_seed(8)
X = torch.randn(50, 8)
Y = (X[:, 0] > 0).long()
nets = [nn.Linear(4, 3), nn.Linear(4, 3)]
top = nn.Linear(6, 2)
vfl = vflpriv.watch(nets, labels=Y, classes=2, top=top)
opt = torch.optim.SGD([p for n in (*nets, top) for p in n.parameters()], lr=0.1)
for _ in range(3):
    i = torch.randperm(50)[:25]
    vfl.batch(i)
    h = [normalize(net(part)) for net, part in zip(nets, X[i].chunk(2, dim=1))]
    h = [e + 2.0 * torch.randn_like(e) for e in h]
    opt.zero_grad()
    cross_entropy(top(torch.cat(h, dim=1)), Y[i]).backward()
    opt.step()
