"""The models that an engine's settings ask for, on the data at hand; what does not fit is an error of that setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vflpriv.core.data import VerticalData
from vflpriv.data.tokens import VOCABULARY
from vflpriv.errors import InputError
from vflpriv.training.models.factory import bottom, natural_width, top
from vflpriv.training.models.networks import Mlp, Model
from vflpriv.training.models.transformer import read_shape
from vflpriv.training.settings import EngineSettings

__all__ = ["check_choice", "check_models", "device_models", "embedding_width", "output_width", "server_model"]

_READ_TOKENS = ("lstm", "transformer", "transformer-embedding")
_BEHIND = {"resnet18": "resnet18-stem", "transformer": "transformer-embedding"}
"""The bottom that a top goes on from."""

_SETTINGS = {
    "model.bottom": "bottom",
    "model.hidden": "hidden",
    "model.embedding": "embedding",
    "model.folder": "encoder",
    "model.layers": "encoder_layers",
    "model.frozen": "encoder_frozen",
    "model.top": "top",
}


def check_choice(settings: Any, data: VerticalData, allowed: Sequence[str] | None = None) -> None:
    """Whether this bottom and this top go together, and with this data; nothing is built."""
    kind, top_kind = settings.bottom, getattr(settings, "top", "mlp")
    if allowed is not None and kind not in allowed:
        raise InputError("bottom", kind, f"{' or '.join(allowed)} for this engine")
    tokens = not all(block.is_floating_point() for block in data.blocks)
    if tokens != (kind in _READ_TOKENS):
        what = f"one of {', '.join(_READ_TOKENS)}, since" if tokens else "another one, since no"
        raise InputError("bottom", kind, f"{what} features of {data.name} are token ids")
    aggregation = _aggregation(settings)
    if aggregation == "sum" and kind in _BEHIND.values():
        raise InputError("bottom", kind, "another one, since devices send logits where they are summed")
    if top_kind == "mlp":
        return
    if kind != _BEHIND[top_kind]:
        raise InputError("top", top_kind, f"mlp, or bottom = {_BEHIND[top_kind]} below it instead of {kind}")
    if aggregation != "concat":
        raise InputError("top", top_kind, f"mlp, since aggregation = {aggregation} joins no embeddings for it")
    if settings.top_hidden:
        raise InputError("top_hidden", settings.top_hidden, f"none for top = {top_kind}")


def check_models(settings: Any, data: VerticalData, allowed: Sequence[str] | None = None) -> None:
    """Whether all models can be built."""
    check_choice(settings, data, allowed)
    device_models(settings, data, output_width(settings, data), activate=True)
    if hasattr(settings, "top") and _aggregation(settings) != "sum":
        server_model(settings, data)


def embedding_width(settings: EngineSettings, data: VerticalData) -> int:
    """The width of a device's embedding: the one set, or the one that its model has by its nature."""
    with _as_settings(settings):
        folder = _folder(settings)
        widths = [natural_width(settings.bottom, tuple(b.shape[1:]), settings.hidden, folder) for b in data.blocks]
    natural = widths[0]
    if natural is None:
        return settings.embedding
    if len(set(widths)) > 1:
        found = ", ".join(str(tuple(block.shape[1:])) for block in data.blocks)
        raise InputError("bottom", settings.bottom, f"another one, or blocks of one size; they are {found}")
    if "embedding" in settings.model_fields_set and settings.embedding != natural:
        raise InputError("embedding", settings.embedding, f"{natural}, or nothing, for bottom = {settings.bottom}")
    return natural


def output_width(settings: Any, data: VerticalData) -> int:
    """The width of what a device sends: logits where they are summed, else an embedding."""
    return data.classes if _aggregation(settings) == "sum" else embedding_width(settings, data)


def device_models(
    settings: EngineSettings, data: VerticalData, width: int, *, activate: bool, mlp: Callable[..., Model] = Mlp
) -> list[Model]:
    """The bottom models with outputs of this width; `mlp` makes MLPs of the engine's own kind."""
    s = settings
    if s.bottom == "mlp":
        return [mlp([block[0].numel(), *s.hidden, width], activate=activate) for block in data.blocks]
    models: dict[tuple[int, ...], Model] = {}
    with _as_settings(s):
        _check_vocabulary(s, data)
        for shape in {tuple(block.shape[1:]): None for block in data.blocks}:
            models[shape] = bottom(
                s.bottom,
                shape,
                width,
                hidden=s.hidden,
                activate=activate,
                folder=_folder(s),
                layers=s.encoder_layers,
                frozen=s.encoder_frozen,
                vocabulary=data.vocabulary or VOCABULARY,
            )
    return [models[tuple(block.shape[1:])] for block in data.blocks]


def server_model(settings: Any, data: VerticalData, *, mlp: Callable[..., Model] = Mlp) -> Model:
    """The model over the devices' embeddings next to each other (or over one, where they are combined into one)."""
    s, width = settings, output_width(settings, data)
    inputs = width if _aggregation(s) == "weighted" else data.devices * width
    if s.top == "mlp":
        return mlp([inputs, *s.top_hidden, data.classes], activate=False)
    with _as_settings(s):
        if s.top == "transformer":
            return top("transformer", inputs, data.classes, folder=_folder(s))
        return top("resnet18", inputs, data.classes, hidden=s.hidden, tiles=_tiles(data))


def _tiles(data: VerticalData) -> list[list[tuple[int, int]]]:
    """The (height, width) of the devices' tiles, row by row."""
    if data.grid is None or data.blocks[0].dim() not in (3, 4):
        expected = "mlp, or blocks that are tiles of one image (data.keep_shape, data.partition rows or patches)"
        raise InputError("top", "resnet18", expected)
    _, columns = data.grid
    sizes = [(block.shape[-2], block.shape[-1]) for block in data.blocks]
    return [sizes[start : start + columns] for start in range(0, len(sizes), columns)]


def _check_vocabulary(settings: EngineSettings, data: VerticalData) -> None:
    """Ids mean something to an encoder only if they are those of its own vocabulary."""
    if settings.bottom == "lstm" or settings.bottom not in _READ_TOKENS or settings.encoder is None:
        return
    known = read_shape(Path(settings.encoder)).vocabulary
    if data.vocabulary is not None and data.vocabulary != known:
        expected = f"the encoder of data.vocabulary: it knows {known} token ids, and the data has {data.vocabulary}"
        raise InputError("encoder", settings.encoder, expected)


def _aggregation(settings: Any) -> str:
    return str(getattr(settings, "aggregation", "concat"))


def _folder(settings: EngineSettings) -> Path | None:
    return None if settings.encoder is None else Path(settings.encoder)


@contextmanager
def _as_settings(settings: EngineSettings) -> Iterator[None]:
    """Errors of the factory in terms of the settings."""
    try:
        yield
    except InputError as error:
        if error.field == "model.input_shape":
            expected = f"another one, or blocks of {error.expected}, which are {error.value}"
            raise InputError("bottom", settings.bottom, expected) from error
        raise InputError(_SETTINGS.get(error.field, error.field), error.value, error.expected) from error
