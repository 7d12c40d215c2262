"""The one loop of all attacks: an attack, an adversary's view of some trainings, and what is guessed about them.

What is guessed is a `Secret`: it tells an attack what it may know, and holds guesses against the truth, which no attack
is given. Labels, features and membership are one each; another kind of secret overrides the same methods.

The loop is not in `attacks/`, which holds what an adversary does: whoever scores knows the truth, and takes intervals
from `audits/statistics`, as verdicts do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torch import Tensor

from vflpriv.audits.scoring.score import Score, mean_score
from vflpriv.core.attack import Attack, Defences, Guess, Guesses, adapts, run_and_blind
from vflpriv.core.views import Adversary, View

__all__ = ["Attempt", "Keep", "Secret"]

Keep = Callable[[str, Callable[[], Guesses]], Guesses]
"""Computes the guesses of the attempt with this name, or takes them from a store."""
_UNREADABLE = (RuntimeError, KeyError, IndexError, ValueError)
"""What an attack may raise on messages of a foreign format."""


def _not_kept(name: str, compute: Callable[[], Guesses]) -> Guesses:
    del name
    return compute()


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack through one view: the score of each training and the mean of all, or the reason why it was not tried.

    `victim` is the device whose features are guessed, `knows` what the attack was told. `guess` holds the guesses about
    the first training, those that are not scored too; `pictures`, (2, n, channels, height, width), some originals and
    their reconstructions.
    """

    attack: str
    target: str
    adversary: Adversary
    victim: int | None = None
    knows: frozenset[str] = frozenset()
    adaptive: bool = False
    """Whether the attack knows one of the defences in force."""
    refusal: str | None = None
    scores: tuple[Score, ...] = ()
    mean: Score | None = None
    guess: Guess | None = field(default=None, compare=False, repr=False)
    pictures: Tensor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, attack: Attack, adversary: Adversary, **fields: Any) -> Attempt:
        """The attempt before anything is guessed; with `refusal`, the whole of it."""
        knows: frozenset[str] = getattr(attack, "knows", frozenset())
        return cls(attack=attack.name, target=attack.target, adversary=adversary, knows=knows, **fields)

    @property
    def success(self) -> Score | None:
        """The score of the first training, with its interval over records; None if the attack was not tried."""
        return self.scores[0] if self.scores else None

    @property
    def rates(self) -> tuple[float, ...]:
        """The success in each training."""
        return tuple(score.value for score in self.scores)


@dataclass(frozen=True, eq=False, kw_only=True)
class Secret(ABC):
    """What attacks guess about one or several trainings (`seeds`), each a replica of the views that they are given.

    With `tolerant`, an attack that raises an error on messages of a foreign format is refused with that error instead
    of ending the run.
    """

    seed: int
    confidence: float
    seeds: int = 1
    defences: Defences = field(default_factory=dict)
    """What is public about the defences in force."""
    tolerant: bool = False
    keep: Keep = _not_kept

    nothing_to_score: ClassVar[str]
    """Why an attempt does not count where `score` gives None."""

    @property
    def attacked_device(self) -> int | None:
        """The device whose features are guessed; None of other secrets."""
        return None

    def attempt(self, attack: Any, view: View) -> Attempt:
        """Try one attack on what this view shows of each training."""
        adaptive = adapts(attack, self.defences)
        attempt = Attempt.of(attack, view.adversary, victim=self.attacked_device, adaptive=adaptive)
        try:
            return self._tried(attempt, attack, view)
        except _UNREADABLE as error:
            if not self.tolerant:
                raise
            reason = f"cannot read this recording: {type(error).__name__}, {error}"
            return replace(attempt, refusal=" ".join(reason.split()))

    def _tried(self, attempt: Attempt, attack: Any, view: View) -> Attempt:
        auxiliaries = [self.auxiliary(attack, r) for r in range(self.seeds)]
        refusal = self.refusal(attack, view, auxiliaries)
        if refusal is not None:
            return replace(attempt, refusal=refusal)
        name = f"{attack.name}, {view.adversary}"
        guesses, blind = self.keep(name, lambda: self.guesses(attack, view, auxiliaries))
        scores: list[Score] = []
        for r, (guess, baseline, auxiliary) in enumerate(zip(guesses, blind, auxiliaries, strict=True)):
            score = self.score(attack, guess, baseline, auxiliary, r)
            if score is None:
                return replace(attempt, refusal=self.nothing_to_score)
            scores.append(score)
        return replace(
            attempt,
            scores=tuple(scores),
            mean=mean_score(scores, confidence=self.confidence),
            guess=guesses[0],
            pictures=self.pictures(guesses[0], auxiliaries[0]),
        )

    @abstractmethod
    def auxiliary(self, attack: Any, r: int) -> Any:
        """What an attack is told before it guesses about the r-th training."""

    @abstractmethod
    def refusal(self, attack: Any, view: View, auxiliaries: Sequence[Any]) -> str | None:
        """Why an attack cannot be tried on a view with this knowledge of each training; None if it can."""

    def guesses(self, attack: Any, view: View, auxiliaries: Sequence[Any]) -> Guesses:
        """What an attack guesses about each training, and what its adversary guesses without the protocol."""
        return run_and_blind(attack, view, auxiliaries)

    @abstractmethod
    def score(self, attack: Any, guess: Guess, blind: Guess | None, auxiliary: Any, r: int) -> Score | None:
        """Hold the guess about the r-th training against the truth; None where nothing of it can be scored."""

    def pictures(self, guess: Guess, auxiliary: Any) -> Tensor | None:
        """Originals and reconstructions of some records, where these are pictures."""
        del guess, auxiliary
        return None
