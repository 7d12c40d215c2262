"""The kinds of messages: their direction, the tensors they hold, and what can be computed from them.

The recorder and the transcript reader check messages against this table, and attacks choose the messages they read by
it. A kind that is not in the table may hold anything; only attacks that name it read it. Other packages add kinds by
the entry point `vflpriv.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType

from vflpriv.common.plugins import Plugins, load_plugins

__all__ = [
    "FURTHER",
    "KINDS",
    "Content",
    "Direction",
    "Kind",
    "Tensors",
    "all_kinds",
    "kind_named",
    "names_of",
    "register_kind",
]

Tensors = Mapping[str, tuple[str, ...]]
"""Axes of each tensor, without the replica axis: `batch` (one row for each record), `classes`, or any other length."""
FURTHER = "…"
"""Any number of further axes, at the end: rows may be vectors, images or single numbers. Attacks read them flat."""


class Direction(StrEnum):
    """Which way a message goes."""

    UP = "up"
    """Device to server."""
    DOWN = "down"
    """Server to device."""


class Content(StrEnum):
    """What a message holds, as far as attacks on any protocol can use it.

    Outputs go up, everything else but `OTHER` goes down. The content decides which tensors a kind must have.
    """

    OUTPUTS = "outputs"
    """A device's model output of each record, or two of it at neighbouring parameters or outputs."""
    GRADIENT = "gradient"
    """The gradient of the loss by the device's output of each record."""
    LOSS_CHANGE = "loss-change"
    """How the loss changes with what the device sent, of the batch or of each record."""
    LOGITS = "logits"
    """The sum of all devices' logits of each record."""
    DUALS = "duals"
    """The dual variable of each record, and the residuals of the other devices."""
    CONFIDENCES = "confidences"
    """The trained model's class probabilities of each record."""
    OTHER = "other"
    """Anything else: read only by attacks that name the kind."""


_REQUIRED: Mapping[Content, tuple[frozenset[str], ...]] = {
    Content.OUTPUTS: (frozenset({"embedding"}), frozenset({"plus", "minus"})),
    Content.GRADIENT: (frozenset({"gradient"}),),
    Content.LOSS_CHANGE: (frozenset({"delta"}), frozenset({"loss", "perturbed"}), frozenset({"differences"})),
    Content.LOGITS: (frozenset({"logits"}),),
    Content.DUALS: (frozenset({"duals", "residuals"}),),
    Content.CONFIDENCES: (frozenset({"confidences"}),),
    Content.OTHER: (frozenset(),),
}
"""Attacks look for these tensors, one of the sets at least, in messages with this content."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of message.

    `forms` are the sets of tensors that a message may hold, one of them at a time. With `open`, it may hold further
    tensors of any shape, such as the parameters of a model.

    >>> kind_named("logits").forms[0]["embedding"]
    ('batch', 'classes')
    """

    name: str
    summary: str
    direction: Direction
    content: Content = Content.OTHER
    forms: tuple[Tensors, ...]
    open: bool = False

    def __post_init__(self) -> None:
        if not self.forms:
            raise ValueError(f"Expected the tensors of message kind {self.name!r}, found none.")
        usual = Direction.UP if self.content is Content.OUTPUTS else Direction.DOWN
        if self.content is not Content.OTHER and self.direction is not usual:
            raise ValueError(
                f"Expected message kind {self.name!r} to go {usual}, since its content is {self.content.value!r}."
            )
        for form in self.forms:
            if not any(required <= set(form) for required in _REQUIRED[self.content]):
                tensors = " or ".join(", ".join(sorted(required)) for required in _REQUIRED[self.content])
                raise ValueError(
                    f"Expected {tensors} in message kind {self.name!r} with content {self.content.value!r}, "
                    f"found {', '.join(sorted(form))}."
                )

    @property
    def per_record(self) -> bool:
        """Whether a message has rows for each record of the batch, so that it must name the records."""
        return any("batch" in axes for form in self.forms for axes in form.values())

    @property
    def per_class(self) -> bool:
        """Whether all its tensors have an entry for each class of each record."""
        return all({"batch", "classes"} <= set(axes) for form in self.forms for axes in form.values())


_EMBEDDING, _PER_CLASS = ("batch", FURTHER), ("batch", "classes")
_SEVERAL = "directions"
_ONE_CLASS, _BINS = ("batch",), ("features", "bins")

