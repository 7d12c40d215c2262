"""Feature inference: MNIST from noised embeddings, equality solving, a column of Adult, few values, membership.

    python benchmarks/feature_attacks.py [mnist esa adult reconstruction membership] [--quick] [--out FOLDER]

MNIST and Adult are read from the data folder (`vflpriv data fetch mnist`). `--out` writes a sheet of originals above
reconstructions for each noise. `--quick` keeps fewer records.
"""

from __future__ import annotations

import argparse
import base64
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from _support import BATCH, one_line
from _support import arguments as chosen
from _support import build as build_any

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.score import Figure
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import find
from vflpriv.core.attack import FeatureAuxiliary
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.data import loading as datasets
from vflpriv.run.summary.budgets import account
from vflpriv.run.summary.cells import sheet

_IN_MESSAGE = (0, 2, 4, 6, 8)
_NOISES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
_MALE = (1, 34)
"""The device that holds it, and the column, of Adult's attributes over three devices."""


def build(data: VerticalData, engine: str, **settings: Any) -> System:
    return build_any(data, engine, **{"batch_size": BATCH, **settings})


def epsilon(system: System, adversary: str) -> float:
    """The accounted ε of one record's block at one device."""
    exposure = system.ledger.exposure(Adversary.parse(adversary), Unit.FEATURES)
    return account(find("accountant", "auto")(), exposure, 1e-5).upper


def tried(
    system: System, names: Sequence[str], adversary: str, *, known: int, victim: int, **more: Any
) -> Sequence[Attempt]:
    trials = Trials(system=system, seeds=1, confidence=0.95, known=known, victim=victim, **more)
    return trials.run([find("attack", name)() for name in names], [Adversary.parse(adversary)])


def mnist(quick: bool, out: Path | None) -> None:
    """Split learning with two devices, each holding half of every picture, against the server."""
    records = 1000 if quick else 4000
    data = datasets.load("mnist", devices=2, partition="rows", keep_shape=True, train=records)
    rounds, known = 3 * records // BATCH, records // 5
    print(
        f"MNIST, {records} records, 2 devices, split learning, 64 wide embeddings clipped to 1, {known} records known"
    )
    print("noise std    ε (features)   attack                     R²    SSIM  [95 % interval]      PSNR")
    names = ["feature_inversion", "feature_inversion_white"]
    for std in _NOISES:
        noise = {"protection": "embedding", "clip": 1.0, "noise_std": std}
        system = build(data, "split", rounds=rounds, embedding=64, device_rate=0.2, server_rate=0.2, **noise)
        halves = [tried(system, names, "server", known=known, victim=m) for m in range(2)]
        for upper, lower in zip(*halves, strict=True):
            scores = [half.mean for half in (upper, lower) if half.mean is not None]
            ssims = [score.figures["ssim"] for score in scores]
            similarity, low, high = (sum(getattr(f, n) for f in ssims) / 2 for n in ("value", "low", "high"))
            value, peak = sum(s.value for s in scores) / 2, sum(s.numbers["psnr"] for s in scores) / 2
            print(
                f"{std:9g}    {epsilon(system, 'server'):12.4g}   {upper.attack:24s}{value:6.3f}   {similarity:.3f}  "
                f"[{low:.3f}, {high:.3f}]     {peak:5.1f}",
                flush=True,
            )
            if out is not None and upper.pictures is not None and lower.pictures is not None:
                _write(out / f"{upper.attack}-{std:g}.png", torch.cat((upper.pictures, lower.pictures), dim=3))


def _write(path: Path, pictures: torch.Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(sheet(pictures.numpy()).partition(",")[2]))


