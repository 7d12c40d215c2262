"""A training of an adversary's own: the same system on the held-out records, from the same first parameters."""

from __future__ import annotations

from dataclasses import replace

from vflpriv.audits.scoring.features import sensitive
from vflpriv.audits.scoring.trainings import Watched
from vflpriv.common.devices import precise_device
from vflpriv.common.seeds import derive
from vflpriv.core.attack import OtherPeople
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire

__all__ = ["other_people"]


def other_people(system: System, seeds: int, kinds: frozenset[str], victim: int, column: int) -> OtherPeople | None:
    """What the adversary sees as the server of a training on the held-out records, and their sensitive column.

    Replica r starts from the parameters of the r-th training that is attacked: these are public. Batches and noise are
    others. None where too few records are held out for a batch.
    """
    data = system.data
    if len(data.test_labels) < system.settings.batch_size:
        return None
    held_out = replace(data, blocks=data.test_blocks, labels=data.test_labels)
    sizes = {"records": held_out.records, "devices": data.devices, "seed": derive(system.seed, "attack") >> 1}
    schedule = system.engine.draw_schedule(system.settings, **sizes)
    engine = replace(system, data=held_out, schedule=schedule).train(range(seeds))
    engine.redraw_noise(sizes["seed"], range(seeds))
    watched = Watched(kinds, frozenset({victim}))
    engine.run(Wire(watched))
    where = precise_device(system.torch_device)
    seen = Transcript(messages=[message.to(where) for message in watched.transcript.messages])
    view = View.of(seen, Adversary("server"), devices=data.devices, classes=data.classes)
    return OtherPeople(view=view, attribute=sensitive(data.test_blocks[victim], column).to(where))