_ALL = (
    Kind(
        name="embeddings",
        summary="the device's embedding of each record, and with CZOFO also at perturbed outputs",
        direction=Direction.UP,
        content=Content.OUTPUTS,
        forms=({"embedding": _EMBEDDING}, {"embedding": _EMBEDDING, "perturbed": (_SEVERAL, *_EMBEDDING)}),
    ),
    Kind(
        name="logits",
        summary="the device's logits of each record, which the server sums, and with CZOFO also perturbed ones",
        direction=Direction.UP,
        content=Content.OUTPUTS,
        forms=({"embedding": _PER_CLASS}, {"embedding": _PER_CLASS, "perturbed": (_SEVERAL, *_PER_CLASS)}),
    ),
    Kind(
        name="embedding-pair",
        summary="the device's embedding of each record at two neighbouring parameters",
        direction=Direction.UP,
        content=Content.OUTPUTS,
        forms=({"plus": _EMBEDDING, "minus": _EMBEDDING}, {"embedding": _EMBEDDING, "perturbed": _EMBEDDING}),
    ),
    Kind(
        name="logit-pair",
        summary="the device's logits of each record at two neighbouring parameters",
        direction=Direction.UP,
        content=Content.OUTPUTS,
        forms=({"embedding": _PER_CLASS, "perturbed": _PER_CLASS},),
    ),
    Kind(
        name="embedding-gradient",
        summary="the gradient of the loss by the device's embedding of each record",
        direction=Direction.DOWN,
        content=Content.GRADIENT,
        forms=({"gradient": _EMBEDDING},),
    ),
    Kind(
        name="logit-gradient",
        summary="the gradient of the loss by the summed logits of each record",
        direction=Direction.DOWN,
        content=Content.GRADIENT,
        forms=({"gradient": _PER_CLASS},),
    ),
    Kind(
        name="zo-scalar",
        summary="one zeroth-order difference of the loss for the whole batch, as DPZV sends it",
        direction=Direction.DOWN,
        content=Content.LOSS_CHANGE,
        forms=({"delta": ()},),
    ),
    Kind(
        name="loss-difference",
        summary="the difference of two mean losses of the batch",
        direction=Direction.DOWN,
        content=Content.LOSS_CHANGE,
        forms=({"delta": ()},),
    ),
    Kind(
        name="losses",
        summary="two mean losses of the batch",
        direction=Direction.DOWN,
        content=Content.LOSS_CHANGE,
        forms=({"loss": (), "perturbed": ()},),
    ),
    Kind(
        name="loss-differences",
        summary="the loss differences of each record, one for each direction its output was perturbed in",
        direction=Direction.DOWN,
        content=Content.LOSS_CHANGE,
        forms=({"differences": (_SEVERAL, "batch")},),
    ),
    Kind(
        name="summed-logits",
        summary="the sum of all devices' logits of each record",
        direction=Direction.DOWN,
        content=Content.LOGITS,
        forms=({"logits": _PER_CLASS},),
    ),
    Kind(
        name="admm-variables",
        summary="the dual variable and the device's residual of each record, and its head where the server trains it",
        direction=Direction.DOWN,
        content=Content.DUALS,
        forms=({"duals": _PER_CLASS, "residuals": _PER_CLASS},),
        open=True,
    ),
    Kind(
        name="model-centre",
        summary="the noised mean of what the server learns from, which is taken off every record's row",
        direction=Direction.DOWN,
        forms=({"centre": ("features",)},),
    ),
    Kind(
        name="model-step",
        summary="the noised gradient of the server's model, or how it moved, by which devices keep a copy of it",
        direction=Direction.DOWN,
        forms=({"step": ("parameters",)},),
    ),
    Kind(
        name="predictions",
        summary="the trained model's class probabilities of each record",
        direction=Direction.DOWN,
        content=Content.CONFIDENCES,
        forms=({"confidences": _PER_CLASS},),
    ),
    Kind(
        name="tree-gradients",
        summary="gradient and hessian of each record's loss, from which a device builds the next tree's histograms",
        direction=Direction.DOWN,
        forms=(
            {"gradient": _PER_CLASS, "hessian": _PER_CLASS},
            {"gradient": _PER_CLASS},
            {"gradient": _ONE_CLASS, "hessian": _ONE_CLASS, "class": ()},
        ),
    ),
    Kind(
        name="tree-histograms",
        summary="sums of gradients and hessians over the records of a node, for each of the device's features and bins",
        direction=Direction.UP,
        forms=({"gradient": _BINS, "hessian": _BINS}, {"gradient": _BINS, "hessian": _BINS, "count": _BINS}),
    ),
    Kind(
        name="tree-splits",
        summary="for each record of a node whether the chosen split sends it left",
        direction=Direction.UP,
        forms=({"left": ("batch",)},),
    ),
    Kind(
        name="refresh-request",
        summary="the ids of records whose embeddings the server wants again",
        direction=Direction.DOWN,
        forms=({},),
        open=True,
    ),
)
KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
"""The kinds of this package's engines."""

_registered: dict[str, Kind] = {}


def register_kind(kind: Kind) -> Kind:
    """Add a kind from the module that is being imported, such as an engine's.

    Where no engine is imported, as in reading a transcript, only kinds of an entry point `vflpriv.kinds` are known.
    """
    known = KINDS.get(kind.name, _registered.get(kind.name, kind))
    if known != kind:
        raise ValueError(f"Expected one message kind named {kind.name!r}, found another one: {known.summary}.")
    _registered[kind.name] = kind
    return kind


def all_kinds() -> dict[str, Kind]:
    """Every known kind by name: this package's, those of entry points, and those registered on import."""
    return {**KINDS, **_plugins().items, **_registered}


def kind_named(name: str) -> Kind | None:
    """The kind with this name, or None for a name that is not in the table."""
    return KINDS.get(name) or all_kinds().get(name)


def names_of(
    *, direction: Direction | None = None, content: Content | None = None, per_class: bool | None = None
) -> frozenset[str]:
    """The names of the kinds with these properties, those with content `OTHER` left out."""
    return frozenset(
        kind.name
        for kind in all_kinds().values()
        if kind.content is not Content.OTHER
        and direction in (None, kind.direction)
        and content in (None, kind.content)
        and per_class in (None, kind.per_class)
    )


@cache
def _plugins() -> Plugins[Kind]:
    return load_plugins("vflpriv.kinds", Kind, taken=KINDS)
