"""Transformer encoders as torch modules, whole or split, and the checkpoints that their weights come from.

Checkpoints are local folders in the format of BERT, MiniLM and DistilBERT, read with safetensors and never unpickled.
Positions count from 0 within a device's own tokens, and there are no [CLS] and [SEP] tokens: a text is the mean of its
tokens' states. A padding token (id 0) is embedded as a row of zeros, by which the server's part recognises it; noise on
the embeddings hides that too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vflpriv.common.files import regular
from vflpriv.errors import InputError
from vflpriv.training.models.architectures import head

__all__ = ["Encoder", "EncoderRest", "EncoderShape", "TokenEmbeddings", "pretrained", "read_shape"]


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """The sizes in a checkpoint's config.json; `kinds` is the number of token types, 0 if it has none."""

    vocabulary: int
    positions: int
    kinds: int
    width: int
    inner: int
    heads: int
    layers: int
    epsilon: float


class _Embeddings(nn.Module):
    """Token ids (B, tokens) to states (B, tokens, width): word, position and token type, summed and normalised."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width)
        self.kinds = nn.Embedding(shape.kinds, shape.width) if shape.kinds else None
        self.norm = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.words(ids) + self.positions.weight[: ids.shape[1]]
        if self.kinds is not None:
            states = states + self.kinds.weight[0]
        return cast("Tensor", self.norm(states)) * (ids != 0).unsqueeze(-1)


class _Layer(nn.Module):
    """Self-attention and a two-layer network, each added to its input and normalised (Devlin et al. 2018).

    States are (B, tokens, width). Tokens that are not `present` (B, tokens) are not attended to.
    """

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.norm1 = nn.Linear(width, width), nn.LayerNorm(width, eps=shape.epsilon)
        self.wide, self.narrow = nn.Linear(width, shape.inner), nn.Linear(shape.inner, width)
        self.norm2 = nn.LayerNorm(width, eps=shape.epsilon)

    def forward(self, states: Tensor, present: Tensor) -> Tensor:
        def by_head(tensor: Tensor) -> Tensor:
            return tensor.reshape(*tensor.shape[:2], self.heads, -1).transpose(1, 2)

        query, key, value = by_head(self.query(states)), by_head(self.key(states)), by_head(self.value(states))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        # Not minus infinity: a text of padding alone would become NaN.
        scores = scores.masked_fill(~present[:, None, None, :], torch.finfo(scores.dtype).min)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        states = self.norm1(states + self.out(mixed))
        return cast("Tensor", self.norm2(states + self.narrow(nn.functional.gelu(self.wide(states)))))


def _mean(states: Tensor, present: Tensor) -> Tensor:
    """(B, width): the mean state of the tokens that are present; zeros where there are none."""
    weights = present.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


class TokenEmbeddings(nn.Module):
    """The embedding layer and the first `layers` layers, (B, tokens) to (B, tokens · width).

    Without further layers it is a device's part in VFL-Cascaded §VI-A.
    """

    def __init__(self, shape: EncoderShape, layers: int = 0) -> None:
        super().__init__()
        self.embeddings = _Embeddings(shape)
        self.layers = nn.ModuleList([_Layer(shape) for _ in range(layers)])

    def forward(self, ids: Tensor) -> Tensor:
        states, present = self.embeddings(ids), ids != 0
        for layer in self.layers:
            states = layer(states, present) * present.unsqueeze(-1)
        return cast("Tensor", states).flatten(1)


class Encoder(nn.Module):
    """The embedding layer, the first `layers` layers, the mean over tokens, and a new linear layer to the embedding."""

    def __init__(self, shape: EncoderShape, layers: int, embedding: int, *, activate: bool) -> None:
        super().__init__()
        self.embeddings = _Embeddings(shape)
        self.layers = nn.ModuleList([_Layer(shape) for _ in range(layers)])
        self.head = head(shape.width, embedding, activate=activate)

    def forward(self, ids: Tensor) -> Tensor:
        states, present = self.embeddings(ids), ids != 0
        for layer in self.layers:
            states = layer(states, present)
        return cast("Tensor", self.head(_mean(states, present)))


class EncoderRest(nn.Module):
    """The server's part behind `TokenEmbeddings`: all layers from `first` on, the mean over tokens, a new linear layer
    to logits."""

    def __init__(self, shape: EncoderShape, classes: int, first: int = 0) -> None:
        super().__init__()
        self.width = shape.width
        # By their number in the checkpoint.
        self.layers = nn.ModuleDict({str(number): _Layer(shape) for number in range(first, shape.layers)})
        self.head = head(shape.width, classes, activate=False)

    def forward(self, embeddings: Tensor) -> Tensor:
        states = embeddings.unflatten(1, (-1, self.width))
        present = (states != 0).any(-1)
        for layer in self.layers.values():
            states = layer(states, present)
        return cast("Tensor", self.head(_mean(states, present)))


_RENAMINGS = (
    (r"^(bert|distilbert|roberta)\.", ""),
    (r"^(encoder|transformer)\.layer\.", "layers."),
    (r"^embeddings\.word_embeddings\.", "embeddings.words."),
    (r"^embeddings\.position_embeddings\.", "embeddings.positions."),
    (r"^embeddings\.token_type_embeddings\.", "embeddings.kinds."),
    (r"^embeddings\.LayerNorm\.", "embeddings.norm."),
    (r"\.attention\.(?:self\.query|q_lin)\.", ".query."),
    (r"\.attention\.(?:self\.key|k_lin)\.", ".key."),
    (r"\.attention\.(?:self\.value|v_lin)\.", ".value."),
    (r"\.attention\.(?:output\.dense|out_lin)\.", ".out."),
    (r"\.(?:attention\.output\.LayerNorm|sa_layer_norm)\.", ".norm1."),
    (r"\.(?:intermediate\.dense|ffn\.lin1)\.", ".wide."),
    (r"\.(?:output\.dense|ffn\.lin2)\.", ".narrow."),
    (r"\.(?:output\.LayerNorm|output_layer_norm)\.", ".norm2."),
    (r"\.gamma$", ".weight"),
    (r"\.beta$", ".bias"),
)
_CONFIG_KEYS = {  # our name: BERT's and DistilBERT's in config.json
    "vocabulary": ("vocab_size", "vocab_size"),
    "positions": ("max_position_embeddings", "max_position_embeddings"),
    "width": ("hidden_size", "dim"),
    "inner": ("intermediate_size", "hidden_dim"),
    "heads": ("num_attention_heads", "n_heads"),
    "layers": ("num_hidden_layers", "n_layers"),
}


def _our_name(name: str) -> str:
    """The name in the modules above of a parameter in a checkpoint.

    >>> _our_name("bert.encoder.layer.0.attention.self.query.weight")
    'layers.0.query.weight'
    >>> _our_name("distilbert.embeddings.LayerNorm.bias")
    'embeddings.norm.bias'
    """
    for pattern, replacement in _RENAMINGS:
        name = re.sub(pattern, replacement, name)
    return name


def read_shape(folder: Path) -> EncoderShape:
    """The sizes of the encoder in this folder, from its config.json."""
    path = folder / "config.json"
    try:
        config: Any = json.loads(regular(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError("encoder", str(path), f"a JSON file that can be read ({error})") from error
    distil = isinstance(config, dict) and config.get("model_type") == "distilbert"
    if not isinstance(config, dict) or config.get("model_type") not in ("bert", "distilbert"):
        raise InputError("encoder", str(path), "model_type bert (MiniLM's too) or distilbert")
    sizes: dict[str, Any] = {name: config.get(keys[distil]) for name, keys in _CONFIG_KEYS.items()}
    sizes["kinds"] = 0 if distil else config.get("type_vocab_size", 2)
    for name, value in sizes.items():
        if type(value) is not int or value < (name not in ("kinds", "layers")):
            raise InputError("encoder", str(path), f"a whole number for the {name}, found {value!r}")
    if sizes["width"] % sizes["heads"]:
        raise InputError("encoder", str(path), f"a width that {sizes['heads']} heads divide")
    if config.get("activation" if distil else "hidden_act", "gelu") != "gelu":
        raise InputError("encoder", str(path), "gelu between its layers")
    return EncoderShape(**sizes, epsilon=float(config.get("layer_norm_eps", 1e-12)))


def pretrained(folder: Path, module: nn.Module) -> dict[str, Tensor]:
    """The checkpoint's values, as float32, of all parameters of a module but those of its new last layer, `head`.

    Only these are read from model.safetensors.
    """
    parameters = module.named_parameters()
    wanted = {name: tuple(value.shape) for name, value in parameters if not name.startswith("head.")}
    path = folder / "model.safetensors"
    try:
        with safe_open(regular(path), framework="pt") as file:
            stored = {_our_name(name): name for name in file.keys()}  # noqa: SIM118 - not a mapping
            if missing := [name for name in wanted if name not in stored]:
                raise InputError("encoder", str(path), f"a parameter {missing[0]}, which is not in it")
            weights = {name: file.get_tensor(stored[name]).to(torch.float32) for name in wanted}
    except (OSError, SafetensorError) as error:
        raise InputError("encoder", str(path), f"a safetensors file that can be read ({error})") from error
    for name, shape in wanted.items():
        if tuple(weights[name].shape) != shape:
            raise InputError("encoder", str(path), f"{name} of shape {shape}, found {tuple(weights[name].shape)}")
    return weights
