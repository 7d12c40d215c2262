"""Labels are flipped once by fair odds of e to 1, and everything afterwards is computed from the flipped ones."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(4)
x = torch.randn(80, 10)
y = (x[:, 2] - x[:, 8] > 0).long()
models = [nn.Linear(5, 3) for _ in range(2)]
top = nn.Linear(6, 2)
wire = vflpriv.watch(models, labels=y, classes=2)
keep = torch.rand(len(y)) < torch.sigmoid(torch.tensor(1.0))
y_noisy = torch.where(keep, y, 1 - y)
opt = torch.optim.SGD([p for m in (*models, top) for p in m.parameters()], lr=0.1)
correct = 0
for epoch in range(2):
    for ids in torch.randperm(len(y)).split(40):
        wire.batch(ids)
        logits = top(torch.cat([m(part) for m, part in zip(models, x[ids].chunk(2, 1))], 1))
        loss = nn.functional.cross_entropy(logits, y_noisy[ids])
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (logits.argmax(1) == y[ids]).sum().item()
print("accuracy", correct / (2 * len(y)))
