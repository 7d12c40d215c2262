"""Split learning of a table by two parties in Lightning; one callback records it.

pip install "vflpriv[lightning]"
python train.py [folder]
vflpriv audit --transcript transcript --ledger ledger.toml
"""

import sys
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

import vflpriv
from vflpriv.lightning import Watch

RECORDS = 240


class SplitModel(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.bottoms = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))
        self.top = nn.Linear(8, 2)

    def scores(self, x):
        parts = zip(self.bottoms, x.chunk(2, dim=1), strict=True)
        return self.top(torch.cat([bottom(part) for bottom, part in parts], dim=1))

    def training_step(self, batch, _):
        x, y = batch
        return cross_entropy(self.scores(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.log("accuracy", (self.scores(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="lightning")
    folder = sys.argv[1] if len(sys.argv) > 1 else "transcript"
    torch.manual_seed(0)
    x = torch.randn(RECORDS, 12)
    labels, canaries = vflpriv.plant((x[:, 0] + x[:, 7] > 0).long(), classes=2, canaries=60, seed=1)
    train, validation = random_split(TensorDataset(x, torch.as_tensor(labels)), [200, 40])
    watch = Watch("bottoms", labels=labels, classes=2, canaries=canaries, folder=folder)
    trainer = pl.Trainer(
        max_epochs=3,
        callbacks=[watch],
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SplitModel(), DataLoader(train, batch_size=20, shuffle=True), DataLoader(validation, batch_size=20))
