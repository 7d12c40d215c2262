"""An assertion about the ε of a training as it is written: no ledger, one traced run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.run.calibrate import parse_unit
from vflpriv.run.traced.function import FunctionScript
from vflpriv.run.traced.script import find_script
from vflpriv.run.traced.view import Seen, look

__all__ = ["assert_private"]

_ROUNDING = 1e-6


def assert_private(
    train: Callable[[Any], object] | str | Path,
    *,
    epsilon: float,
    delta: float = 1e-5,
    labels: Any = None,
    features: Sequence[Any] = (),
    devices: int | None = None,
    classes: int | None = None,
    unit: Unit | str = Unit.LABEL,
    view: str = "devices(all)",
    rounds: int = 20,
    seed: int = 0,
    proved: bool = True,
) -> float:
    """Follow a training through every operation, and fail unless it is (epsilon, delta)-private towards `view`.

    `train(wire)` makes its models, watches them (`wire.watch(bottoms)`, then `wire.batch(ids)` in each step) or sends
    by `wire.up` and `wire.down`, and computes from the very tensors that are given as `labels` and `features`. A path
    is that of a script, which hands them over itself. Returns the ε that accountants give for the noise that was seen,
    in all rounds and for all data; `proved=False` asks only that no pair of worlds that was followed costs more.

    A failure names the line that lets something out, the operation without a bound, or the noise that is needed.
    """
    if callable(train):
        own = {"labels": labels, "features": tuple(features), "devices": devices, "classes": classes}
        script: Any = FunctionScript.of(train, **own)
    else:
        script = find_script(train)
    chosen = unit if isinstance(unit, Unit) else parse_unit(unit)
    several = look(script, unit=chosen, view=view, epsilon=epsilon, delta=delta, rounds=rounds, seed=seed)
    for seen in several:
        wrong = _wrong(seen, epsilon, proved=proved)
        if wrong is not None:
            aim = f"ε <= {epsilon:g} at δ = {delta:g} of one {chosen} towards {view}"
            raise AssertionError("\n  ".join([f"Expected {aim}: {wrong}", *seen.advice]))
    return max(seen.row.epsilon if seen.row.accounted is None else seen.row.accounted for seen in several)


def _wrong(seen: Seen, epsilon: float, *, proved: bool) -> str | None:
    """What speaks against this ε, or None."""
    row = seen.row
    if seen.bare:
        return f"{', '.join(seen.bare)} leaves without noise"
    if row.reasons:
        return f"not everything is explained: {'; '.join(row.reasons)}"
    if row.epsilon > epsilon * (1 + _ROUNDING):
        return f"a pair of worlds ({row.what}) costs {'exactly' if row.exact else 'at most'} {f.epsilon(row.epsilon)}"
    if not proved or (row.accounted is not None and row.accounted <= epsilon * (1 + _ROUNDING)):
        return None
    if row.open:
        return f"nothing bounds it: {'; '.join(row.open)}"
    return f"accounted are {f.epsilon(row.accounted or 0.0)}"
