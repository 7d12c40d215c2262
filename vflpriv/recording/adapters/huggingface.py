"""A callback for Hugging Face's Trainer, which records what the parties' modules inside of a model send and receive."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vflpriv.errors import InputError
from vflpriv.recording.adapters.model import ModelWatch

__all__ = ["watch_class"]


def watch_class() -> type:
    """The callback, on the library's own base class; an error of one line if it is not installed."""
    try:
        base = import_module("transformers").TrainerCallback
    except ImportError as error:
        raise InputError("vflpriv.huggingface", "no transformers", 'pip install "vflpriv[huggingface]"') from error
    return type("Watch", (_Hooks, base), {"__doc__": _Hooks.__doc__})


class _Hooks(ModelWatch):
    """Records a `train`: `Trainer(callbacks=[Watch(["text", "table"], labels=y, classes=2)], …)`; see `ModelWatch`.

    The recording ends with the training.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The recording begins; the Trainer makes its iterator of the loader after this."""
        del args, state, control
        self.begin(kwargs["model"]).follow(kwargs["train_dataloader"], key=self._key)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The recording ends."""
        del args, state, control, kwargs
        self.finish()
