"""Each party has its own optimiser and schedule; weights are clipped and averaged, and validation stops early."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

import vflpriv

torch.manual_seed(12)
x = torch.randn(100, 10)
t = 3 * x[:, 2] - x[:, 7] + 0.1 * torch.randn(100)
whole = TensorDataset(x, t)
train, held_out = random_split(whole, [0.8, 0.2])
train = Subset(train, range(72))
nets = nn.ModuleDict({"bank": nn.Linear(5, 4), "shop": nn.Sequential(nn.Linear(5, 4), nn.GELU())})
top = nn.Linear(8, 1)
optimisers = [
    torch.optim.AdamW(nets["bank"].parameters(), lr=1e-2, amsgrad=True),
    torch.optim.RMSprop(nets["shop"].parameters(), lr=1e-3),
    torch.optim.Adagrad(top.parameters(), lr=1e-2),
]
schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 3) for o in optimisers]
averaged = copy.deepcopy(nets)
wire = vflpriv.watch([nets["bank"], nets["shop"]], labels=t, classes=None)


def predict(models, batch):
    return top(torch.cat([models["bank"](batch[:, :5]), models["shop"](batch[:, 5:])], 1)).squeeze(1)


@torch.no_grad()
def evaluate():
    nets.eval()
    error = sum(float((predict(nets, b) - c).square().sum()) for b, c in DataLoader(held_out, batch_size=10))
    nets.train()
    return error


best = float("inf")
for epoch in range(3):
    for b, c in wire.ids(DataLoader(train, batch_size=24, shuffle=True)):
        loss = nn.functional.smooth_l1_loss(predict(nets, b), c)
        [o.zero_grad() for o in optimisers]
        loss.backward()
        nn.utils.clip_grad_value_(nets.parameters(), 1.0)
        [o.step() for o in optimisers]
        with torch.no_grad():
            for mean, new in zip(averaged.parameters(), nets.parameters()):
                mean.lerp_(new, 0.1)
    [s.step() for s in schedules]
    error = evaluate()
    if error > best:
        break
    best = error
