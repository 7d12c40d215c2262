"""The bottom and top models that an engine's settings ask for, built for the data at hand.

What does not fit is an `InputError` that names the setting. Every model takes flat records, (R, B, n), or (B, n) that
all replicas share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vflpriv.common.lazy import lazy_module, torch
from vflpriv.core.data import BaseData
from vflpriv.data.tokens import VOCABULARY
from vflpriv.errors import InputError
from vflpriv.training.models.base import Mlp, Model
from vflpriv.training.models.heads import Linear
from vflpriv.training.settings import EngineSettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vflpriv.training.models import architectures, modules, transformer
else:
    # These define torch modules, whose base class would load torch; settings that ask for MLPs do without them.
    architectures = lazy_module("vflpriv.training.models.architectures")
    modules = lazy_module("vflpriv.training.models.modules")
    transformer = lazy_module("vflpriv.training.models.transformer")

__all__ = [
    "bottom_model",
    "check_choice",
    "check_models",
    "device_models",
    "embedding_width",
    "output_width",
    "server_model",
    "word_vectors",
]

_READ_TOKENS = ("lstm", "transformer", "transformer-embedding")
_CONVOLUTIONAL = ("cnn2", "cnn4", "resnet18", "resnet18-stem", "resnet20")
_BOTTOM_OF_TOP = {"resnet18": "resnet18-stem", "transformer": "transformer-embedding"}
"""The bottom model whose network each top model continues."""
_DEFAULT_WIDTHS = {
    "cnn2": (16, 32),
    "cnn4": (32, 64, 64, 128),
    "resnet18": (64,),
    "resnet18-stem": (64,),
    "resnet20": (16,),
    "lstm": (32, 64),
}
_WIDTHS = {
    "cnn2": "2 widths, one per convolution",
    "cnn4": "4 widths, one per convolution",
    "resnet18": "one width, of the first convolution",
    "resnet18-stem": "one width, of the first convolution",
    "resnet20": "one width, of the first convolution",
    "lstm": "two widths, of word vectors and state",
}


# Checks before any training ----------------------------------------------------------------------------------------


def check_choice(settings: EngineSettings, data: BaseData, allowed: Sequence[str] | None = None) -> None:
    """Raise an InputError unless bottom, top and aggregation fit each other and this data; builds no model.

    `allowed` are the bottom models that the engine can train, all if None.
    """
    bottom, top, aggregation = settings.bottom, settings.top_kind, settings.aggregation_rule
    if allowed is not None and bottom not in allowed:
        raise InputError("bottom", bottom, f"{' or '.join(allowed)} for this engine")
    if data.tokens != (bottom in _READ_TOKENS):
        expected = f"one of {', '.join(_READ_TOKENS)}, since" if data.tokens else "another one, since no"
        raise InputError("bottom", bottom, f"{expected} features of {data.name} are token ids")
    if aggregation == "sum" and bottom in _BOTTOM_OF_TOP.values():
        raise InputError("bottom", bottom, "another one, since devices send logits where they are summed")
    if top == "mlp":
        return
    expected_bottom = _BOTTOM_OF_TOP.get(top, bottom)
    if bottom != expected_bottom:
        raise InputError("top", top, f"mlp, or bottom = {expected_bottom} below it instead of {bottom}")
    if top != "linear" and aggregation != "concat":
        raise InputError("top", top, f"mlp, since aggregation = {aggregation} does not concatenate embeddings for it")
    if settings.top_hidden:
        raise InputError("top_hidden", settings.top_hidden, f"none for top = {top}")


def check_models(settings: EngineSettings, data: BaseData, allowed: Sequence[str] | None = None) -> None:
    """Raise an InputError unless `check_choice` passes and all models can be built."""
    check_choice(settings, data, allowed)
    device_models(settings, data, output_width(settings, data), activate=True)
    if settings.aggregation_rule != "sum":
        server_model(settings, data)


# Widths of what devices send ---------------------------------------------------------------------------------------


def output_width(settings: EngineSettings, data: BaseData) -> int:
    """The width of a device's outputs: the number of classes where logits are summed, else that of an embedding."""
    return data.classes if settings.aggregation_rule == "sum" else embedding_width(settings, data)


def embedding_width(settings: EngineSettings, data: BaseData) -> int:
    """The width of a device's embedding: the setting, unless the bottom model determines it."""
    widths = [_natural_width(settings, shape) for shape in data.shapes]
    natural = widths[0]
    if natural is None:
        return settings.embedding
    if len(set(widths)) > 1:
        shapes = ", ".join(map(str, data.shapes))
        raise InputError("bottom", settings.bottom, f"another one, or blocks of one size; they are {shapes}")
    if "embedding" in settings.model_fields_set and settings.embedding != natural:
        raise InputError("embedding", settings.embedding, f"{natural}, or nothing, for bottom = {settings.bottom}")
    return natural


