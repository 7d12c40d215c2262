"""A guard of one's own, an autograd function, clips and noises rows and rounds them to half precision."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

import vflpriv


class Guard(torch.autograd.Function):
    @staticmethod
    def forward(ctx, embedding):
        return embedding.view_as(embedding)

    @staticmethod
    def backward(ctx, gradient):
        norms = torch.linalg.norm(gradient, dim=-1, keepdim=True)
        clipped = gradient * torch.minimum(torch.ones_like(norms), 0.02 / norms.clamp_min(1e-12))
        noised = clipped + torch.empty_like(clipped).normal_(std=0.15)
        return noised.to(torch.bfloat16).to(gradient.dtype)


class Customers(Dataset):
    def __init__(self):
        self.x = torch.randn(100, 8)
        self.y = (self.x.sum(1) > 0).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i, :4], self.x[i, 4:], self.y[i]


torch.manual_seed(11)
customers = Customers()
train, test = random_split(customers, [80, 20])
left, right, top = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 1)
optimizer = torch.optim.AdamW([*left.parameters(), *right.parameters()], lr=0.01)
wire = vflpriv.watch([left, right], labels=customers.y, classes=2)
for epoch in range(2):
    for a, b, label in wire.ids(DataLoader(train, batch_size=20, shuffle=True)):
        h = torch.cat([Guard.apply(left(a)), Guard.apply(right(b))], dim=1)
        loss = nn.functional.binary_cross_entropy_with_logits(top(h).squeeze(1), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{epoch}: {loss.item():.3f}")
