"""Cost of tracing a training: split learning of MNIST's size, plain, traced, and as two plain runs in both worlds.

Two devices hold half an image each, 392 pixels, and send embeddings of 32 numbers; the server sends noised gradients
back. `taint alone` traces the same training in a pair of worlds that do not differ, so that no operation is run twice.
Times are CPU seconds of one thread, the least of three. `--seals` traces 300 rounds that noise 64 rows of 64 entries
each, and solves for mu.

    python benchmarks/flow.py [--rounds 100] [--seals]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.plain.twins import plain_run, seeded
from vflpriv.audits.flow.plain.wire import FlowWire, PlainWire, Program
from vflpriv.audits.flow.tracer.dispatch import Trace
from vflpriv.audits.flow.tracer.exits import Exits
from vflpriv.audits.flow.tracer.wire import TracedWire

__all__: list[str] = []

BATCH, PIXELS, EMBEDDED, CLASSES, RECORDS = 64, 392, 32, 10, 2048
CLIP, NOISE = 0.01, 0.1
_REPEATS = 3


def bottom() -> nn.Module:
    return nn.Sequential(nn.Linear(PIXELS, 128), nn.ReLU(), nn.Linear(128, EMBEDDED))


def split_learning(rounds: int, *, differs: bool = True) -> Program:
    """A training of so many rounds; the label of record 0 is private and in every batch."""
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randn(2, RECORDS, PIXELS, generator=generator)
    labels = torch.randint(CLASSES, (RECORDS,), generator=generator)
    other = labels.clone()
    other[0] = (labels[0] + differs) % CLASSES

    def train(wire: FlowWire) -> None:
        bottoms = [bottom(), bottom()]
        top = nn.Sequential(nn.Linear(2 * EMBEDDED, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        optimisers = [torch.optim.Adam(model.parameters(), 1e-3) for model in (*bottoms, top)]
        secret = wire.private(labels, other)
        for round_ in range(rounds):
            batch = torch.randperm(RECORDS)[:BATCH]
            batch[0] = 0
            sent = [model(block[batch]) for model, block in zip(bottoms, pixels, strict=True)]
            arrived = [
                wire.send("embedding", z, sender=m, receiver="server", round_=round_).requires_grad_()
                for m, z in enumerate(sent)
            ]
            loss = nn.functional.cross_entropy(top(torch.cat(arrived, 1)), secret[batch])
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss.backward()
            for m, (z, received) in enumerate(zip(sent, arrived, strict=True)):
                assert received.grad is not None
                z.backward(wire.send("gradient", noised(received.grad), receiver=m, round_=round_))
            for optimiser in optimisers:
                optimiser.step()

    return train


def noised(gradient: Tensor) -> Tensor:
    """Rows clipped to a norm, plus noise."""
    clipped = gradient * (CLIP / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
    return clipped + NOISE * torch.randn_like(clipped)


def seals(rounds: int) -> Program:
    """Nothing but noised rows: 64 × 64 entries a round."""

    def train(wire: FlowWire) -> None:
        rows = torch.zeros(64, 64)
        other = rows.clone()
        other[3] = 0.1
        secret = wire.private(rows, other)
        for round_ in range(rounds):
            wire.send("rows", secret + 2 * torch.randn(64, 64), round_=round_)

    return train


def trace(program: Program) -> None:
    """One traced run."""
    tracer = Trace()
    with seeded(0), Exits(tracer).followed(), tracer:
        program(TracedWire(tracer, "eavesdropper"))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def plain(program: Program) -> None:
    with seeded(0):
        program(PlainWire())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="rounds of split learning")
    parser.add_argument("--seals", action="store_true", help="300 rounds of 64 × 64 noised entries instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.seals:
        spent = seconds(lambda: print(f"mu {observe(seals(300), 'eavesdropper', 0).loss.mu:.6g}"))
        print(f"300 rounds of 64 × 64 entries, traced, run plainly and solved: {spent:.1f} s, {peak():.0f} MB at most")
        return
    program = split_learning(options.rounds)
    for warm_up in (plain, trace):
        warm_up(split_learning(3))
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: plain(program),
        "taint alone": lambda: trace(split_learning(options.rounds, differs=False)),
        "traced": lambda: trace(program),
        "two plain twins": lambda: [plain_run(program, 0, world=world) for world in (0, 1)],
        "examined": lambda: observe(program, "eavesdropper", 0),
    }
    times = {name: min(seconds(work) for _ in range(_REPEATS)) for name, work in ways.items()}
    print(f"{options.rounds} rounds of split learning, batch {BATCH}")
    for name, spent in times.items():
        print(f"{name:<16}{spent:8.2f} s{spent / times['plain']:8.1f} ×")
    print(f"{peak():.0f} MB of memory at most")


def peak() -> float:
    """The most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
