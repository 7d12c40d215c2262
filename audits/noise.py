"""The noise audit: does every value of a whole training leave under noise that was drawn for it alone, as declared?

The flow audit follows the first rounds of a training, and says what hides each message. This one runs all rounds once,
without a tracer, and holds what each release point added to its value against the draws that were made: the sum must
have a draw of its own on it, of the declared size, which no other value had. There are no statistics in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.flow.audit import FlowSettings
from vflpriv.audits.flow.draws.families import FAMILIES, NORMAL
from vflpriv.audits.flow.draws.registry import Draws
from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.sources import traceable
from vflpriv.audits.flow.tracer.events import Seal
from vflpriv.audits.twins.probes import Probe, Released, on_host
from vflpriv.common.machine import single_threaded
from vflpriv.common.numerics import Floats
from vflpriv.common.random import Answered, Drawn, listening
from vflpriv.common.registry import register
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.law import Law
from vflpriv.core.releases import Release
from vflpriv.core.systems import Offer, System
from vflpriv.core.units import Unit
from vflpriv.core.wire import Message
from vflpriv.laws import Exact

__all__ = ["FreshDraws", "NoiseAudit", "NoiseOfKind", "noise_of_kinds", "smallest_noise"]

_EPS = 2.0**-22
"""Two units in the last place of single precision."""
_SMALLER = 1e-3
"""Noise that is smaller than declared by less may be rounded."""
_HELD = 4
"""Draws of earlier rounds that may still be used: those for many rounds are made at once."""


@dataclass(frozen=True, kw_only=True)
class NoiseOfKind:
    """The values of one kind that left: how many, and the rounds of those without a declared draw of their own."""

    kind: str
    noise: Law
    values: int
    rounds: int
    without: tuple[int, ...]

    @property
    def holds(self) -> bool:
        return not self.without

    @property
    def sentence(self) -> str:
        if self.holds:
            values = f"each of {self.values} values of {self.kind} in {self.rounds} rounds"
            return f"{values} has a draw of {self.noise} on it that no other value has"
        return (
            f"{len(self.without)} of {self.values} values or messages of {self.kind} are not a noiseless value with a "
            f"draw of {self.noise} of its own (first in round {self.without[0]})"
        )


@register("audit")
class NoiseAudit(Audit[System]):
    """Runs all rounds once, and holds what every release added to its value against the draws that were made.

    A value that is processed after its noise, or that has other noise than is declared, has none of these draws on it
    as it was sent. In the rounds that the `flow` audit follows that is its matter, and a note here. In later rounds and
    for claims that it does not speak of, nobody knows what hides such a value: they are unmeasured.

    Of a recorded training only the messages are known. They are compared with what can be predicted of them from the
    messages before, from other devices and from other entries: the error of any prediction is at least as large as the
    noise. A signal that nothing predicts hides what its noise is.
    """

    name = "noise"
    summary = "holds the noise of every release of a whole training against the draws that were made for it"
    order = 20
    needs = frozenset({Offer.RELEASE_POINTS})

    def work(self, system: System, context: AuditContext) -> int:
        del context
        return system.schedule.rounds

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """One finding for each kind of noised release, and one for each claim that rests on noise nobody follows."""
        context.progress.stage(f"{system.key}: draws of all rounds")
        kinds, findings = noise_of_kinds(system), []
        context.progress.advance(system.schedule.rounds)
        unlike = [kind.kind for kind in kinds if not kind.holds]
        sizes = smallest_noise(system, context.claims, unlike) if unlike else {}
        for kind in kinds:
            findings.append(_finding(kind, sizes.get(kind.kind), system.ledger.releases))
            resting = [c for c in context.claims if _rests_on(c, kind, system.ledger.releases)]
            findings += [_unmeasured(claim, kind) for claim in resting]
        return findings


def noise_of_kinds(system: System) -> list[NoiseOfKind]:
    """Of each kind whose noise is declared, the values that left in one training of all rounds."""
    laws = {r.kind: r.noise for r in system.ledger.releases if r.noise.noised and r.noise.norm in (1, 2) and not r.once}
    if not laws:
        return []
    probe, draws, sent = Probe(), FreshDraws(), _Sent()
    kinds = {kind: _Kind(law) for kind, law in laws.items()}
    with single_threaded(), listening(draws):
        engine = system.train([0], probe=probe)
        for round_ in range(system.schedule.rounds):
            sent.messages = []
            values, _ = on_host(probe.round(engine, round_, sent))
            carried = {id(message) for message in probe.carriers}
            for value in values:
                if value.kind in kinds and value.released.numel():  # rows of an empty Poisson batch hold no noise
                    kinds[value.kind].add(round_, held=draws.on(value, laws[value.kind]))
            for message in sent.messages:
                if message.kind in kinds and id(message) not in carried:
                    kinds[message.kind].bare.append(round_)
            draws.end_round()
    results = [own.result(kind, system.schedule.rounds) for kind, own in kinds.items()]
    return [result for result in results if result is not None]


def smallest_noise(system: System, claims: Sequence[Claim], kinds: Sequence[str]) -> dict[str, float]:
    """Of each of these kinds, the smallest std of the noise that seals its messages, as the flow audit sees them.

    A seal on a value that is sent later, in whatever form, counts for the messages that it reaches first. What was
    computed from released values alone has no noise but theirs, in another size.
    """
    source, sizes = traceable(system), dict[str, float]()
    rounds = min(FlowSettings().rounds, source.rounds)
    for unit, claim in {c.unit: c for c in claims if _followed(c)}.items():
        del unit
        pair = source.traced_pair(claim, rounds)
        if isinstance(pair, str):
            continue
        observed = observe(pair.program(rounds), source.traced_view(claim.adversary), source.seed)
        if observed.trace is None:
            continue
        shown, known = set[int](), torch.empty(0, dtype=torch.int64)
        for message in observed.messages:
            new = [n for n in message.trail.seals if n not in shown]
            shown.update(new)
            for seal in (s for n in new if isinstance(s := observed.trace.seals[n], Seal) and s.taint):
                used = seal.rows.used
                fresh = not bool(torch.isin(used, known).all())
                known = torch.cat([known, used])
                if fresh and (kind := message.trail.message.kind) in kinds:
                    least = float(_stds(seal, observed.trace.draws).min())
                    sizes[kind] = min(sizes.get(kind, least), least)
    return sizes


def _stds(seal: Seal, draws: Draws) -> Tensor:
    """The std of the normal noise on each entry of a seal, of draws that hide something."""
    columns, scales = seal.rows.columns, seal.rows.scales
    used = columns >= 0
    used[used.clone()] = (draws.families(columns[used]) == FAMILIES.index(NORMAL)) & ~draws.known(columns[used])
    return torch.where(used, scales, torch.zeros_like(scales)).square().sum(1).sqrt()


@dataclass(eq=False)
class _Sent:
    """Takes the messages of a round."""

    messages: list[Message] = field(default_factory=list)

    def record(self, message: Message) -> None:
        self.messages.append(message)


@dataclass(eq=False)
class _Kind:
    law: Law
    values: int = 0
    without: list[int] = field(default_factory=list)
    bare: list[int] = field(default_factory=list)
    """The rounds of messages that carry no released value."""

    def add(self, round_: int, *, held: bool) -> None:
        self.values += 1
        if not held:
            self.without.append(round_)

    def result(self, kind: str, rounds: int) -> NoiseOfKind | None:
        """None where there is nothing of the kind. Noise that is not Gaussian may be a defence's, without a point."""
        bare = self.bare if self.values or self.law.white else []
        if not self.values and not bare:
            return None
        without = tuple(sorted([*self.without, *bare]))
        return NoiseOfKind(kind=kind, noise=self.law, values=self.values + len(bare), rounds=rounds, without=without)


