"""Three parties; the label holder has features of its own, and the second party's gradient leaves without noise."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vflpriv

torch.manual_seed(7)
full = torch.randn(72, 12)
y = (full[:, 3] + full[:, 10] > 0).long()
dataset = TensorDataset(full, y)
parties = nn.ModuleList(nn.Sequential(nn.Linear(3, 4), nn.Tanh()) for _ in range(3))
own, top = nn.Linear(3, 4), nn.Linear(16, 2)
top.requires_grad_(False)
wire = vflpriv.watch(list(parties), labels=y, classes=2)
optim = torch.optim.Adam([*parties.parameters(), *own.parameters()], lr=1e-2)


def noised(grad):
    return grad.clamp(-1e-3, 1e-3) + 0.05 * torch.randn_like(grad)


for epoch in range(1):
    for xb, yb in wire.ids(DataLoader(dataset, batch_size=24, shuffle=True, num_workers=2)):
        x = xb.split(3, dim=1)
        hidden = [party(part) for party, part in zip(parties, x)]
        hidden[0].register_hook(noised)
        hidden[2].register_hook(noised)
        scores = top(torch.cat([*hidden, own(x[3])], 1))
        optim.zero_grad()
        nn.functional.cross_entropy(scores, yb).backward()
        optim.step()
