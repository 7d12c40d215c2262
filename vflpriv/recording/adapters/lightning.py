"""A callback for Lightning's Trainer, which records what the parties' modules of a LightningModule send and receive."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vflpriv.errors import InputError
from vflpriv.recording.adapters.model import ModelWatch

__all__ = ["watch_class"]


def watch_class() -> type:
    """The callback, on Lightning's own base class; an error of one line if it is not installed."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            base = import_module(name).Callback
        except ImportError:
            continue
        return type("Watch", (_Hooks, base), {"__doc__": _Hooks.__doc__})
    raise InputError("vflpriv.lightning", "no Lightning", 'pip install "vflpriv[lightning]"')


class _Hooks(ModelWatch):
    """Records a `fit`: `Trainer(callbacks=[Watch("bottoms", labels=y, classes=2)])`; see `ModelWatch`.

    The recording ends with the training; after an error it has the complete rounds before.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """A loader is followed as soon as Lightning has made its own of it, which is before it reads ahead."""
        if stage != "fit":
            return
        wire, strategy, key = self.begin(pl_module), trainer.strategy, self._key
        process = strategy.process_dataloader

        def followed(loader: Any) -> Any:
            processed = process(loader)
            return wire.follow(processed, key=key) if trainer.training else processed

        strategy.process_dataloader = followed

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The recording ends."""
        del trainer, pl_module
        self.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The rounds before are kept."""
        del trainer, pl_module, exception
        if self.wire is not None:
            self.wire.abandon()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Loaders are Lightning's own again."""
        del pl_module
        if stage == "fit" and trainer.strategy is not None:
            vars(trainer.strategy).pop("process_dataloader", None)
