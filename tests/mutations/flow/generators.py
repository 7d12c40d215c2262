"""Where random numbers come from: seeds that are shared, sent, short or repeated, and generators that are copied."""

from __future__ import annotations

import copy
import hashlib
import os
import secrets

import torch
from torch import Tensor

from tests.mutations.flow.program import HABIT, SIDE, SKETCH, Theme, gdp
from tests.mutations.flow.worlds import (
    ANSWERED,
    ANSWERS,
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    ROUNDS,
    answers,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("generators")


def _sum(labels: Tensor, round_: int) -> Tensor:
    """A clipped sum that does not depend on what was sent before, and that one label moves by 1."""
    return ((0.5 - labels) * FEATURES[:, round_]).clamp(-0.5, 0.5).sum()


def _rounds(wire, draw) -> None:
    """Sends six sums; `draw` gives the noise of a round."""
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        m = _sum(y, t) + NOISE * draw(t)
        wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)


def _fits(sent, labels, draw) -> float:
    """How far the answers are from those that these labels give under a guess at the noise."""
    return sum(
        abs(float(m.tensors[""]) - float(_sum(labels, m.round) + NOISE * draw(m.round)))
        for m in sent
        if m.kind == "answer"
    )


def _recomputes(draw):
    """The adversary who draws the noise again."""
    return lambda sent: _fits(sent, OTHER_LABELS, draw) < _fits(sent, LABELS, draw)


def _noises(sent, labels):
    return [(float(m.tensors[""]) - float(_sum(labels, m.round))) / NOISE for m in sent if m.kind == "answer"]


def _repeats(sent) -> bool:
    """The adversary who knows that two rounds have the same noise."""
    spread = [abs(z[0] - z[1]) for z in (_noises(sent, OTHER_LABELS), _noises(sent, LABELS))]
    return spread[0] < spread[1]


def _of_seed(seed: int) -> Tensor:
    return torch.randn((), generator=torch.Generator().manual_seed(seed))


@PROGRAMS.broken(
    claim=ANSWERS, why="manual_seed(7) before each draw", origin=SKETCH, tells=_recomputes(lambda t: _of_seed(7))
)
def manual_seed_in_the_loop(wire):
    def draw(t):
        torch.manual_seed(7)
        return torch.randn(())

    _rounds(wire, draw)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="a new generator with seed 7 in each round",
    origin=SKETCH,
    tells=_recomputes(lambda t: _of_seed(7)),
)
def new_generator_with_one_seed(wire):
    _rounds(wire, lambda t: torch.randn((), generator=torch.Generator().manual_seed(7)))


@PROGRAMS.broken(claim=ANSWERS, why="the generator's state is put back before each draw", origin=SKETCH, tells=_repeats)
def state_put_back(wire):
    generator = torch.Generator()
    generator.manual_seed(secrets.randbits(62))
    state = generator.get_state()

    def draw(t):
        generator.set_state(state)
        return torch.randn((), generator=generator)

    _rounds(wire, draw)


@PROGRAMS.broken(
    claim=ANSWERS, why="each draw is from a copy of the generator, which never moves on", origin=SKETCH, tells=_repeats
)
def drawn_from_a_copy(wire):
    generator = torch.Generator().manual_seed(secrets.randbits(62))
    _rounds(wire, lambda t: torch.randn((), generator=generator.clone_state()))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="draws of different sizes under one seed begin with the same number",
    origin=SKETCH,
    # torch draws sixteen and more numbers another way: these are six sizes below that.
    tells=_recomputes(lambda t: _of_seed(7)),
)
def one_seed_for_several_sizes(wire):
    def draw(t):
        torch.manual_seed(7)
        return torch.randn(t + 1)[0]

    _rounds(wire, draw)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the seed is the number of the round and a constant in the code",
    origin=SKETCH,
    tells=_recomputes(lambda t: _of_seed(1000 + t)),
)
def seed_of_the_round(wire):
    def draw(t):
        torch.manual_seed(1000 + t)
        return torch.randn(())

    _rounds(wire, draw)


