"""What callbacks of training frameworks share: a recording of the parties' modules inside of one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vflpriv.errors import InputError
from vflpriv.recording.recorder import RecordingWire, watch

__all__ = ["ModelWatch"]

Names: TypeAlias = str | Sequence[str] | Callable[[Any], Any]


class ModelWatch:
    """A callback that records a training.

    `bottoms` names the parties' modules in the model: the attribute of a list of them, several attributes, or a
    function of the model. `top` names the server's. `key` says where in a batch its ids are, if its positions in the
    data set are not to be taken. The other options are those of `vflpriv.watch`.
    """

    def __init__(self, bottoms: Names, *, top: Names | None = None, key: Any = None, **options: Any) -> None:
        super().__init__()
        self._bottoms, self._top, self._key, self._options = bottoms, top, key, options
        self.wire: RecordingWire | None = None

    def begin(self, model: Any) -> RecordingWire:
        """Begin to record this model."""
        bottoms = _modules(model, self._bottoms, "Watch: bottoms")
        top = None if self._top is None else _modules(model, self._top, "Watch: top")[0]
        self.wire = watch(bottoms, top=top, **self._options)
        return self.wire

    def finish(self) -> None:
        """The training is over."""
        if self.wire is not None:
            self.wire.finish()


def _modules(model: Any, names: Names, field: str) -> list[Any]:
    """The modules under a name, which may be that of a list of them, under several, or that a function finds."""
    from torch import nn

    inner = getattr(model, "module", model)  # of a model in a wrapper for several processes
    if not isinstance(names, str | Sequence):
        named = [names(inner)]
    else:
        named = [_at(inner, name, field) for name in ([names] if isinstance(names, str) else names)]
    modules: list[Any] = []
    for module in named:
        modules += module if isinstance(module, nn.ModuleList | list | tuple) else [module]
    return modules


def _at(model: Any, name: str, field: str) -> Any:
    """The module under a name with dots."""
    module = model
    for part in name.split("."):
        module = getattr(module, part, None)
    if module is None:
        children = ", ".join(child for child, _ in model.named_children())
        raise InputError(field, name, f"a module of the model, which has {children}")
    return module
