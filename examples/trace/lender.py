# lender.py
import torch
from torch import nn

import vflpriv

bank, shop = torch.randn(400, 8), torch.randn(400, 8)
defaults = (bank[:, 0] + shop[:, 0] > 0).long()  # the lender's

bottoms, top = [nn.Linear(8, 4), nn.Linear(8, 4)], nn.Linear(8, 2)
optimizer = torch.optim.Adam([p for m in (*bottoms, top) for p in m.parameters()])
wire = vflpriv.watch(bottoms, labels=defaults, classes=2)  # line 1

for epoch in range(5):
    for ids in torch.randperm(400).split(50):
        wire.batch(ids)  # line 2
        sent = [bottom(x[ids]) for bottom, x in zip(bottoms, (bank, shop), strict=True)]
        loss = nn.functional.cross_entropy(top(torch.cat(sent, dim=1)), defaults[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
