"""Models by name: the bottoms and tops that the papers train.

Every model takes flat records, (B, n) that all replicas share or (R, B, n), as engines hand them over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from vflpriv.data.tokens import VOCABULARY
from vflpriv.errors import InputError
from vflpriv.training.models.architectures import ConvNet, Lstm, ResNet18, ResNet18Rest, Stem
from vflpriv.training.models.blocks import BlockModel, Sum, start
from vflpriv.training.models.heads import DropoutMlp
from vflpriv.training.models.networks import Mlp, Model
from vflpriv.training.models.transformer import Encoder, EncoderRest, EncoderShape, TokenEmbeddings, read_shape

__all__ = ["BOTTOMS", "TOPS", "bottom", "natural_width", "start", "top"]

BOTTOMS = {
    "mlp": "linear layers with ReLU",
    "linear": "one linear layer; logistic regression where the outputs are logits",
    "cnn2": "two convolutions, for bands of an image",
    "cnn4": "four convolutions, for patches of a colour image",
    "resnet18-stem": "the first convolution of ResNet-18; the rest is the top",
    "resnet18": "ResNet-18 with group normalisation",
    "lstm": "word vectors and an LSTM, for token ids",
    "transformer": "an encoder from a folder, its mean over tokens, and a linear layer",
    "transformer-embedding": "the embedding layer of an encoder from a folder, a row a token; the rest is the top",
}
TOPS = {
    "linear": "one linear layer",
    "mlp": "linear layers with ReLU, and dropout where it is asked for",
    "sum": "the sum of the devices' logits, without parameters",
    "resnet18": "the rest of ResNet-18 behind the devices' first convolutions",
    "transformer": "the rest of an encoder behind the devices' embedding layers",
}
_HIDDEN = {"cnn2": (16, 32), "cnn4": (32, 64, 64, 128), "resnet18": (64,), "lstm": (32, 64)}


def bottom(
    kind: str,
    input_shape: tuple[int, ...],
    embedding: int,
    *,
    hidden: Sequence[int] = (),
    activate: bool = True,
    folder: Path | None = None,
    layers: int = 0,
    frozen: bool = False,
    vocabulary: int = VOCABULARY,
) -> Model:
    """A device's model, from a block of `input_shape` (without records) to `embedding` values.

    `hidden` are widths: of an MLP's hidden layers, of convolutions, of ResNet's first one, of word vectors and LSTM;
    empty takes the usual ones (none for an MLP). `activate` puts a ReLU behind the last layer, except where the top
    goes on with the same network. `folder`, `layers` and `frozen` are for encoders: where the checkpoint is, how many
    layers to take behind the embedding layer, and whether they are trained.
    """
    inputs, sizes = math.prod(input_shape), tuple(hidden) or _HIDDEN.get(kind.removesuffix("-stem"), ())
    if kind in ("mlp", "linear"):
        _expect(kind != "linear" or not sizes, "model.hidden", sizes, "none for a linear model")
        return Mlp([inputs, *sizes, embedding], activate=activate)
    key = (kind, tuple(input_shape), embedding, sizes, activate, folder, layers, frozen, vocabulary)
    if kind in ("cnn2", "cnn4", "resnet18", "resnet18-stem"):
        image = _image(kind, input_shape)
        return BlockModel(key, _convolutional(kind, image, sizes, embedding, activate), inputs)
    _expect(kind in BOTTOMS, "model.bottom", kind, f"one of {', '.join(BOTTOMS)}")
    _expect(len(input_shape) == 1, "model.input_shape", input_shape, f"(tokens,) for {kind}")
    if kind == "lstm":
        _expect(len(sizes) == 2, "model.hidden", sizes, "two widths, of word vectors and state")
        word, state = sizes
        return BlockModel(key, lambda: Lstm(vocabulary, word, state, embedding, activate=activate), inputs)
    return _encoder(key, kind, inputs, embedding, folder=folder, layers=layers, frozen=frozen, activate=activate)


def natural_width(kind: str, input_shape: tuple[int, ...], hidden: Sequence[int], folder: Path | None) -> int | None:
    """The outputs of a bottom whose network goes on at the top, which no setting chooses; None for all others."""
    if kind == "transformer-embedding":
        return math.prod(input_shape) * _checkpoint(folder)[0].width
    if kind == "resnet18-stem":
        _, height, width = _image(kind, input_shape)
        return (tuple(hidden) or _HIDDEN["resnet18"])[0] * height * width
    return None


def _convolutional(
    kind: str, image: tuple[int, int, int], sizes: tuple[int, ...], embedding: int, activate: bool
) -> Callable[[], nn.Module]:
    if kind in ("cnn2", "cnn4"):
        count = int(kind[-1])
        _expect(len(sizes) == count, "model.hidden", sizes, f"{count} widths, one a convolution")
        return lambda: ConvNet(image, sizes, embedding, average=kind == "cnn4", activate=activate)
    _expect(len(sizes) == 1, "model.hidden", sizes, "one width, of the first convolution")
    width = sizes[0]
    if kind == "resnet18":
        return lambda: ResNet18(image, embedding, width=width, activate=activate)
    natural = natural_width(kind, image, sizes, None)
    _expect(embedding == natural, "model.embedding", embedding, f"{natural}, {width} maps of {image[1]}x{image[2]}")
    return lambda: Stem(image, width)


def _encoder(
    key: tuple[object, ...],
    kind: str,
    tokens: int,
    embedding: int,
    *,
    folder: Path | None,
    layers: int,
    frozen: bool,
    activate: bool,
) -> Model:
    shape, place = _checkpoint(folder)
    _expect(tokens <= shape.positions, "model.input_shape", tokens, f"at most {shape.positions} tokens")
    if kind == "transformer-embedding":
        natural = natural_width(kind, (tokens,), (), place)
        _expect(embedding == natural, "model.embedding", embedding, f"{natural}, {tokens} rows of {shape.width}")
        _expect(not frozen, "model.frozen", frozen, "false, since nothing would be left to train")
        return BlockModel(key, lambda: TokenEmbeddings(shape), tokens, folder=place)
    _expect(0 <= layers <= shape.layers, "model.layers", layers, f"0 to {shape.layers}")
    return BlockModel(
        key, lambda: Encoder(shape, layers, embedding, activate=activate), tokens, folder=place, frozen=frozen
    )


def top(
    kind: str,
    inputs: int,
    classes: int,
    *,
    hidden: Sequence[int] = (),
    dropout: float = 0.0,
    tiles: Sequence[Sequence[tuple[int, int]]] | None = None,
    folder: Path | None = None,
    frozen: bool = False,
) -> Model:
    """The server's model, from the devices' embeddings next to each other (`inputs` values) to logits.

    `dropout` is for `mlp`: a model that draws nothing and takes masks beside its parameters (`dropout_masks`). `tiles`
    are for `resnet18`: the (height, width) of the devices' tiles, row by row. `folder` and `frozen` are for
    `transformer`.
    """
    key = (kind, inputs, classes, tuple(hidden), folder, frozen, *map(tuple, tiles or ()))
    _expect(kind in TOPS, "model.top", kind, f"one of {', '.join(TOPS)}")
    _expect(kind == "mlp" or not dropout, "model.dropout", dropout, "0 for a top that is not an mlp")
    _expect(kind in ("mlp", "resnet18") or not hidden, "model.hidden", tuple(hidden), f"none for {kind}")
    if kind == "sum":
        return Sum(inputs, classes)
    if kind in ("linear", "mlp"):
        widths = [inputs, *hidden, classes]
        return DropoutMlp(widths) if dropout else Mlp(widths, activate=False)
    if kind == "transformer":
        shape, place = _checkpoint(folder)
        _expect(inputs % shape.width == 0, "model.inputs", inputs, f"rows of {shape.width}")
        return BlockModel(key, lambda: EncoderRest(shape, classes), inputs, folder=place, frozen=frozen)
    _expect(len(hidden) < 2, "model.hidden", tuple(hidden), "one width, of the first convolution")
    (width,) = tuple(hidden) or _HIDDEN["resnet18"]
    area = sum(height * across for row in tiles or () for height, across in row)
    _expect(inputs == width * area, "model.tiles", tiles, f"tiles of {inputs / width:g} pixels, {width} maps each")
    return BlockModel(key, lambda: ResNet18Rest(tiles or (), classes, width=width), inputs)


def _expect(holds: bool, field: str, value: object, expected: str) -> None:
    if not holds:
        raise InputError(field, value, expected)


def _image(kind: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of a block, which may have no channel axis."""
    _expect(len(shape) in (2, 3) and min(shape) > 0, "model.input_shape", shape, f"(H, W) or (C, H, W) for {kind}")
    channels, height, width = (1, *shape) if len(shape) == 2 else shape
    return channels, height, width


def _checkpoint(folder: Path | None) -> tuple[EncoderShape, Path]:
    if folder is None:
        raise InputError("model.folder", folder, "a folder with config.json and model.safetensors")
    return read_shape(folder), folder
