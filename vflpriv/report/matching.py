"""Which claim of one report answers for which claim of another: matched by unit and view, not by name alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.audit import ClaimRow, SuccessClaimRow, SystemRow

__all__ = ["AnyClaim", "Pair", "accounted_at", "claim_pairs", "view_of"]

AnyClaim = ClaimRow | SuccessClaimRow


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A claim of the old report and the one of the new report that answers for it; one of the two may be missing."""

    old: AnyClaim | None
    new: AnyClaim | None
    covered: bool = False
    """Whether the new claim promises more: against an adversary who sees more, or for a unit that implies the old."""

    @property
    def claim(self) -> AnyClaim:
        """The claim that says what was promised: the old one where there is one."""
        claim = self.old or self.new
        assert claim is not None
        return claim

    @property
    def place(self) -> str:
        """The unit and the view, for a claim about an attack with its name.

        >>> Pair(old=None, new=SuccessClaimRow.model_construct(unit="label", adversary="server", attack="a")).place
        'a of label seen by server'
        """
        attack = f"{self.claim.attack} of " if isinstance(self.claim, SuccessClaimRow) else ""
        return f"{attack}{self.claim.unit} seen by {self.claim.adversary}"

    @property
    def names(self) -> str:
        """The names of the claims, and how the second follows from the first where they differ."""
        if self.old is None or self.new is None:
            return f"{self.claim.key}, {'new' if self.old is None else 'no longer claimed'}"
        if self.covered:
            return f"{self.old.key}, now covered by {self.new.key}"
        return self.old.key if self.old.key == self.new.key else f"{self.old.key}, now {self.new.key}"


def claim_pairs(old: Sequence[AnyClaim], new: Sequence[AnyClaim]) -> list[Pair]:
    """All claims of both reports, each old one with what answers for it.

    A claim is answered by one on the same unit and view, preferably of the same name; else by one that promises at
    least as much: as small an ε and δ, for a unit that implies its own, against an adversary who sees no less.
    """
    free = list(new)
    partners: dict[int, AnyClaim] = {}
    for alike in (_same_name, _same_place):
        for i, claim in enumerate(old):
            if i not in partners and (partner := _take(claim, free, alike)) is not None:
                partners[i] = partner
    pairs = [Pair(old=claim, new=partners[i]) if i in partners else _covered(claim, new) for i, claim in enumerate(old)]
    return pairs + [Pair(old=None, new=claim) for claim in free]


def _covered(claim: AnyClaim, others: Sequence[AnyClaim]) -> Pair:
    cover = next((other for other in others if _covers(other, claim)), None)
    return Pair(old=claim, new=cover, covered=cover is not None)


def _take(claim: AnyClaim, free: list[AnyClaim], alike: Callable[[AnyClaim, AnyClaim], bool]) -> AnyClaim | None:
    """Remove and return the first free claim that is like this one."""
    for i, other in enumerate(free):
        if alike(claim, other):
            return free.pop(i)
    return None


def _same_name(a: AnyClaim, b: AnyClaim) -> bool:
    return a.key == b.key and _same_place(a, b)


def _same_place(a: AnyClaim, b: AnyClaim) -> bool:
    attacks = [claim.attack if isinstance(claim, SuccessClaimRow) else None for claim in (a, b)]
    return (a.unit, a.adversary) == (b.unit, b.adversary) and attacks[0] == attacks[1]


def _covers(claim: AnyClaim, other: AnyClaim) -> bool:
    """Whether a claim that is kept means that the other is kept too."""
    if not (isinstance(claim, ClaimRow) and isinstance(other, ClaimRow)):
        return False
    # Two claims of the same ε may differ in its last digits, if one was computed from μ.
    stronger = claim.epsilon <= other.epsilon * (1 + 1e-9) and claim.delta <= other.delta
    return stronger and _implies(claim.unit, other.unit) and _includes(claim.adversary, other.adversary)


def _implies(unit: str, other: str) -> bool:
    return unit == other or ({unit, other} <= set(Unit) and Unit(unit).implies(Unit(other)))


def _includes(view: str, other: str) -> bool:
    """Whether the first adversary sees all that the second sees.

    >>> _includes("devices(all)", "device"), _includes("devices(0, 2)", "device(2)"), _includes("device", "model")
    (True, True, False)
    """
    if view == other:
        return True
    try:
        whole, part = Adversary.parse(view), Adversary.parse(other)
    except InputError:
        return False
    if not (whole.is_device and part.is_device):
        return False
    # Without numbers, "devices" are all of them, and "device" is any single one.
    if not whole.devices:
        return whole.kind == "devices" or part.kind == "device"
    return bool(part.devices) and set(part.devices) <= set(whole.devices)


def view_of(adversary: str) -> str:
    """The view of a budget without a device number: a budget of any single device names the worst one."""
    return "device" if adversary.startswith("device(") else adversary


def accounted_at(claim: ClaimRow, system: SystemRow) -> float | None:
    """The rigorous ε of a system for a claim's unit, view and δ, whether or not it makes the claim; None if unknown."""
    place = (claim.unit, claim.adversary, claim.delta)
    return next((epsilon for *found, epsilon in _known(system) if tuple(found) == place), None)


def _known(system: SystemRow) -> Iterator[tuple[str, str, float, float]]:
    """Unit, view, δ and ε of every rigorous budget that applies."""
    for b in system.budgets:
        if b.reading == "rigorous" and b.not_applicable is None:
            yield b.unit, view_of(b.adversary), b.delta, b.epsilon_upper
    for claim in system.claims:
        for view in claim.views:
            if view.not_applicable is None:
                yield claim.unit, view.adversary, claim.delta, view.epsilon_upper