def _natural_width(settings: EngineSettings, block_shape: tuple[int, ...]) -> int | None:
    """The outputs of a bottom model whose network the top model continues; None for all others."""
    if settings.bottom == "transformer-embedding":
        return math.prod(block_shape) * _encoder(settings)[0].width
    if settings.bottom == "resnet18-stem":
        _, height, width = _image(settings.bottom, block_shape)
        return _hidden_widths(settings)[0] * height * width
    return None


# Bottom models -----------------------------------------------------------------------------------------------------


def device_models(
    settings: EngineSettings,
    data: BaseData,
    width: int,
    *,
    activate: bool,
    mlp: Callable[..., Model] = Mlp,
    neurons: float | Sequence[float] = 0.0,
) -> list[Model]:
    """One bottom model per device, with outputs of this width; devices with blocks of one shape share the object.

    `activate` puts a ReLU after the last layer, except where the top model continues the network. `mlp` is the class
    that MLPs are made of. `neurons` is the std of the noise at the convolutions of cnn2 and cnn4, of all or of each.
    """
    if settings.bottom == "mlp":
        return [mlp([math.prod(shape), *settings.hidden, width], activate=activate) for shape in data.shapes]
    _check_vocabulary(settings, data)
    vocabulary = data.vocabulary or VOCABULARY
    models: dict[tuple[int, ...], Model] = {}
    for shape in dict.fromkeys(data.shapes):
        models[shape] = bottom_model(settings, shape, width, activate=activate, vocabulary=vocabulary, neurons=neurons)
    return [models[shape] for shape in data.shapes]


def _check_vocabulary(settings: EngineSettings, data: BaseData) -> None:
    """Raise an InputError if the data's token ids are not those of the encoder's vocabulary."""
    if settings.bottom not in ("transformer", "transformer-embedding") or settings.encoder is None:
        return
    known = transformer.read_shape(Path(settings.encoder)).vocabulary
    if data.vocabulary is not None and data.vocabulary != known:
        expected = f"the encoder of data.vocabulary: it knows {known} token ids, and the data has {data.vocabulary}"
        raise InputError("encoder", settings.encoder, expected)


def bottom_model(
    settings: EngineSettings,
    block_shape: tuple[int, ...],
    width: int,
    *,
    activate: bool,
    vocabulary: int = VOCABULARY,
    neurons: float | Sequence[float] = 0.0,
) -> Model:
    """A device's model from a block of this shape (without the axis of records) to `width` outputs."""
    kind, inputs, hidden = settings.bottom, math.prod(block_shape), _hidden_widths(settings)
    if kind in ("mlp", "linear"):
        return Mlp([inputs, *hidden, width], activate=activate)
    encoder = (settings.encoder, settings.encoder_layers, settings.encoder_frozen)
    key = (kind, block_shape, width, hidden, activate, *encoder, vocabulary)
    if kind in _CONVOLUTIONAL:
        module = _convolutional(settings, _image(kind, block_shape), width, activate)
        if neurons and isinstance(module, architectures.ConvNet):
            return modules.NoisyConvNet(module, inputs=inputs, key=key, noise=neurons)
        return modules.ModuleModel(module, inputs=inputs, key=key)
    if len(block_shape) != 1:
        raise _wrong_shape(kind, block_shape, "(tokens,)")
    if kind == "lstm":
        embedding, state = hidden
        with torch.device("meta"):
            lstm = architectures.Lstm(vocabulary, embedding, state, width, activate=activate)
        return modules.ModuleModel(lstm, inputs=inputs, key=key)
    return _encoder_bottom(settings, key, inputs, width, activate)


def _convolutional(settings: EngineSettings, image: tuple[int, int, int], width: int, activate: bool) -> nn.Module:
    kind, hidden = settings.bottom, _hidden_widths(settings)
    with torch.device("meta"):
        if kind in ("cnn2", "cnn4"):
            return architectures.ConvNet(image, hidden, width, average=kind == "cnn4", activate=activate)
        if kind == "resnet18":
            return architectures.ResNet18(image, width, width=hidden[0], activate=activate)
        if kind == "resnet20":
            return architectures.ResNet20(image, width, width=hidden[0], activate=activate)
        _check_natural_width(settings, image, width, f"{hidden[0]} maps of {image[1]}x{image[2]}")
        return architectures.Stem(image, hidden[0])


