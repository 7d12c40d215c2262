"""The adversary of floating-point noise: it asks of every released number whether each world's value can become it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.statistics.reachability import reachable
from vflpriv.audits.twins.pairs import TwinCanary, other_record, run_twins
from vflpriv.audits.twins.probes import Released, in_worlds
from vflpriv.audits.two_world.scores import for_replicas
from vflpriv.core.canaries import Canary
from vflpriv.core.systems import System
from vflpriv.core.units import Unit

__all__ = ["certain", "certain_of_twins"]


def possible(value: Released, known: Tensor) -> NDArray[np.bool_]:
    """(R,) whether every entry of a release can be what noise in single precision makes of a world's value."""
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
            either = [value.noiseless] * 2 if value.worlds is None else value.worlds.unbind(1)
            still &= [possible(value, known) for known in either]
    own, other = still[worlds, range(trainings)], still[1 - np.array(worlds), range(trainings)]
    return int((own & ~other).sum())


def certain_of_twins(system: System, trainings: int) -> tuple[int, frozenset[str]]:
    """The same of trainings whose world 1 has another record's data, and the kinds of noised releases that it moves.

    The other world's values are computed by a training in it that is made to release the same. So steps that are never
    sent are seen, too, and mechanisms without a clip.
    """
    record, data = int(system.schedule.batch(0)[0]), system.data
    other = other_record(system, record)
    canary = TwinCanary(
        unit=Unit.RECORD,
        what="another record's data",
        record=record,
        labels=(int(data.labels[record]), int(data.labels[other])),
        blocks={m: (block[record], block[other]) for m, block in enumerate(data.blocks)},
    )
    still, moved = np.ones((2, trainings), dtype=np.bool_), set()
    for twins in run_twins(system, [canary] * trainings):
        for values in zip(*twins.values, strict=True):
            own, another = (value.noiseless for value in values)
            if values[0].std > 0:
                still &= [possible(values[0], known) for known in (own, another)]
                moved |= set() if torch.equal(own, another) else {values[0].kind}
    return int((still[0] & ~still[1]).sum()), frozenset(moved)