@dataclass(eq=False)
class _Batch:
    """Draws that were made together, in units of their law, and which of them are on a value."""

    values: Floats
    used: NDArray[np.bool_]
    step: float
    """Values under such a draw are rounded to multiples of it."""
    on_grid: bool
    """Whether they are whole steps, and the law says how large those are."""


class FreshDraws:
    """A listener to draws of secret streams that finds them again on released values, each once."""

    def __init__(self) -> None:
        self._batches: list[_Batch] = []

    def __call__(self, told: Drawn | Answered) -> None:
        if isinstance(told, Drawn) and told.law not in ("bits", "uniform"):
            values = _flat(told.values)
            used = np.zeros(len(values), dtype=np.bool_)
            self._batches.append(_Batch(values, used, told.step, on_grid=told.noise is not None))

    def on(self, value: Released, law: Law) -> bool:
        """Whether draws that no value had before, one after the other, are what was added to a value by this law."""
        released, noiseless = _flat(value.released), _flat(value.noiseless.expand_as(value.released))
        noise, rounding = released - noiseless, _EPS * (np.abs(released) + np.abs(noiseless))
        for batch in reversed(self._batches):
            unit = law.grid if batch.on_grid else (law.level or 0.0)
            slack = rounding + batch.step * unit
            near = np.flatnonzero(
                np.abs(batch.values[: len(batch.values) - len(noise) + 1] * unit - noise[0]) <= slack[0]
            )
            for first in near[np.argsort(np.abs(batch.values[near] * unit - noise[0]))].tolist():
                place = slice(first, first + len(noise))
                like = np.abs(batch.values[place] * unit - noise) <= slack
                if like.all() and not batch.used[place].any():
                    batch.used[place] = True
                    return True
        return False

    def end_round(self) -> None:
        """Forget draws that were made for this round alone, and the oldest of the others."""
        kept = [batch for batch in self._batches if batch.used.any() and not batch.used.all()]
        self._batches = kept[-_HELD:]


