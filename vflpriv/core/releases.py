"""Releases: what private value leaves its owner, with which noise and sensitivity, and which adversaries see it.

A mechanism adds the noise and describes the release, so that the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.law import Law
from vflpriv.core.units import Unit

__all__ = ["Release", "StateLeak"]


@dataclass(frozen=True, kw_only=True)
class StateLeak:
    """State that is computed from private data without noise and that later releases depend on.

    From the round after a record's first, every release may then differ by `sensitivity`, in its batch or not.
    `carrier` names the state, such as the server's model. With `own` each sender has such a state of its own, which the
    messages of other senders do not depend on.
    """

    carrier: str
    sensitivity: Mapping[Unit, float]
    own: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """One kind of private value that leaves its owner, over all rounds.

    `sensitivity` holds, for each unit, the largest distance between the noiseless values of two neighbouring data sets
    in a round that the unit takes part in; a unit that is absent cannot change this value (or only through other
    releases). `rounds` marks the rounds with such a release. `seen_by` names the kinds of adversaries that observe it;
    a device observes it only in the rounds it takes part in, unless with `reaches_all` all devices see its effect.
    With `carried` the noised value changes models that later messages to every device depend on, whoever took part:
    counted rigorously all rounds count for each device, counted as papers do only its own.
    """

    kind: str
    what: str
    noise: Law
    sensitivity: Mapping[Unit, float]
    rounds: NDArray[np.bool_]
    seen_by: frozenset[str]
    reaches_all: bool = False
    carried: bool = False
    senders: NDArray[np.bool_] | None = None
    """(rounds, devices): who sends it, where a message depends on the sender's block alone. For a unit at one device
    only that device's messages then count. None: every message may depend on every block."""
    additive: bool = False
    """Whether it is a sum to which an absent record adds nothing, so that secret batches may hide who took part. What
    one record adds is then at most as long as the sensitivity for the add-remove unit."""
    fresh: bool = False
    """Whether what a record adds is computed from the data and earlier releases alone, and not from state that depends
    on who was in earlier batches, such as a table of the embeddings sent last."""
    once: bool = False
    """Whether every record is released exactly once, whatever the batches."""
    redrawn: bool = True
    """Whether every further training on the same data releases it anew, with noise of its own."""
    leak: StateLeak | None = None
    sent_as: str | None = None
    """Where no message carries the noised value itself, the kind of message that carries what is computed from it."""
    tensors: frozenset[str] | None = None
    """The tensors of its messages that it covers; if None, the only one, or those of the table of kinds."""
    unstated: tuple[str, ...] = field(default=())
    """What is taken for granted where a budget of one record counts this release, and nobody says it."""

    def protects(self, unit: Unit) -> bool:
        """Whether the noise bounds the privacy loss of this release for the unit."""
        return self.noise.noised and math.isfinite(self.sensitivity.get(unit, 0.0))

    def observed_by(self, adversary: str) -> Release | None:
        """The release as adversaries of this kind observe it: a ciphertext in clear with its key, else not at all."""
        law = self.noise.observed_by(adversary)
        if law is None or law is self.noise:
            return None if law is None else self
        reader = "the model depends on what was decrypted" if adversary == "model" else "read with its key"
        return replace(self, noise=law, what=f"{self.what}; {reader}")

    @property
    def depends_on_batch(self) -> bool:
        """Whether it depends on who is in a round's batch, and not only on the data."""
        return not self.once and any(unit.per_record and bound > 0 for unit, bound in self.sensitivity.items())

    def until(self, rounds: int) -> Release:
        """The release in a run that stops after this many rounds."""
        early = np.arange(len(self.rounds)) < rounds
        senders = None if self.senders is None else self.senders & early[:, None]
        return replace(self, rounds=self.rounds & early, senders=senders)
