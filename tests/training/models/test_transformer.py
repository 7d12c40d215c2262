"""Encoders from a checkpoint equal torch's own layers, and errors name what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.models.builders import bottom, transformer_top
from tests.training.models.encoders import HEADS, INNER, LAYERS, TOKENS, WIDTH, WORDS, checkpoint
from vflpriv.common.random import Stream
from vflpriv.errors import InputError
from vflpriv.training.models.base import initialise


def replicas(count: int) -> Stream:
    return Stream.of(3, "init", range(count), torch.device("cpu"))


@pytest.mark.parametrize(("distil", "old"), [(False, False), (False, True), (True, False)])
def test_an_encoder_equals_torchs_own_layers(tmp_path: Path, distil: bool, old: bool) -> None:
    weights, epsilon = checkpoint(tmp_path, distil=distil, old=old), 1e-12 if distil else 1e-6
    model = bottom(
        "transformer", (TOKENS,), 7, encoder=str(tmp_path), encoder_layers=2, encoder_frozen=True, activate=False
    )
    assert list(model.shapes) == ["head.0.weight", "head.0.bias"]
    ids = torch.randint(1, WORDS, (4, TOKENS), generator=torch.Generator().manual_seed(2))
    ids[0, 4:] = 0
    states = weights["words.weight"][ids] + weights["positions.weight"][:TOKENS]
    states = states if distil else states + weights["kinds.weight"][0]
    states = nn.functional.layer_norm(states, (WIDTH,), weights["norm.weight"], weights["norm.bias"], epsilon)
    for i in range(LAYERS):
        states = reference_layer(weights, i, epsilon)(states, src_key_padding_mask=ids == 0)
    present = (ids != 0).unsqueeze(-1)
    mean = (states * present).sum(1) / present.sum(1)
    parameters = initialise(model, replicas(2), 0)
    expected = mean @ parameters["head.0.weight"][1].T + parameters["head.0.bias"][1]
    torch.testing.assert_close(model.apply(parameters, ids)[1], expected, atol=1e-5, rtol=1e-4)


def reference_layer(weights: dict[str, Tensor], i: int, epsilon: float) -> nn.TransformerEncoderLayer:
    """torch's own encoder layer with the weights of the checkpoint's layer i."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, 0.0, "gelu", epsilon, batch_first=True)
    attention = ("query", "key", "value")
    targets = {"out": layer.self_attn.out_proj, "wide": layer.linear1, "narrow": layer.linear2}
    targets |= {"norm1": layer.norm1, "norm2": layer.norm2}
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([weights[f"{i}.{part}.weight"] for part in attention]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([weights[f"{i}.{part}.bias"] for part in attention]))
        for part, target in targets.items():
            target.weight.copy_(weights[f"{i}.{part}.weight"])
            target.bias.copy_(weights[f"{i}.{part}.bias"])
    return layer


def test_a_split_encoder_equals_the_whole_one(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    tokens = bottom("transformer-embedding", (TOKENS,), TOKENS * WIDTH, encoder=str(tmp_path))
    rest = transformer_top(4, tmp_path)
    whole = bottom("transformer", (TOKENS,), 4, encoder=str(tmp_path), encoder_layers=LAYERS, activate=False)
    parameters = initialise(whole, replicas(2), 0)
    ids = torch.tensor([[3, 4, 5, 0, 0, 0], [1, 2, 3, 4, 5, 6]])
    rows = tokens.apply({name: parameters[name] for name in tokens.shapes}, ids)
    split = rest.apply({name: parameters[name] for name in rest.shapes}, rows)
    torch.testing.assert_close(split, whole.apply(parameters, ids))
    longer = whole.apply(parameters, torch.tensor([[3, 4, 5, 6, 0, 0]]))
    assert float((longer[:, 0] - split[:, 0]).abs().max()) > 1e-4


def test_an_encoder_starts_from_its_checkpoint_and_can_be_trained(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path)
    model = bottom("transformer", (TOKENS,), 7, encoder=str(tmp_path), encoder_layers=1)
    parameters = initialise(model, replicas(2), 0)
    for r in range(2):
        assert torch.equal(parameters["embeddings.words.weight"][r], weights["words.weight"])
    assert not torch.equal(parameters["head.0.weight"][0], parameters["head.0.weight"][1])
    parameters["embeddings.words.weight"][0].zero_()  # replicas do not share memory
    assert torch.equal(parameters["embeddings.words.weight"][1], weights["words.weight"])
    assert not any(name.startswith("layers.1") for name in model.shapes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": None}, r"config\.json.*a JSON file that can be read"),
        ({"config": "{"}, "a JSON file that can be read"),
        ({"config": "[]"}, "model_type bert"),
        ({"model_type": "gpt2"}, "model_type bert"),
        ({"hidden_size": "8"}, "a whole number for the width, found '8'"),
        ({"num_attention_heads": 3}, "a width that 3 heads divide"),
        ({"hidden_act": "relu"}, "gelu"),
        ({"vocab_size": 21}, r"embeddings\.words\.weight of shape \(21, 8\), found \(20, 8\)"),
        ({"num_hidden_layers": 3}, r"a parameter layers\.2\."),
        ({"weights": None}, r"model\.safetensors.*a safetensors file that can be read"),
        ({"weights": b"\x80\x04 not safetensors"}, "a safetensors file that can be read"),
    ],
)
def test_an_error_names_the_file_that_is_not_a_checkpoint(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    checkpoint(tmp_path)
    for name, key in (("config.json", "config"), ("model.safetensors", "weights")):
        if key in change and change[key] is None:
            (tmp_path / name).unlink()
        elif key in change:
            content = change[key]
            (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    if not {"config", "weights"} & change.keys():
        config = json.loads((tmp_path / "config.json").read_text("utf-8"))
        (tmp_path / "config.json").write_text(json.dumps(config | change), "utf-8")
    with pytest.raises(InputError, match=message):
        bottom("transformer", (TOKENS,), 7, encoder=str(tmp_path), encoder_layers=change.get("num_hidden_layers", 2))


def test_sizes_that_do_not_fit_the_encoder_are_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    for arguments, message in (
        ({"kind": "transformer", "shape": (10,), "width": 7}, "at most 9 tokens"),
        ({"kind": "transformer", "shape": (6,), "width": 7, "encoder_layers": 3}, "0 to 2"),
        ({"kind": "transformer-embedding", "shape": (6,), "width": 7}, "expected 48, 6 rows of 8"),
        (
            {"kind": "transformer-embedding", "shape": (6,), "width": 48, "encoder_frozen": True},
            "nothing would be left",
        ),
    ):
        with pytest.raises(InputError, match=message):
            bottom(**arguments, encoder=str(tmp_path))  # type: ignore[arg-type]
