"""A text transformer and a frozen bottom that was trained before; gradients go back to the transformer as they are."""

import torch
from torch import nn

import vflpriv


class TextBottom(nn.Module):
    def __init__(self, vocabulary=50, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.encoder(self.embed(tokens)).mean(dim=1)


torch.manual_seed(5)
tokens, table = torch.randint(0, 50, (60, 6)), torch.randn(60, 4)
labels = (table[:, 0] > 0).long()
pretrained = nn.Sequential(nn.Linear(4, 8), nn.Tanh()).requires_grad_(False).eval()
text, classifier = TextBottom(), nn.Linear(16, 2)
optimizer = torch.optim.AdamW([*text.parameters(), *classifier.parameters()], lr=1e-3)
wire = vflpriv.watch([text, pretrained], labels=labels, classes=2)
for step in range(3):
    idx = torch.randint(0, 60, (100,)).unique()[:20]
    wire.batch(idx)
    with torch.no_grad():
        other = pretrained(table[idx])
    fused = torch.cat([text(tokens[idx]), other], dim=1)
    loss = nn.functional.cross_entropy(classifier(fused), labels[idx])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