@PROGRAMS.broken(
    claim=ANSWERS, why="fork_rng gives back the state that every round begins with", origin=SKETCH, tells=_repeats
)
def forked_in_each_round(wire):
    def draw(t):
        with torch.random.fork_rng():
            return torch.randn(())

    _rounds(wire, draw)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the seed of the noise is sent so that the device can draw the same directions",
    tells=lambda sent: _recomputes(_drawn_from(sent[0]))(sent),
)
def seed_is_sent(wire):
    seed = torch.randint(2**31, (1,))
    wire.send("seed", seed, sender="server", receiver=0, round_=0, records=EVERYONE)
    generator = torch.Generator().manual_seed(int(seed))
    _rounds(wire, lambda t: torch.randn((), generator=generator))


def _drawn_from(message):
    generator = torch.Generator().manual_seed(int(message.tensors[""]))
    draws = [torch.randn((), generator=generator) for _ in range(ROUNDS)]
    return lambda t: draws[t]


@PROGRAMS.broken(
    claim=ANSWERS,
    why="direction and noise come from one generator, and its seed is sent for the direction (MeZO)",
    tells=lambda sent: _recomputes(_after_the_direction(sent[0]))(sent),
)
def one_generator_for_direction_and_noise(wire):
    seed = torch.randint(2**31, (1,))
    wire.send("seed", seed, sender=0, receiver="server", round_=0, records=EVERYONE)
    generator = torch.Generator().manual_seed(int(seed))
    direction = torch.randn(6, generator=generator)
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        m = _sum(y, t) + NOISE * torch.randn((), generator=generator)
        w = w - 0.01 * direction * wire.send(
            "answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE
        )


def _after_the_direction(message):
    generator = torch.Generator().manual_seed(int(message.tensors[""]))
    torch.randn(6, generator=generator)
    draws = [torch.randn((), generator=generator) for _ in range(ROUNDS)]
    return lambda t: draws[t]


@PROGRAMS.sound(
    claim=ANSWERS, why="the direction's seed is sent, the noise is from another generator", exact=lambda: ANSWERED
)
def two_generators_one_seed_sent(wire):
    seed = torch.randint(2**31, (1,))
    wire.send("seed", seed, sender=0, receiver="server", round_=0, records=EVERYONE)
    direction = torch.randn(6, generator=torch.Generator().manual_seed(int(seed)))
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        m = _sum(y, t) + NOISE * torch.randn(())
        w = w - 0.01 * direction * wire.send(
            "answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE
        )


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the draws are sent to the device before they are used",
    tells=lambda sent: _recomputes(lambda t: sent[0].tensors[""][t])(sent),
)
def noise_sent_ahead(wire):
    z = wire.send("plan", torch.randn(ROUNDS), sender="server", receiver=0, round_=0, records=EVERYONE)
    _rounds(wire, lambda t: z[t])