def _flat(values: Tensor) -> Floats:
    return np.asarray(values.detach().reshape(-1).double().cpu().numpy())


def _rests_on(claim: Claim, kind: NoiseOfKind, releases: Sequence[Release]) -> bool:
    """Whether a claim rests on noise of this kind in a round in which it is not as declared and nobody follows it."""
    first = FlowSettings().rounds if _followed(claim) else 0
    late = any(round_ >= first for round_ in kind.without)
    own = [r for r in releases if r.kind == kind.kind and claim.adversary.kind in r.seen_by]
    return late and any(r.sensitivity.get(claim.unit, 0.0) for r in own)


def _followed(claim: Claim) -> bool:
    """Whether the flow audit speaks of a claim: not of outsiders, who do not know batches, nor of absent records."""
    return claim.adversary.kind != "outsider" and claim.unit is not Unit.ADD_REMOVE


def _finding(kind: NoiseOfKind, least: float | None = None, releases: Sequence[Release] = ()) -> Finding:
    """Noise that is there but smaller than declared is accounted for beside what is declared."""
    finding = Finding(
        audit=NoiseAudit.name,
        subject=kind.kind,
        verdict=Verdict.CONSISTENT if kind.holds else Verdict.NOT_APPLICABLE,
        sentence=kind.sentence,
        figure=float(len(kind.without)),
        measure="values without a declared draw of their own",
        limit=0.0,
        evidence=kind,
    )
    if least is None or not kind.noise.gaussian or least >= kind.noise.deviation * (1 - _SMALLER):
        return finding
    own = [r for r in releases if r.kind == kind.kind and r.noise == kind.noise]
    noise = kind.noise.scaled(least / kind.noise.deviation) if least else Exact()
    what = f"{kind.kind}: some of it under noise of std {least:.4g}"
    return replace(
        finding,
        verdict=Verdict.UNSUPPORTED,
        sentence=f"{kind.sentence}; some have noise of std {least:.4g}, and {kind.noise.deviation:.4g} is declared",
        claim_units=frozenset(),
        undeclared=tuple(replace(r, what=what, noise=noise) for r in own),
    )


def _unmeasured(claim: Claim, kind: NoiseOfKind) -> Finding:
    return replace(
        _finding(kind),
        verdict=Verdict.UNMEASURED,
        sentence=f"{kind.sentence}, and no trace says what hides them",
        claim=claim.key,
        unit=claim.unit,
        adversary=claim.adversary,
    )
