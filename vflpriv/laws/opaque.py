"""Ciphertext: under an assumption that is stated and not measured, it tells nothing without its key."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.common.registry import register
from vflpriv.core.law import Law
from vflpriv.laws.exact import Exact

__all__ = ["Opaque"]


@register("law")
@dataclass(frozen=True)
class Opaque(Exact):
    """A ciphertext: under the `assumption`, which is stated and not measured, it gives nothing away without the key.

    `readers` are the kinds of adversaries that hold the key, to whom it counts as sent in clear. So it does to whoever
    holds the trained model, which is computed from what was decrypted.
    """

    assumption: str
    readers: frozenset[str] = frozenset()
    name = "opaque"
    summary = "ciphertext: by assumption it tells nothing without the key"
    exact = False

    def __str__(self) -> str:
        return f"opaque, by assumption: {self.assumption}"

    @property
    def sealed_by(self) -> str:
        return self.assumption

    def hides_from(self, adversary: str) -> bool:
        """Whether an adversary of this kind sees the ciphertext alone."""
        devices = {"device", "devices"}
        return adversary != "model" and not self.readers & (devices if adversary in devices else {adversary})

    def observed_by(self, adversary: str) -> Law | None:
        return None if self.hides_from(adversary) else Exact()
