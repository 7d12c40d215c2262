"""What one training reached on its way: accuracy by round, by traffic, and by simulated time."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator

from vflpriv.report.rows import Row

__all__ = ["LearningCurve", "Try"]

Share = Annotated[float, AfterValidator(lambda value: round(value, 7))]
"""Of single precision: 0.9 and not 0.8999999762."""


class LearningCurve(Row):
    """One training, evaluated after some of its rounds; the last point is its end, be it early or not."""

    seed: int
    rounds: tuple[int, ...]
    accuracy: tuple[Share, ...]
    validation: tuple[Share, ...] = ()
    """Accuracy on validation records at the same rounds, where the round that is reported is chosen by it."""
    auc: tuple[Share, ...] = ()
    """Empty where nobody asked for it."""
    megabytes: tuple[float, ...]
    """10⁶ bytes of payload, in both directions and of all devices."""
    seconds: tuple[float, ...] = ()
    """Simulated; empty where there is no clock."""
    diverged: int | None = None
    """The first of these rounds after which outputs are no finite numbers; None if they always are."""
    importance: tuple[float, ...] = ()
    """Of each device at the round that is reported, where the engine says so."""
    rises: int | None = None
    """In how many rounds the augmented Lagrangian of an ADMM training rose; None where nobody asked for it."""
    unmet: tuple[str, ...] = ()
    """The conditions of VIMADMM's Theorem 1, by which it never rises, that the training did not meet."""
    importance_caveat: str = ""
    """Why these numbers say nothing of the devices, in one sentence; empty if they do."""

    @property
    def place(self) -> int:
        """The evaluation that is reported: the first of the best ones on validation records, or the last one.

        >>> curve = LearningCurve(seed=0, rounds=(5, 10), accuracy=(0.7, 0.9), megabytes=(3.0, 6.0))
        >>> curve.place, curve.model_copy(update={"validation": (0.8, 0.8)}).place
        (1, 0)
        """
        validated = self.validation
        return validated.index(max(validated)) if validated else len(self.rounds) - 1

    @property
    def reached(self) -> float:
        """The accuracy that is reported."""
        return self.accuracy[self.place]

    def until(self, target: float, costs: tuple[float, ...]) -> float | None:
        """The cost at the first evaluation that reached the target; None if none did.

        >>> curve = LearningCurve(seed=0, rounds=(1, 2), accuracy=(0.5, 0.9), megabytes=(3.0, 6.0))
        >>> curve.until(0.8, curve.megabytes), curve.until(0.95, curve.megabytes)
        (6.0, None)
        """
        return next((cost for reached, cost in zip(self.accuracy, costs, strict=True) if reached >= target), None)


class Try(Row):
    """Settings that were tried on validation records before the result was measured."""

    settings: dict[str, Any]
    accuracy: float
    """On the validation records, the mean over seeds."""
    seeds: int = 1

    def rank(self) -> tuple[int, float]:
        """What was trained with more seeds came nearer to the best before: it goes first."""
        return self.seeds, self.accuracy
