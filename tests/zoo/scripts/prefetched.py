"""Two data sets in one, split twice, read two batches ahead of the loop; a party's module gives a dict."""

from collections import deque

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset, random_split

import vflpriv


class Augmented(Dataset):
    def __init__(self, base, scale):
        self.base, self.scale = base, scale

    def __len__(self):
        return len(self.base)

    def __getitem__(self, i):
        x, y = self.base[i]
        return {"x": x * self.scale, "y": y}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.aux = nn.Linear(4, 5), nn.Linear(5, 4)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return {"hidden": hidden, "rebuilt": self.aux(hidden)}


def ahead(batches, depth=2):
    queue = deque()
    for batch in batches:
        queue.append(batch)
        if len(queue) > depth:
            yield queue.popleft()
    while queue:
        yield queue.popleft()


torch.manual_seed(14)
features = torch.randn(90, 8)
classes = (features[:, 0] * features[:, 5] > 0).long()
old = TensorDataset(features[:50], classes[:50])
new = TensorDataset(features[50:], classes[50:])
everything = ConcatDataset([old, new])
rest, _ = random_split(everything, [80, 10])
training, _ = random_split(rest, [70, 10])
loader = DataLoader(Augmented(training, 1.0), batch_size=16, shuffle=True, num_workers=1)
encoder, other, clf = Encoder(), nn.Linear(4, 5), nn.Linear(10, 2)
opt = torch.optim.Adam([*encoder.parameters(), *other.parameters(), *clf.parameters()])
wire = vflpriv.watch([encoder, other], labels=classes, classes=2, output=["hidden", None])
for epoch in range(2):
    for batch in ahead(wire.ids(loader)):
        left, right = batch["x"].split(4, dim=1)
        given = encoder(left)
        loss = nn.functional.cross_entropy(clf(torch.cat([given["hidden"], other(right)], 1)), batch["y"])
        loss = loss + 0.1 * nn.functional.mse_loss(given["rebuilt"], left)
        opt.zero_grad()
        loss.backward()
        opt.step()
