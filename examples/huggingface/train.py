"""A small transformer reads a party's texts, another party has a table; Hugging Face's Trainer, one callback.

pip install "vflpriv[huggingface]"
python train.py [folder]
vflpriv audit --transcript transcript --ledger ledger.toml
"""

import sys
import tempfile

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, Trainer, TrainingArguments

import vflpriv
from vflpriv.huggingface import Watch

RECORDS = 120


class Records(Dataset):
    def __init__(self, tokens, table, labels):
        self.tokens, self.table, self.labels = tokens, table, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "table": self.table[i], "labels": self.labels[i]}


class TwoParties(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        self.text, self.table, self.top = BertModel(config), nn.Linear(4, 16), nn.Linear(32, 2)

    def forward(self, input_ids, table, labels):
        sent = [self.text(input_ids=input_ids).pooler_output, self.table(table)]
        scores = self.top(torch.cat(sent, dim=1))
        return {"loss": cross_entropy(scores, labels), "logits": scores}


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "transcript"
    torch.manual_seed(0)
    tokens, table = torch.randint(0, 40, (RECORDS, 6)), torch.randn(RECORDS, 4)
    labels, canaries = vflpriv.plant((table[:, 0] > 0).long(), classes=2, canaries=30, seed=1)
    watch = Watch(
        ["text", "table"], output=["pooler_output", None], labels=labels, classes=2, canaries=canaries, folder=folder
    )
    with tempfile.TemporaryDirectory() as scratch:
        settings = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=2,
            per_device_train_batch_size=10,
            gradient_accumulation_steps=2,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        data = Records(tokens, table, torch.as_tensor(labels))
        Trainer(model=TwoParties(), args=settings, train_dataset=data, callbacks=[watch]).train()
