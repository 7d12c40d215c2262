"""Release points: the one way in which a protected value leaves. They clip, add noise, and let a probe look."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from vflpriv.core.engine import Contributions, Probe
from vflpriv.training.mechanisms.base import Mechanism
from vflpriv.training.mechanisms.noise import NoiseSource

__all__ = ["ReleasePoint"]


class ReleasePoint:
    """A mechanism, the source of its noise, and the kind of message that carries what it releases.

    An `internal` point is a noised step that is never sent by itself, but that every later message reads. Where the
    mechanism adds no noise, values leave as they are and no probe is asked.
    """

    def __init__(self, kind: str, mechanism: Mechanism, noise: NoiseSource, *, internal: bool = False) -> None:
        self.kind, self.mechanism, self.noise, self.internal = kind, mechanism, noise, internal
        self.probe: Probe | None = None

    def noiseless(self, contributions: Contributions) -> Tensor:
        """The value that these contributions make, before noise."""
        return contributions.values if contributions.clipped else self.mechanism.noiseless(contributions.values)

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        """The value that leaves, from standard normals of its shape."""
        if self.probe is None or not self.mechanism.noise_std:
            return self.mechanism.release(self.noiseless(contributions), normals)
        noiseless = self.probe.noiseless(self, contributions)
        released = self.mechanism.release(noiseless, normals)
        return self.probe.released(self, contributions, noiseless, released)

    def scalar(self, contributions: Contributions) -> Tensor:
        """(R,) the noised aggregate of one number per record."""
        return self.release(contributions, self.noise.scalar(contributions.round))

    def vector(self, contributions: Contributions, width: int) -> Tensor:
        """(R, width) the noised aggregate of one vector per record."""
        return self.release(contributions, self.noise.tensor((width,), contributions.round, contributions.party))

    def rows(self, round_: int, m: int, records: Tensor, clipped: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What device m sends of these clipped rows, (R, B, width) each; each tensor has noise of its own."""
        if not self.mechanism.noise_std:
            return dict(clipped)
        shape = tuple(next(iter(clipped.values())).shape[1:])
        several = len(clipped) > 1
        normals = self.noise.tensor((len(clipped), *shape) if several else shape, round_, m)
        separate = normals.unbind(1) if several else [normals]
        return {
            name: self.release(
                Contributions(round=round_, party=m, records=records, values=values, clipped=True), own_normals
            )
            for (name, values), own_normals in zip(clipped.items(), separate, strict=True)
        }
