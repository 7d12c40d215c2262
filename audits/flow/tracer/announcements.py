"""Draws and answers that are announced: those of secret streams, of which torch shows no operation.

What is announced is held against what is traced. Draws must look like their law and differ under another seed. Answers
must be what a sampler of this tool makes of the argument and the draws that were traced; their law, in both worlds, is
then the table of that law. What cannot be confirmed is left to the operations that were seen.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.families import LAPLACE, NORMAL, STEPS, UNIFORM, Family
from vflpriv.audits.flow.draws.rows import Rows, no_columns
from vflpriv.audits.flow.plain.wire import identical
from vflpriv.audits.flow.tracer.choices import seal_choice
from vflpriv.audits.flow.tracer.following import Following
from vflpriv.audits.flow.tracer.sampling import enter_draw
from vflpriv.audits.flow.tracer.storages import NOTHING, whole
from vflpriv.common.random import Answered, Answers, Drawn

__all__ = ["Announcements"]

_STREAMS = {"uniform": UNIFORM, "gaussian": NORMAL, "laplace": LAPLACE, "correlated-gaussian": NORMAL}
"""The laws of announced draws."""
_FAR = 7.0
"""Standard deviations by which draws of a law never miss its mean: once in 10¹¹."""


@dataclass
class _Fit:
    """How far the places of draws in their law are from uniform, in sums."""

    count: int = 0
    first: float = 0.0
    second: float = 0.0

    def add(self, places: Tensor) -> None:
        centred = places.double().reshape(-1) - 0.5
        self.count += centred.numel()
        self.first += float(centred.sum())
        self.second += float((centred.square() - 1 / 12).sum())

    @property
    def far(self) -> bool:
        """Whether these are no draws of the law."""
        root = math.sqrt(self.count)
        return abs(self.first) > _FAR * root / math.sqrt(12) or abs(self.second) > _FAR * root / math.sqrt(180)


class Announcements:
    """A listener that enters announced draws and answers into a trace."""

    def __init__(self, trace: Following) -> None:
        self._trace = trace
        self._fits: dict[str, _Fit] = {}
        self._heard: list[Tensor] = []

    def __call__(self, told: Drawn | Answered) -> None:
        if isinstance(told, Answered):
            if not self._trace.pausing:
                with self._trace.paused():
                    self._answered(told)
        elif self._trace.pausing:
            # An answer is given once more, from the same draws.
            self._heard.append(self._columns_of(told))
        else:
            with self._trace.paused():
                self._drawn(told)
            self._trace.draws.position += told.values.is_floating_point()

    # Draws

    def _drawn(self, drawn: Drawn) -> None:
        trace = self._trace
        if not (trace.sources or trace.early):
            return
        trace.draws.seed(None)
        family = _STREAMS.get(drawn.law) if drawn.noise is None else STEPS
        if family is None:
            # Of a law that is not followed: whatever it reaches is not explained.
            trace.mark(drawn.values, NOTHING, NOTHING, masked=False).opaque = no_columns()
            return
        self._check(drawn, family)
        if drawn.parts:
            self._sum_of_parts(drawn, family)
            return
        enter_draw(trace, drawn.values, "stream", (family, 0.0, 1.0), _identity(drawn.place))
        state = trace.table.of(drawn.values)
        if state is not None and state.rows is not None:
            trace.draws.on_grid(state.rows.columns.reshape(-1), drawn.step, drawn.noise)
            if family is STEPS:
                state.recipe = None

    def _sum_of_parts(self, drawn: Drawn, family: Family) -> None:
        """Rows of several draws each, which have their place in other sums, too."""
        trace, values = self._trace, drawn.values
        columns = [
            trace.draws.drawn("part", family, values, _identity((drawn.place[0], drawn.law, path)))
            for path, _ in drawn.parts
        ]
        for own in columns:
            trace.draws.on_grid(own, drawn.step, None)
        factors = torch.tensor([factor for _, factor in drawn.parts], dtype=torch.float64)
        rows = Rows(
            torch.stack(columns, 1),
            factors.expand(values.numel(), -1).clone(),
            torch.finfo(values.dtype).eps,
        )
        state = trace.mark(values, NOTHING, NOTHING, masked=False)
        trace.put(values, state, rows, None, None)

    def _check(self, drawn: Drawn, family: Family) -> None:
        """Announced draws that do not look like their law are noted: nothing rests on them then."""
        values = drawn.values.detach().double()
        fit = self._fits.setdefault(drawn.law, _Fit())
        if drawn.noise is not None:
            mass = torch.from_numpy(drawn.noise.probabilities)
            size = values.abs().long().clamp(max=len(mass) - 1).reshape(-1)
            beyond = mass.flip(0).cumsum(0).flip(0)
            inside = torch.rand(size.shape, generator=torch.Generator().manual_seed(fit.count), dtype=torch.float64)
            # Sizes of one sign have half of the mass.
            half = torch.where(size > 0, beyond[size] - inside * mass[size], 0.5 - inside * mass[0] / 2)
            fit.add(torch.where(values.reshape(-1) >= 0, 1 - half, half))
        elif family.cdf is not None:
            spread = math.sqrt(sum(factor * factor for _, factor in drawn.parts)) if drawn.parts else 1.0
            fit.add(family.cdf(values / spread))
        if fit.far:
            self._trace.lose(f"draws that are announced as {drawn.law} do not follow that law")

    def _columns_of(self, drawn: Drawn) -> Tensor:
        return self._trace.draws.seen(_identity(drawn.place))

    # Answers

    def _answered(self, told: Answered) -> None:
        trace, values, answers = self._trace, told.values, told.answers
        state, asked = trace.table.of(values), trace.table.of(told.asked)
        if state is None or not state.taint or not whole(values) or not _of_this_tool(answers):
            return
        if asked is None or asked.random or any(_private(trace, tensor) for tensor in answers.public):
            return
        columns = self._deciding(told)
        table = answers.table()
        if columns is None or table is None or not bool(((table > 0) == (table > 0)[..., :1, :]).all()):
            return
        other = trace.table.other(told.asked)
        laws = [_law(table.double(), numbers) for numbers in (told.asked, other)]
        chosen = told.asked != other
        if answers.asks is not None:
            chosen = chosen & answers.asks
        if not bool(chosen.any()):
            # What no label decides here would be decided so for another pair of worlds.
            chosen = torch.ones_like(chosen) if answers.asks is None else answers.asks
        if not bool(chosen.any()):
            state.taint, state.shadow = NOTHING, None
            return
        if columns.dim() > chosen.dim():
            columns = columns[chosen]
        seal_choice(trace, values, state, (laws[0][chosen], laws[1][chosen]), columns.reshape(-1), _name(answers))

    def _deciding(self, told: Answered) -> Tensor | None:
        """The columns of the uniform numbers that decide; None where the answers are not what they make of them."""
        trace, answers = self._trace, told.answers
        self._heard = []
        if not identical(answers.answered(told.asked), told.values):
            return None
        numbers = answers.numbers
        if numbers is None:
            columns = torch.cat([no_columns(), *self._heard])
            return columns if len(columns) and not bool(trace.draws.known(columns).any()) else None
        state = trace.table.of(numbers)
        if state is None or state.taint or state.opaque is not None or not trace.resolve(numbers, state):
            return None
        rows = trace.rows_of(numbers, state)
        if rows is None or rows.columns.shape[1] != 1 or not bool((rows.scales == 1).all()):
            return None
        columns = rows.columns.reshape(-1)
        drawn = trace.draws.values(columns)
        uniform = trace.draws.family(columns) is UNIFORM and len(torch.unique(columns)) == len(columns)
        if not uniform or drawn is None or not torch.equal(drawn.to(numbers.dtype), numbers.reshape(-1)):
            return None
        return columns.reshape(numbers.shape)


def _identity(place: tuple[object, ...]) -> bytes:
    def plain(part: object) -> object:
        return part.tolist() if isinstance(part, Tensor) else part

    parts = [[plain(own) for own in part] if isinstance(part, tuple) else plain(part) for part in place]
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).digest()


def _of_this_tool(answers: Answers) -> bool:
    """Whether the sampler and the table are ones that tests hold against each other: of others operations are seen."""
    parts = (answers, getattr(answers, "law", answers))
    return all(type(part).__module__.startswith("vflpriv.") for part in parts)


def _private(trace: Following, tensor: Tensor) -> bool:
    state = trace.table.of(tensor)
    return state is not None and bool(state.taint)


def _law(table: Tensor, numbers: Tensor) -> Tensor:
    """(…, answers) the law of the answer to each number."""
    if table.dim() == 2:
        return table[numbers]
    return table.take_along_dim(numbers[..., None, None], -2).squeeze(-2)


def _name(answers: Answers) -> str:
    law = getattr(answers, "law", None)
    return type(answers).__name__ if law is None else str(law)
