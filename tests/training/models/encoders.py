"""A tiny encoder checkpoint in the format of BERT or DistilBERT, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["HEADS", "INNER", "LAYERS", "TOKENS", "WIDTH", "WORDS", "checkpoint", "numbers"]

TOKENS, WIDTH, HEADS, INNER, LAYERS, WORDS = 6, 8, 2, 12, 2, 20


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


BERT = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
    "norm1": "attention.output.LayerNorm",
    "norm2": "output.LayerNorm",
}
DISTIL = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "out": "attention.out_lin",
    "wide": "ffn.lin1",
    "narrow": "ffn.lin2",
    "norm1": "sa_layer_norm",
    "norm2": "output_layer_norm",
}


def checkpoint_names(*, distil: bool, old: bool, positions: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By our name of each parameter: its name in a checkpoint of this kind, and its shape."""
    square = (WIDTH, WIDTH)
    sizes = {"query": square, "key": square, "value": square, "out": square}
    sizes |= {"wide": (INNER, WIDTH), "narrow": (WIDTH, INNER), "norm1": (WIDTH,), "norm2": (WIDTH,)}
    base, layer, parts = (
        ("distilbert.", "distilbert.transformer.layer", DISTIL) if distil else ("", "encoder.layer", BERT)
    )
    names: dict[str, tuple[str, tuple[int, ...]]] = {
        "words.weight": (f"{base}embeddings.word_embeddings.weight", (WORDS, WIDTH)),
        "positions.weight": (f"{base}embeddings.position_embeddings.weight", (positions, WIDTH)),
        "norm.weight": (f"{base}embeddings.LayerNorm.{'gamma' if old else 'weight'}", (WIDTH,)),
        "norm.bias": (f"{base}embeddings.LayerNorm.{'beta' if old else 'bias'}", (WIDTH,)),
    }
    if not distil:
        names["kinds.weight"] = ("embeddings.token_type_embeddings.weight", (2, WIDTH))
    for i in range(LAYERS):
        for ours, size in sizes.items():
            weight, bias = ("gamma", "beta") if old and ours.startswith("norm") else ("weight", "bias")
            names[f"{i}.{ours}.weight"] = (f"{layer}.{i}.{parts[ours]}.{weight}", size)
            names[f"{i}.{ours}.bias"] = (f"{layer}.{i}.{parts[ours]}.{bias}", size[:1])
    return names


def checkpoint(folder: Path, *, distil: bool = False, old: bool = False, positions: int = 9) -> dict[str, Tensor]:
    """A tiny encoder in the format of its kind: BERT's names (`old` ones too) or DistilBERT's. Returns the weights."""
    names = checkpoint_names(distil=distil, old=old, positions=positions)
    values = {ours: 0.5 * numbers(*shape, seed=i) for i, (ours, (_, shape)) in enumerate(names.items())}
    stored = {names[ours][0]: value for ours, value in values.items()} | {"pooler.dense.weight": torch.zeros(1)}
    save_file(stored, folder / "model.safetensors")
    sizes: dict[str, Any] = {"vocab_size": WORDS, "max_position_embeddings": positions}
    if distil:
        sizes |= {"model_type": "distilbert", "dim": WIDTH, "hidden_dim": INNER, "n_heads": HEADS, "n_layers": LAYERS}
    else:
        sizes |= {"model_type": "bert", "hidden_size": WIDTH, "intermediate_size": INNER, "layer_norm_eps": 1e-6}
        sizes |= {"num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "type_vocab_size": 2, "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(sizes), "utf-8")
    return values
