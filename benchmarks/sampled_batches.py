"""Whether steps over sampled batches, which devices never learn, serve `send-once` better than steps over all records.

MNIST, pixels as they are, rows of norm 1, a linear model; clipped and noised gradients, replace-one, δ = 1e-5. Either
way has the noise that the accountant finds for it, with amplification where batches are sampled, and the best of three
settings on 6,000 validation records. No test record is read.

    python benchmarks/sampled_batches.py [--epsilon 0.5 2 8] [--out benchmarks/results/sampled-batches.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from _support import one_line
from torch import Tensor

from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.calibration import calibrate_noise
from vflpriv.config.models import Config, DataConfig, SystemConfig
from vflpriv.core.ledger import Exposure, Reading
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.worst_case import Event, Sampling
from vflpriv.laws import Gaussian
from vflpriv.run.systems import load_data

__all__: list[str] = []

_CLIP, _MOMENTUM, _DELTA = 0.3, 0.9, 1e-5
_RATES = (1.0, 0.25)
_TRIES = {1.0: ((20, 20.0), (60, 40.0), (100, 80.0)), 0.25: ((60, 40.0), (240, 10.0), (240, 40.0))}
"""Steps and learning rates by the share of records in a step."""


def _noise(epsilon: float, steps: int, rate: float, records: int) -> float:
    """The std of the noise on the mean of a step's clipped gradients."""
    moved = 2 * _CLIP / (rate * records)

    def exposure(std: float) -> Exposure:
        sampling = Sampling("poisson", rate) if rate < 1 else None
        event = Event(kind="step", noise=Gaussian(std * moved), sensitivity=moved, count=steps, sampling=sampling)
        view = Adversary.parse("devices(all)")
        return Exposure(unit=Unit.RECORD, adversary=view, reading=Reading.RIGOROUS, batches="", events=(event,))

    return moved * calibrate_noise(exposure, epsilon=epsilon, delta=_DELTA, accountant=AutoAccountant())


def _trained(rows: Tensor, labels: Tensor, steps: int, rate: float, learning_rate: float, std: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    weight, velocity = torch.zeros(rows.shape[1], 10), torch.zeros(rows.shape[1], 10)
    targets = torch.nn.functional.one_hot(labels, 10).float()
    for _ in range(steps):
        inside = torch.rand(len(rows), generator=generator) < rate
        batch, target = (rows, targets) if rate == 1 else (rows[inside], targets[inside])
        slopes = torch.softmax(batch @ weight, 1) - target
        slopes *= (_CLIP / slopes.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        gradient = (slopes.T @ batch).T / (rate * len(rows))
        velocity = _MOMENTUM * velocity + gradient + std * torch.randn(weight.shape, generator=generator)
        weight -= learning_rate * velocity
    return weight


def _rows(blocks: tuple[Tensor, ...]) -> Tensor:
    pixels = torch.nn.functional.normalize(torch.cat([block.flatten(1) for block in blocks], dim=1), dim=1)
    return torch.cat((torch.ones(len(pixels), 1), pixels), dim=1) * 0.5**0.5


def main() -> None:
    """Print, and store, the best accuracy on validation records of either way at each ε."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 2.0, 8.0])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    section = SystemConfig(key="once", engine={"name": "send-once"})
    data = load_data(Config(data=DataConfig(name="mnist", devices=7, validation=0.1), system=(section,)))
    rows, held, kept = _rows(data.blocks), _rows(data.validation_blocks), data.validation_labels
    results = []
    for epsilon in chosen.epsilon:
        best = {}
        for rate in _RATES:
            reached = []
            for steps, learning_rate in _TRIES[rate]:
                std = _noise(epsilon, steps, rate, len(rows))
                weight = _trained(rows, data.labels, steps, rate, learning_rate, std)
                reached.append(float(((held @ weight).argmax(1) == kept).float().mean()))
            best[rate] = max(reached)
            print(f"epsilon {epsilon:g}, share of records {rate:g}: {reached}", flush=True)
        results.append({"epsilon": epsilon, "all_records": round(best[1.0], 6), "sampled": round(best[0.25], 6)})
    if chosen.out is not None:
        asked = " ".join(f"{epsilon:g}" for epsilon in chosen.epsilon)
        facts = {"command": f"python benchmarks/sampled_batches.py --epsilon {asked}", "share": _RATES[1]}
        text = json.dumps({**facts, "validation": len(kept), "results": results}, indent=1)
        chosen.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    one_line(main)