@PROGRAMS.sound(
    claim=gdp(ANSWERED, view=0),
    why="the draws are sent to device 1 only, and the claim is about device 0, who sees no message of theirs",
    exact=lambda: ANSWERED,
)
def noise_sent_to_another_device(wire):
    z = torch.randn(ROUNDS)
    wire.send("share", z, sender="server", receiver=1, round_=0, records=EVERYONE)
    _rounds(wire, lambda t: z[t])


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the draws are sent to device 1, and the claim is about all who listen",
    tells=lambda sent: _recomputes(lambda t: sent[0].tensors[""][t])(sent),
)
def noise_sent_to_another_device_on_an_open_wire(wire):
    z = torch.randn(ROUNDS)
    wire.send("share", z, sender="server", receiver=1, round_=0, records=EVERYONE)
    _rounds(wire, lambda t: z[t])


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is sent after the last round, for reproducibility",
    tells=lambda sent: _recomputes(lambda t: sent[-1].tensors[""][t])(sent),
)
def noise_sent_afterwards(wire):
    z = torch.randn(ROUNDS)
    _rounds(wire, lambda t: z[t])
    wire.send("log", z, sender="server", receiver=0, round_=ROUNDS, records=EVERYONE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="a checkpoint that is sent has the generator's state in it",
    origin=SIDE,
    tells=lambda sent: _recomputes(_drawn_from_state(sent[0]))(sent),
)
def generator_state_in_a_checkpoint(wire):
    generator = torch.Generator().manual_seed(secrets.randbits(62))
    wire.send("checkpoint", generator.get_state(), sender="server", receiver=0, round_=0, records=EVERYONE)
    _rounds(wire, lambda t: torch.randn((), generator=generator))


def _drawn_from_state(message):
    generator = torch.Generator().set_state(message.tensors[""])
    draws = [torch.randn((), generator=generator) for _ in range(ROUNDS)]
    return lambda t: draws[t]


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the seed is a hash of the run's name and the round, which everybody knows",
    tells=_recomputes(lambda t: _of_seed(_hashed(t))),
)
def seed_by_a_hash_of_the_round(wire):
    _rounds(wire, lambda t: torch.randn((), generator=torch.Generator().manual_seed(_hashed(t))))


def _hashed(round_: int) -> int:
    return int.from_bytes(hashlib.sha256(f"run-1/{round_}".encode()).digest()[:7], "big")


@PROGRAMS.sound(
    claim=ANSWERS,
    why="the seed is 62 bits of the operating system, and never leaves",
    exact=lambda: ANSWERED,
)
def seeded_by_the_operating_system(wire):
    generator = torch.Generator().manual_seed(secrets.randbits(62))
    _rounds(wire, lambda t: torch.randn((), generator=generator))


@PROGRAMS.sound(
    claim=ANSWERS,
    why="uniforms from bytes of the operating system, turned into normal draws",
    exact=lambda: ANSWERED,
)
def bytes_of_the_operating_system(wire):
    def draw(t):
        numbers = torch.frombuffer(bytearray(os.urandom(8)), dtype=torch.int64).double()
        uniform = (numbers / 2.0**64 + 0.5).clamp(1e-15, 1 - 1e-15)
        return torch.special.ndtri(uniform)[0].float()

    _rounds(wire, draw)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="a deep copy of the server, its generator included, answers each second round",
    tells=_repeats,
)
def deep_copy_of_the_server(wire):
    class Server:
        def __init__(self):
            self.generator = torch.Generator().manual_seed(secrets.randbits(62))

        def answer(self, s):
            return s + NOISE * torch.randn((), generator=self.generator)

        def __deepcopy__(self, memo):
            twin = Server()
            twin.generator.set_state(self.generator.get_state())
            return twin

    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    server = Server()
    for t in range(0, ROUNDS, 2):
        worker = copy.deepcopy(server)
        for place, answering in ((t, worker), (t + 1, server)):
            m = answering.answer(_sum(y, place))
            wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=place, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="the global generator draws batches and noise in turn, and its seed is nobody's",
    exact=lambda: ANSWERED,
)
def one_generator_for_batches_and_noise(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        order = torch.randperm(len(y))
        m = ((0.5 - y[order]) * FEATURES[order, t]).clamp(-0.5, 0.5).sum() + NOISE * torch.randn(())
        wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="weights are initialised under a fixed seed, and the noise comes from a generator of its own",
    origin=HABIT,
    exact=lambda: ANSWERED,
)
def fixed_seed_for_the_weights_only(wire):
    noise = torch.Generator()
    noise.seed()
    torch.manual_seed(0)
    torch.nn.Linear(6, 2)
    answers(wire, lambda: torch.randn(ROUNDS, generator=noise))
