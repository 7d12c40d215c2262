"""Label inference on real data beside the published figures: VFL-Cascaded Table I, queries, dual variables, and more.

    python benchmarks/attacks.py [table-1 queries duals dpzv dpzv-whole batches completion settings seconds matrix]
                                 [--quick] [--out DIR] [--device cpu]

MNIST and Fashion-MNIST are read from the data folder (`vflpriv data fetch mnist`). `--quick` keeps fewer records, seeds
and rounds: it shows the shape of the figures, not their last digits. `settings` compares completion's default settings
with the published ones, `seconds` prints how long each attack takes on one system, and `matrix` the CPU seconds of
`vflpriv attack` for each attack and system.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from _attack_seconds import attack_seconds
from _completion_attack import completed, settings
from _matrix import matrix
from _scalar_attack import batches, dpzv
from _support import BATCH, arguments, build, one_line

from vflpriv.attacks.label.direct import LabelDirect, LabelDual
from vflpriv.attacks.label.residual import LabelResidual
from vflpriv.attacks.label.trained.completion import Completion
from vflpriv.attacks.label.zo_query import LabelZoQuery
from vflpriv.audits.scoring.labels import draw_auxiliary, label_score
from vflpriv.audits.statistics.significance import mean_interval
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire
from vflpriv.data import loading as datasets
from vflpriv.render.plots.chart import Chart, alone, decades, shares

_PER_RECORD = "one reply per record"
_PER_BATCH = "one mean reply per batch"
Curves = dict[str, list[tuple[int, float]]]
"""By kind of reply, the number of queries and the share of right guesses."""


def seen(system: System, adversary: str, *, conducts: Any = None, kinds: Sequence[str] | None = None) -> View:
    transcript = Transcript(kinds=None if kinds is None else frozenset(kinds))
    engine = system.train([0], conducts=conducts)
    engine.run(Wire(transcript))
    shape = {"devices": system.data.devices, "classes": system.data.classes}
    return View.of(transcript, Adversary.parse(adversary), **shape)


def success(attack: Any, view: View, data: VerticalData) -> float:
    labels = data.labels.to(view.messages[0].records.device)
    nothing = draw_auxiliary(labels, data.classes, per_class=0, seed=0)
    return label_score(attack.run(view, nothing), labels).value


def line(what: str, published: str, rates: Sequence[float]) -> None:
    values = 100 * np.asarray(rates)
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    print(f"  {what:<58} {published:>16}   {values.mean():.1f}{spread}", flush=True)


def table_1(mnist: VerticalData, quick: bool) -> None:
    """Two clients, logits summed, one epoch of batches of 64, five trials."""
    print("VFL-Cascaded Table I: success of direct label inference, %         published   ours")
    rounds, seeds = -(-mnist.records // BATCH), range(2 if quick else 5)
    common = {"rounds": rounds, "batch_size": BATCH, "aggregation": "sum", "device_rate": 1e-3}
    gradients = [build(mnist, "split", seed=s, **common) for s in seeds]
    line(
        "gradients, curious client",
        "100 ± 0.0",
        [success(LabelDirect(), seen(g, "device(0)"), mnist) for g in gradients],
    )
    line(
        "gradients, eavesdropper",
        "100 ± 0.0",
        [success(LabelDirect(), seen(g, "eavesdropper"), mnist) for g in gradients],
    )
    losses = [build(mnist, "syn-zoo-vfl", seed=s, **common) for s in seeds]
    curious = {0: LabelZoQuery.conduct}
    rates = [success(LabelZoQuery(), seen(q, "device(0)", conducts=curious), mnist) for q in losses]
    line("losses, curious client, one query", "11.7 ± 0.07", rates)
    blind = [seen(q, "eavesdropper", kinds=["loss-difference"]) for q in losses]
    line(
        "losses, eavesdropper who reads only the replies",
        "10.0 ± 0.1",
        [success(LabelZoQuery(), v, mnist) for v in blind],
    )
    rates = [success(LabelZoQuery(), seen(q, "eavesdropper"), mnist) for q in losses]
    line("losses, eavesdropper who reads both directions", "not tried", rates)


def queries(mnist: VerticalData, quick: bool) -> Curves:
    print("Success against the number of queries, %                             published   ours")
    part = datasets.load("mnist", devices=2, partition="slices", train=2000 if quick else 20000)
    curves: Curves = {_PER_RECORD: [], _PER_BATCH: []}
    for k in (1, 2, 3, 5, 8, 10):
        rounds = -(-part.records // BATCH)
        system = build(
            part,
            "czofo",
            rounds=rounds,
            batch_size=BATCH,
            aggregation="sum",
            perturbations=k,
            device_rate=1e-3,
            activation="round-robin",
        )
        curves[_PER_RECORD].append((k, success(LabelZoQuery(), seen(system, "devices(all)"), part)))
        line(
            f"{k} queries per record, {_PER_RECORD}",
            "19.8, 100 ✔" if k in (1, 10) else "",
            [curves[_PER_RECORD][-1][1]],
        )
    few = datasets.load("mnist", devices=2, partition="slices", train=BATCH * (2 if quick else 8))
    for k in (1, 10, 64, 320, 640, 800):
        system = build(
            few, "syn-zoo-vfl", rounds=few.records // BATCH, batch_size=BATCH, aggregation="sum", device_rate=1e-6
        )
        view = seen(repeated(system, k), "device(0)", conducts={0: LabelZoQuery.conduct})
        curves[_PER_BATCH].append((k, success(LabelZoQuery(), view, few)))
        line(f"{k} queries per batch of {BATCH}, {_PER_BATCH}", "11.7" if k == 1 else "", [curves[_PER_BATCH][-1][1]])
    return curves


def draw(curves: Curves, path: Path) -> None:
    """Plot the curves."""
    queries = [k for points in curves.values() for k, _ in points]
    chart = Chart(decades(min(queries), max(queries), "queries"), shares(0, 1, "labels guessed"), width=430, height=260)
    for (name, points), colour in zip(curves.items(), ("claimed", "worst-case"), strict=True):
        chart.line(points, colour, label=name)
        for k, rate in points:
            chart.mark(k, rate, "circle", colour)
    chart.line([(min(queries), 0.1), (max(queries), 0.1)], "frame", width=1, dashes="1.5 2", label="chance")
    title = "VFL-Cascaded's curious client on MNIST"
    path.write_text(alone(chart.svg(title, "Labels guessed right by the number of queries.")), encoding="utf-8")
    print(f"  wrote {path}")


def repeated(system: System, times: int) -> System:
    """The same system, with every batch used several times in a row."""
    s = system.schedule
    active = np.repeat(s.active, times, axis=0)
    schedule = replace(s, start=np.repeat(s.start, times), size=np.repeat(s.size, times), active=active)
    return replace(system, schedule=schedule, settings=system.settings.model_copy(update={"rounds": len(active)}))


def duals(mnist: VerticalData, quick: bool) -> None:
    print("VIMADMM, 14 clients, batch 1024, one epoch: success, %                published   ours")
    data = datasets.load("mnist", devices=14, partition="rows", train=mnist.records)
    common = {
        "rounds": -(-data.records // 1024),
        "batch_size": 1024,
        "hidden": (120,),
        "embedding": 60,
        "local_steps": 2,
    }
    for name, noise in (
        ("no label protection", {}),
        ("ALIBI, λ = 2", {"label_protection": "alibi", "label_noise": 2.0}),
    ):
        view = seen(build(data, "vimadmm", **common, **noise), "device(0)")
        line(f"{name}: dual variables", "Lemma 1" if not noise else "", [success(LabelDual(), view, data)])
        line(f"{name}: residuals", "", [success(LabelResidual(), view, data)])


def completion(mnist: VerticalData, quick: bool) -> None:
    """Left and right halves, 40 known labels. Published: CIFAR-10 with ResNet-20, main 0.83, passive 0.80, active 0.85.

    The baseline adversary completes the same bottom as it was before the first round.
    """
    print("Model completion, two halves, 40 known labels: success on training records, %; published 80.2 and 84.8")
    for name in ("mnist",) if quick else ("mnist", "fashion-mnist"):
        data = datasets.load(name, devices=2, partition="patches", train=2000 if quick else 10000)
        settings = {"hidden": (256, 64), "embedding": 32, "top_hidden": (32,), "momentum": 0.9, "weight_decay": 5e-4}
        rounds, rates = 20 * data.records // 32, {"device_rate": 0.005, "server_rate": 0.005}
        system = build(data, "split", rounds=rounds, batch_size=32, **settings, **rates)
        scores = completed(
            system, seeds=2 if quick else 3, settings=Completion(epochs=2, iterations=1024, augment=0.1, tuning=0.01)
        )
        gain = [a.value - p.value for p, a in zip(*scores, strict=True)]
        mean, low, high = mean_interval(gain, 0.95, (-1.0, 1.0))
        print(f"  {name}: active beyond passive {100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]", flush=True)


_PARTS: dict[str, Callable[[VerticalData, bool], Curves | None]] = {
    "table-1": table_1,
    "queries": queries,
    "duals": duals,
    "dpzv": dpzv,
    "dpzv-whole": partial(dpzv, epochs=100, seeds=2, collude=False),
    "batches": batches,
    "completion": completion,
    "settings": settings,
}


@cache
def _mnist(quick: bool) -> VerticalData:
    return datasets.load("mnist", devices=2, partition="slices", train=6000 if quick else 60000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(_PARTS)}, seconds, matrix; all if none is given")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for the curve of success against queries, as a PNG")
    options = arguments(parser)
    own_data: dict[str, Callable[[bool], None]] = {
        "seconds": attack_seconds,
        "matrix": partial(matrix, device=options.device),
    }
    parts = [*_PARTS, *own_data]
    for name in set(options.parts) - set(parts):
        parser.error(f"no part {name!r}: expected some of {', '.join(parts)}")
    for name in options.parts or parts:
        begun = time.perf_counter()
        if name in own_data:
            own_data[name](options.quick)
            curves = None
        else:
            curves = _PARTS[name](_mnist(options.quick), options.quick)
        if curves is not None and options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            draw(curves, options.out / f"{name}.svg")
        print(f"  ({time.perf_counter() - begun:.0f} s)\n", flush=True)


if __name__ == "__main__":
    one_line(main)
