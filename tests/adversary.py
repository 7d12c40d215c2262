"""The adversary of floating-point noise: it asks of every released number whether each world's value can become it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vflpriv.audits.statistics.reachability import reachable
from vflpriv.audits.twins.probes import Released, in_worlds
from vflpriv.audits.two_world.scores import for_replicas
from vflpriv.core.canaries import Canary
from vflpriv.core.systems import System

__all__ = ["certain", "possible"]


def possible(value: Released, world: int) -> NDArray[np.bool_]:
    """(R,) whether every entry of a release can be what noise in single precision makes of a world's value."""
    known = value.noiseless if value.worlds is None else value.worlds[:, world]
    noiseless = known.detach().expand_as(value.released)
    fits = reachable(value.released.detach().cpu().numpy(), noiseless.cpu().numpy(), value.std)
    return np.asarray(fits.reshape(len(fits), -1).all(1))


def certain(system: System, canary: Canary, trainings: int) -> int:
    """In how many trainings all that left can come from the world it came from, and cannot from the other.

    The adversary knows all but the world: both noiseless values of every release, which are one in most rounds. Where
    such a value cannot become what left, the noise was added in another way, and it is certain of nothing.
    """
    worlds = [r % 2 for r in range(trainings)]
    engine, probe = in_worlds(system, range(trainings), for_replicas(canary, worlds))
    still = np.ones((2, trainings), dtype=np.bool_)
    for round_ in range(system.schedule.rounds):
        for value in probe.round(engine, round_):
            still &= [possible(value, world) for world in (0, 1)]
    own, other = still[worlds, range(trainings)], still[1 - np.array(worlds), range(trainings)]
    return int((own & ~other).sum())
