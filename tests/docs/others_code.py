"""Other people's code under the tracer: small trainings with published classes as they are, and what the trace says.

Each program is ours; what it calls is theirs, or, of a library that is not installed, the same steps written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.mutations.flow.program import Examined, gdp
from tests.mutations.flow.table import read_traced
from vflpriv.audits.flow.plain.wire import FlowWire, Program

__all__ = ["END", "START", "table"]

START, END = "<!-- others: begin -->", "<!-- others: end -->"
_RATE, _SIZES = 16, (65, 64)
_CLAIM = gdp(1.0)
KNOWN = {
    "optimiser-of-opacus": "Opacus: `DPOptimizer`, unchanged",
    "optimiser-of-opacus-without-noise": "Opacus: `DPOptimizer` with a noise multiplier of 0",
    "private-mean": "class of fault: statistics of private data are used as public",
    "scaled-by-private-extremes": "class of fault: the domain is inferred from private data",
    "odometer-counts-every-second-query": "class of fault: a budget is spent twice",
    "nan-where-the-loss-is-undefined": "class of fault: numbers that are none get through",
    "multiplier-without-the-clip": "class of fault: the noise is not scaled by the sensitivity",
    "lower-bound-taken-twice": "class of fault: the sensitivity is wrong (diffprivlib, issue 104)",
    "noise-divided-by-the-workers": "class of fault: workers share the noise (Opacus, pull request 196)",
}
"""Programs of `tests/mutations/flow/` whose results are kept there, and what each stands for."""

_PROMISED = {"sound": "the budget of its noise, which holds", "broken": "the budget of its noise, which does not hold"}


@dataclass(frozen=True)
class _Row:
    program: str
    claim: str
    verdict: str
    shown: str


def _records(wire: FlowWire) -> int:
    """How many records there are: one more in the first world."""
    present = wire.private(
        torch.ones(_SIZES[0]), (torch.arange(_SIZES[0]) < _SIZES[1]).float(), what="records", owner="server"
    )
    return int(present.sum())


def _gradient(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.detach() for name, p in model.named_parameters() if p.grad is not None}


def opacus_engine(wire: FlowWire) -> None:
    """One step behind Opacus's `PrivacyEngine`: its expected batch size is `int(len(dataset) * rate)`."""
    from opacus import PrivacyEngine

    features = torch.linspace(-1, 1, _SIZES[0]).unsqueeze(1)[: _records(wire)]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features), batch_size=_RATE)
    model = nn.Linear(1, 1)
    model, optimiser, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    model(features[:4]).sum().backward()
    optimiser.step()
    wire.send("gradient", _gradient(model), sender="server", receiver=0, round_=0)


def adaptive_clip(wire: FlowWire) -> None:
    """One step of Opacus's `AdaClipDPOptimizer`: the share of unclipped gradients is of the exact batch size."""
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import AdaClipDPOptimizer

    features = torch.linspace(-1, 1, _SIZES[0]).unsqueeze(1)[: _records(wire)]
    model = GradSampleModule(nn.Linear(1, 1))
    optimiser = AdaClipDPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=1e4,
        min_clipbound=1e-4,
        unclipped_num_std=10.0,
        max_grad_norm=1.0,
        expected_batch_size=_SIZES[1],
    )
    model(features).sum().backward()
    optimiser.step()
    wire.send("clip", torch.as_tensor(optimiser.max_grad_norm).reshape(1), sender="server", receiver=0, round_=0)


def vertical_example(wire: FlowWire) -> None:
    """The steps of Flower's vertical example: three clients' embeddings go up, gradients of the loss come down."""
    labels = (torch.arange(32) % 2).float()
    other = labels.clone()
    other[0] = 1 - other[0]
    private = wire.private(labels, other, what="labels", owner="server").unsqueeze(1)
    bottoms, top = [nn.Linear(5, 4) for _ in range(3)], nn.Sequential(nn.Linear(12, 1), nn.Sigmoid())
    features = [torch.linspace(-1, 1, 160).reshape(32, 5) * (m + 1) for m in range(3)]
    sent = [
        wire.send("embedding", bottom(block).detach(), sender=m, receiver="server", round_=0)
        for m, (bottom, block) in enumerate(zip(bottoms, features, strict=True))
    ]
    joined = torch.cat(sent, dim=1).requires_grad_()
    nn.functional.binary_cross_entropy(top(joined), private).backward()
    assert joined.grad is not None
    for m, gradient in enumerate(joined.grad.split(4, dim=1)):
        wire.send("gradient", gradient, sender="server", receiver=m, round_=0)


def expected_batch_sizes() -> tuple[int, int]:
    """What Opacus takes for the expected batch size of the two worlds."""
    from opacus import PrivacyEngine

    sizes = []
    for records in _SIZES:
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(records, 1)), batch_size=_RATE)
        model = nn.Linear(1, 1)
        _, optimiser, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        sizes.append(int(optimiser.expected_batch_size))
    return sizes[0], sizes[1]


def _line(found: re.Match[str]) -> str:
    """The line itself, whose number changes as this file is edited."""
    return f"`{Path(__file__).read_text('utf-8').splitlines()[int(found[1]) - 1].strip()}`"


def _examined(name: str, promised: str, program: Program, note: str = "") -> _Row:
    finding = Examined(program, _CLAIM).finding
    said = re.sub(r"[\w./-]*others_code\.py:(\d+)", _line, finding.sentence)
    return _Row(name, promised, finding.verdict.value, "; ".join(part for part in (said, note) if part))


def rows() -> Iterator[_Row]:
    """What was run here, and what is kept of the programs of the mutation suite."""
    first, second = expected_batch_sizes()
    yield _examined(
        "Opacus 1.6: `PrivacyEngine.make_private`",
        "a record more or less is hidden by the noise",
        opacus_engine,
        f"`int(len(dataset) * rate)` is {first} with {_SIZES[0]} records and {second} with {_SIZES[1]}: the noise on "
        f"the mean gradient is {max(first, second) / min(first, second):.2f} times as large",
    )
    yield _examined("Opacus 1.6: `AdaClipDPOptimizer`", "the number of unclipped gradients is noised", adaptive_clip)
    yield _examined("Flower: `examples/vertical-fl`, its steps", "none; read as μ = 1", vertical_example)
    kept = {result.name: result for result in read_traced()}
    for name, stands_for in KNOWN.items():
        result = kept[name]
        yield _Row(f"{stands_for} (`{name}`)", _PROMISED[result.truth], result.verdict, result.rule)


def table() -> str:
    """The table of the documentation."""
    lines = ["| program | what is promised | verdict | what the trace shows |", "|---|---|---|---|"]
    for row in rows():
        shown = row.shown.replace("|", "/").replace("\n", " ")
        lines.append(f"| {row.program} | {row.claim} | {row.verdict} | {shown} |")
    return "\n".join(lines)