def _encoder_bottom(
    settings: EngineSettings, key: tuple[object, ...], tokens: int, width: int, activate: bool
) -> modules.ModuleModel:
    (shape, folder), frozen, layers = _encoder(settings), settings.encoder_frozen, settings.encoder_layers
    if tokens > shape.positions:
        raise _wrong_shape(settings.bottom, (tokens,), f"at most {shape.positions} tokens")
    if layers > shape.layers:
        raise InputError("encoder_layers", layers, f"0 to {shape.layers}")
    module: nn.Module
    if settings.bottom == "transformer-embedding":
        _check_natural_width(settings, (tokens,), width, f"{tokens} rows of {shape.width}")
        if frozen:
            raise InputError("encoder_frozen", frozen, "false, since nothing would be left to train")
        with torch.device("meta"):
            module = transformer.TokenEmbeddings(shape, layers)
    else:
        with torch.device("meta"):
            module = transformer.Encoder(shape, layers, width, activate=activate)
    return modules.ModuleModel(
        module, inputs=tokens, key=key, weights=transformer.pretrained(folder, module), frozen=frozen
    )


# The top model -----------------------------------------------------------------------------------------------------


def server_model(settings: EngineSettings, data: BaseData, *, mlp: Callable[..., Model] = Mlp) -> Model:
    """The model from the devices' concatenated embeddings, or from their weighted combination, to logits.

    `mlp` is the class that an MLP is made of.
    """
    width = output_width(settings, data)
    inputs = width if settings.aggregation_rule == "weighted" else data.devices * width
    if settings.top_kind == "mlp":
        return mlp([inputs, *settings.top_hidden, data.classes], activate=False)
    if settings.top_kind == "linear":
        return Linear(inputs, data.classes)
    key: tuple[object, ...] = (settings.top_kind, inputs, data.classes)
    if settings.top_kind == "transformer":
        (shape, folder), first = _encoder(settings), settings.encoder_layers
        with torch.device("meta"):
            layers = transformer.EncoderRest(shape, data.classes, first)
        weights = transformer.pretrained(folder, layers)
        return modules.ModuleModel(layers, inputs=inputs, key=(*key, folder, first), weights=weights)
    tiles, maps = _tiles(data), _hidden_widths(settings)[0]
    with torch.device("meta"):
        trunk = architectures.ResNet18Rest(tiles, data.classes, width=maps)
    return modules.ModuleModel(trunk, inputs=inputs, key=(*key, maps, *map(tuple, tiles)))


def _tiles(data: BaseData) -> list[list[tuple[int, int]]]:
    """The (height, width) of the devices' tiles of one image, row by row."""
    if data.grid is None or len(data.shapes[0]) not in (2, 3):
        expected = "mlp, or blocks that are tiles of one image (data.keep_shape, data.partition rows or patches)"
        raise InputError("top", "resnet18", expected)
    _, columns = data.grid
    sizes = [(shape[-2], shape[-1]) for shape in data.shapes]
    return [sizes[first : first + columns] for first in range(0, len(sizes), columns)]


# What settings say about a model, checked --------------------------------------------------------------------------


def _hidden_widths(settings: EngineSettings) -> tuple[int, ...]:
    """The setting `hidden`, or the default widths of this kind of bottom model."""
    kind, hidden = settings.bottom, settings.hidden
    if kind == "linear" and hidden:
        raise InputError("hidden", hidden, "none for a linear model")
    default = _DEFAULT_WIDTHS.get(kind)
    if default is None:
        return hidden
    if hidden and len(hidden) != len(default):
        raise InputError("hidden", hidden, _WIDTHS[kind])
    return hidden or default


def _encoder(settings: EngineSettings) -> tuple[transformer.EncoderShape, Path]:
    if settings.encoder is None:
        raise InputError("encoder", None, "a folder with config.json and model.safetensors")
    folder = Path(settings.encoder)
    return transformer.read_shape(folder), folder


def word_vectors(settings: EngineSettings) -> Tensor:
    """(V, W) the published vectors of an encoder's words."""
    shape, folder = _encoder(settings)
    with torch.device("meta"):
        module = transformer.TokenEmbeddings(shape)
    return transformer.pretrained(folder, module)["embeddings.words.weight"]


def _image(kind: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(channels, height, width) of a block, which may have no axis of channels."""
    if len(shape) not in (2, 3) or min(shape) <= 0:
        raise _wrong_shape(kind, shape, f"(H, W) or (C, H, W) for {kind}")
    channels, height, width = (1, *shape) if len(shape) == 2 else shape
    return channels, height, width


def _check_natural_width(settings: EngineSettings, shape: tuple[int, ...], width: int, reason: str) -> None:
    natural = _natural_width(settings, shape)
    if width != natural:
        raise InputError("embedding", width, f"{natural}, {reason}")


def _wrong_shape(kind: str, shape: tuple[int, ...], expected: str) -> InputError:
    return InputError("bottom", kind, f"another one, or blocks of {expected}, which are {shape}")
