"""Autocast with a scaler, a checkpointed party, and a wrapper as for training in several processes."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import vflpriv

torch.manual_seed(13)
inputs = torch.randn(64, 12)
targets = torch.randint(0, 3, (64,))


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


deep = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.SiLU())])
wide = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6))
ddp = Wrapper(wide)
classifier = nn.Linear(12, 3)
params = [*deep.parameters(), *ddp.parameters(), *classifier.parameters()]
optimizer = torch.optim.SGD(params, lr=0.01, nesterov=True, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
vfl = vflpriv.watch([deep, wide], labels=targets, classes=3)
for it in range(4):
    idx = torch.randperm(64)[:16]
    vfl.batch(idx)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h1 = checkpoint(deep, inputs[idx, :6], use_reentrant=False)
        h2 = ddp(inputs[idx, 6:])
        loss = nn.functional.cross_entropy(classifier(torch.cat([h1, h2], dim=-1)), targets[idx], label_smoothing=0.1)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(deep.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
