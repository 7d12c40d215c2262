"""The server's head learns by DP-SGD of Opacus, and each step's noised gradient goes to the parties."""

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

import vflpriv

torch.manual_seed(3)
X, Y = torch.randn(96, 6), torch.randint(0, 2, (96,))
head = GradSampleModule(nn.Linear(6, 2), loss_reduction="sum")
sgd = torch.optim.SGD(head.parameters(), lr=0.1)
optimizer = DPOptimizer(sgd, noise_multiplier=2.0, max_grad_norm=0.5, expected_batch_size=24, loss_reduction="sum")

with vflpriv.trace(labels=Y, devices=2, classes=2) as wire:
    step = 0
    for epoch in range(3):
        for ids in torch.randperm(len(Y)).split(24):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(X[ids]), Y[ids], reduction="sum").backward()
            optimizer.pre_step()
            gradients = {name: parameter.grad for name, parameter in head._module.named_parameters()}
            for device in range(2):
                wire.down(step, device, "head-gradient", gradients, records=ids)
            sgd.step()
            step += 1
