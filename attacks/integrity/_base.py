"""Base of attacks on integrity: devices that train and ask with other features, and read or send other messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from vflpriv.core.attack import Conduct, Guess, IntegrityAuxiliary
from vflpriv.core.views import View

__all__ = ["Sabotage"]


class Sabotage(ABC):
    """A subclass says how its devices behave (`conducts`); by default they keep their features as they are."""

    name: ClassVar[str]
    summary: ClassVar[str]
    target: ClassVar[str] = "integrity"
    needs: ClassVar[frozenset[str]]
    knows: ClassVar[frozenset[str]] = frozenset()
    heavy: ClassVar[bool] = False
    goal: ClassVar[Literal["target", "wrong"]]

    def refusal(self, view: View, auxiliary: IntegrityAuxiliary) -> str | None:
        if not view.adversary.is_device:
            return "needs a device of its own, which departs from the protocol"
        if any(not block.is_floating_point() for block in auxiliary.blocks.values()):
            return "needs features that are numbers; the device's are token ids"
        missing = self.missing(view, auxiliary)
        return None if missing is None else f"needs {missing}"

    def missing(self, view: View, auxiliary: IntegrityAuxiliary) -> str | None:
        """What it needs and neither an honest training nor the auxiliary knowledge gives its devices, or None."""
        del view, auxiliary
        return None

    @abstractmethod
    def conducts(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Conduct]: ...

    def poisoned(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        return auxiliary.blocks

    def asked(self, blocks: Mapping[int, Tensor], auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        del auxiliary
        return blocks

    def run(self, view: View, auxiliary: IntegrityAuxiliary) -> Guess:
        """What the model says of the records that were asked about."""
        del auxiliary
        message = view.of_kind("predictions")[0]
        assert message.records is not None
        return Guess(message.records, message.tensors["confidences"].argmax(-1))

    def blind(self, view: View, auxiliary: IntegrityAuxiliary) -> Guess | None:
        """What an honestly trained model says of the same records, from a view of its predictions."""
        return self.run(view, auxiliary) if view.messages else None
