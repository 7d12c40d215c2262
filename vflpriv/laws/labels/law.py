"""What a law of label noise answers beside its cost: noised observations of labels, and their likelihoods."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.random import Answers
from vflpriv.core.law import Law

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["LabelLaw", "LawAnswers"]


class LabelLaw(Law):
    """A law of noise that every label is given once."""

    source: ClassVar[str]
    statement: ClassVar[str]
    """The guarantee for one label, as its claim states it."""
    distance: ClassVar[float] = 1.0
    """How far one changed label moves the value under the noise, in the law's norm; 1 where it has none."""

    @classmethod
    def of_deviation(cls, std: float) -> Law:
        raise ValueError("a law of noise on numbers, not on labels")

    @property
    def label_epsilon(self) -> float:
        """The ε of one label, for every adversary that does not hold the labels."""
        return self.strength(self.distance)

    @abstractmethod
    def observe(self, labels: Tensor, classes: int, stream: Draws) -> Tensor:
        """The released observation (R, N, C) of labels (R, N); its largest entry is at the likeliest label."""

    @abstractmethod
    def evidence(self, observed: Tensor) -> Tensor:
        """(R, N, C): the log-likelihood of an observation (R, N, C) under each label, up to terms all labels share."""

    @abstractmethod
    def kept(self, classes: int) -> float:
        """The probability that the largest entry of an observation is at the label, all others being alike."""


@dataclass(frozen=True, eq=False)
class LawAnswers(Answers):
    """Observations of labels by a law, from the draws of a stream."""

    law: LabelLaw
    classes: int
    stream: Draws

    def answered(self, asked: Tensor) -> Tensor:
        return self.law.observe(asked, self.classes, self.stream)

    def table(self) -> Tensor | None:
        table = self.law.table(self.classes)
        return None if table is None else torch.from_numpy(np.asarray(table, dtype=np.float64))