def esa(quick: bool, out: Path | None) -> None:
    """Seven devices against the eighth, with one reply for each record: 9 equations, 8 unknowns."""
    data = datasets.load("digits", devices=8, partition="rows", train=600 if quick else None)
    print(
        "digits, 8 devices of 8 pixels, logistic regression; 7 devices together against the last: 9 equations per reply"
    )
    for engine in ("fdml", "split", "linear-admm"):
        sums = {"aggregation": "sum"} if engine == "split" else {}
        system = build(data, engine, rounds=data.records // BATCH, **sums)
        (result,) = tried(system, ["feature_esa"], "devices(0,1,2,3,4,5,6)", known=100, victim=7)
        if result.mean is None:
            print(f"{engine:12s} {result.refusal}")
        else:
            errors = result.mean.numbers
            print(f"{engine:12s} MSE {errors['error']:.2e}, of the mean {errors['mean_error']:.2e}")


def adult(quick: bool, out: Path | None) -> None:
    """Sex, from the embeddings of the device that holds it (server), and from replies to another device."""
    records = 2000 if quick else 8000
    data = datasets.load("adult", devices=3, train=records)
    victim, column = _MALE
    print(f"Adult, {records} records, 3 devices; sex of 200 people known; AUC, and the same without the protocol")
    for std in (0.0, 0.5, 2.0, 8.0):
        noise = {"protection": "embedding", "clip": 1.0, "noise_std": std}
        rounds = 3 * records // BATCH
        system = build(data, "split", rounds=rounds, embedding=8, device_rate=0.2, server_rate=0.2, **noise)
        for adversary in ("server", "device(0)"):
            names = ["feature_attribute"]
            (result,) = tried(system, names, adversary, known=200, victim=victim, attribute=column)
            leak = result.mean
            if leak is None:
                print(f"noise {std:4g}  {adversary:10s} {result.refusal}")
                continue
            baseline = 0.5 if leak.blind is None else leak.blind
            print(
                f"noise {std:4g}  ε {epsilon(system, adversary):10.4g}  {adversary:10s} AUC {leak.value:.3f} "
                f"[{leak.low:.3f}, {leak.high:.3f}], without the protocol {baseline:.3f}",
                flush=True,
            )


def reconstruction(quick: bool, out: Path | None) -> None:
    """Columns with few values from one message of an unknown linear model: right, wrong and left open."""
    kinds = {"8 of 2 values": [2] * 8, "16 of 2": [2] * 16, "6 of 3": [3] * 6, "4 of 5": [5] * 4, "6 of 17": [17] * 6}
    trials = 5 if quick else 25
    print(f"a message about 64 records, {trials} trials; 100 records known; the shares of columns answered and wrong")
    print("columns          known records in the message: " + "".join(f"{known:>16d}" for known in _IN_MESSAGE))
    for name, sizes in kinds.items():
        line = []
        for known in _IN_MESSAGE:
            counts = torch.stack([_reconstructed(sizes, known, seed) for seed in range(trials)]).sum(0)
            line.append(f"{counts[0] / counts[2]:8.2f} {counts[1] / counts[2]:6.3f} ")
        print(f"{name:47s}" + "".join(line), flush=True)


def _reconstructed(sizes: Sequence[int], known: int, seed: int) -> torch.Tensor:
    """How many columns one message gives away, how many of these answers are wrong, and how many columns there are."""
    generator = torch.Generator().manual_seed(seed)
    powers = torch.rand(len(sizes), generator=generator) + 0.5
    uniform = torch.rand(400, len(sizes), generator=generator) ** powers
    rows = (uniform * torch.tensor(sizes)).floor() / (torch.tensor(sizes) - 1)
    embeddings = rows[:64] @ torch.randn(len(sizes), len(sizes) + 1, generator=generator) + 0.3
    records = torch.cat((torch.arange(known), torch.arange(64, 164 - known)))
    message = Message(
        round=0,
        sender=device(0),
        receiver=SERVER,
        kind="logits",
        tensors={"embedding": embeddings.unsqueeze(0)},
        records=torch.arange(64),
    )
    auxiliary = FeatureAuxiliary(victim=0, records=records, blocks={0: rows[records]})
    view, attack = View(Adversary.parse("server"), (message,), 2), find("attack", "feature_reconstruction")()
    if attack.refusal(view, auxiliary) is not None:
        return torch.tensor([0, 0, len(sizes)])
    guess = attack.run(view, auxiliary).blocks[0]
    answered = (guess != auxiliary.block.double().mean(0)).any(0)
    wrong = answered & ((guess - rows[:64]).abs() > 1e-4).any(0)
    return torch.stack((answered.sum(), wrong.sum(), torch.tensor(len(sizes))))


def membership(quick: bool, out: Path | None) -> None:
    """MNIST over two devices, few records and many epochs: membership inferred from predictions."""
    records = 600 if quick else 2400
    pairs, known = 9 * records // 20, records // 15
    data = datasets.load("mnist", devices=2, partition="rows", train=records)
    print(f"MNIST, {records} records of which {pairs} pairs of candidates, {known} of them known; 3 seeds")
    print("Carlini et al. 2022: LiRA finds 10 times as many members as earlier attacks where errors are few")
    print(
        "engine  epochs  ε (record, model)  attack                AUC [95 % interval]     found at 1 % and 0.1 % errors"
    )
    wide = {"embedding": 64, "device_rate": 0.2, "server_rate": 0.2}
    quiet = {"server_update": "joint", "noise": "calibrated", "epsilon": 1.0, "protect": "model", "embedding": 8}
    for engine, epochs, settings in (
        ("split", 2, wide),
        ("split", 30, wide),
        ("split", 60, wide),
        ("dpzv", 30, quiet),
    ):
        system = build(data, engine, rounds=epochs * records // BATCH, **settings)
        trials = Trials(system=system, seeds=3, confidence=0.95, pairs=pairs, known=known, shadow_models=64)
        attacks = [find("attack", name)() for name in ("feature_membership", "feature_lira", "feature_lira_offline")]
        exposure = trials.membership.trained.ledger.exposure(Adversary.parse("model"), Unit.RECORD)
        budget = account(find("accountant", "auto")(), exposure, 1e-5).upper
        for result in trials.run(attacks, [Adversary.parse("server")]):
            leak = result.mean
            if leak is None:
                print(f"{engine:8s}{epochs:6d}  {result.refusal}")
                continue
            print(
                f"{engine:8s}{epochs:6d}  {budget:12.4g}       {result.attack:20s}  {_shown(leak)}    "
                f"{_shown(leak.figures.get('found'))}  {_shown(leak.figures.get('rarely_found'))}",
                flush=True,
            )


def _shown(figure: Figure | None) -> str:
    """A figure and its interval."""
    return "–" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


PARTS = {"mnist": mnist, "esa": esa, "adult": adult, "reconstruction": reconstruction, "membership": membership}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = chosen(parser)
    for name in arguments.parts or PARTS:
        start = time.perf_counter()
        PARTS[name](arguments.quick, arguments.out)
        print(f"({time.perf_counter() - start:.0f} s)\n")


if __name__ == "__main__":
    one_line(main)
