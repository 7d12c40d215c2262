"""What one training reached on its way: accuracy by round, by traffic, and by simulated time."""

from __future__ import annotations

from typing import Any

from vflpriv.report.rows import Row

__all__ = ["LearningCurve", "Try"]


class LearningCurve(Row):
    """One training, evaluated after some of its rounds; the last point is its end."""

    seed: int
    rounds: tuple[int, ...]
    accuracy: tuple[float, ...]
    auc: tuple[float, ...] = ()
    """Empty where nobody asked for it."""
    megabytes: tuple[float, ...]
    """10⁶ bytes of payload, in both directions and of all devices."""
    seconds: tuple[float, ...] = ()
    """Simulated; empty where there is no clock."""
    importance: tuple[float, ...] = ()
    """Of each device at the end, where the engine says so."""
    importance_caveat: str = ""
    """Why these numbers say nothing of the devices, in one sentence; empty if they do."""

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
    """On the validation records."""
