"""Three parties, of which the last answers every third time; the label holder adds features of its own."""

import torch
from torch import nn

import vflpriv

torch.manual_seed(11)
data = torch.randn(60, 11)
y = (data.sum(1) > 0).float()
parties = [nn.Linear(3, 2), nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))]
own, head = nn.Linear(2, 2), nn.Linear(8, 1)
opts = [torch.optim.SGD(p.parameters(), lr=0.05) for p in parties]
server = torch.optim.SGD([*own.parameters(), *head.parameters()], lr=0.05)
wire = vflpriv.watch(parties, labels=y, classes=2)
stale = torch.zeros(60, 2)


def evaluate():
    for party in parties:
        party.eval()
    with torch.no_grad():
        h = [party(part) for party, part in zip(parties, data[:, :9].split(3, 1))]
        accuracy = ((head(torch.cat([*h, own(data[:, 9:])], 1)).squeeze(1) > 0) == (y > 0)).float().mean()
    for party in parties:
        party.train()
    return float(accuracy)


for step in range(6):
    ids = torch.randperm(60)[:15]
    wire.batch(ids.tolist())
    blocks = data[ids, :9].split(3, 1)
    answers = [parties[0](blocks[0]), parties[1](blocks[1])]
    if step % 3 == 0:
        answers.append(parties[2](blocks[2]))
        stale[ids] = answers[2].detach()
    else:
        answers.append(stale[ids])
    logits = head(torch.cat([*answers, own(data[ids, 9:])], 1)).squeeze(1)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y[ids])
    for opt in (*opts, server):
        opt.zero_grad()
    loss.backward()
    for opt in (*opts, server):
        opt.step()
    if step % 2:
        print(f"step {step}: accuracy {evaluate():.2f}")
