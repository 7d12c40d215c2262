"""Whole audits for `make fuzz`: a case says what is recorded and what the ledger claims, and `check` what must hold.

A case is JSON: the sizes of a training, its kinds of messages, and a ledger as a tree. Transcripts are written by the
public recorder, so that cases follow the format of the day. `mutate` changes a case mostly within what is valid. Of
every audit that is not refused by one line it is checked that

* the report can be read again, and its exit code follows from its verdicts;
* a release less, and noise that is wider, never raise what is accounted;
* nothing else is raised, and the limit of time is kept.
"""

from __future__ import annotations

import copy
import json
import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit

import vflpriv
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.audits.verdict import exit_code
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Ledger
from vflpriv.core.systems import Source
from vflpriv.errors import InputError
from vflpriv.laws import Gaussian, Laplace
from vflpriv.report.audit import read_report

__all__ = ["CORPUS", "SECONDS", "build", "check", "check_bytes", "mutate", "mutated_bytes"]

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "recording" / "cases"
SECONDS = 120
"""How long one case may take, on a busy machine."""
_UNITS = ("label", "record", "features", "add-remove", "client", "client-zero")
_VIEWS = ("device", "device(0)", "devices(all)", "devices(0, 1)", "eavesdropper", "server", "model", "outsider")
_NUMBERS = (0, 1, 2, 3, 5, 7, 12, 0.1, 0.5, 1.5, 1e-3, 1e-5, 1e-30, 1e6, 1e30)
_WORDS: Mapping[str, Sequence[Any]] = {
    "kind": ("logits", "zo-scalar", "gradients", "embeddings", "hello", "own-kind"),
    "fill": ("normal", "zeros", "labels", "large", "tiny", "nan", "inf", "integers"),
    "shape": ("rows", "scalar", "vector", "empty"),
    "noise": ("gaussian", "laplace", "rr", "none", "discrete-gaussian", "discrete-laplace", "exponential", "opaque"),
    "batching": ("poisson", "fixed", "shuffle", "full"),
    "unit": _UNITS,
    "view": _VIEWS,
    "attack": ("label_direct", "label_norm", "label_batch"),
    "precision": ("full", "half"),
    "seen_by": (["server"], ["server", "eavesdropper"], ["device", "devices"], ["model"], ["outsider"]),
    "public": ([], ["hello"], ["logits", "hello"]),
    "independent_of": ([], ["label"], ["features", "label"], ["client"]),
    "sensitivity": ({"label": 1.0}, {"record": 2.0, "label": 0.5}, {"features": "unbounded"}, {"add-remove": 0.5}),
}
"""What stands under a name in a case: mostly valid values."""
_SMALL = {
    "devices": (1, 3),
    "records": (1, 24),
    "rounds": (1, 6),
    "batch": (1, 12),
    "classes": (2, 4),
    "features": (0, 4),
}
_OPTIONAL: Mapping[str, Sequence[Any]] = {
    "tuning_runs": (0, 1, 3),
    "model_follows_releases": (True, False),
    "leak": ({"carrier": "the model", "sensitivity": {"label": 2.0}}, {"carrier": "m", "sensitivity": {"record": 1.0}}),
    "reaches_all": (True, False),
    "once": (True, False),
    "additive": (True, False),
    "fresh": (True, False),
    "delta": (1e-9, 1e-5, 0.1),
    "scale": _NUMBERS,
    "epsilon": _NUMBERS,
    "mu": (0.1, 1.0, 5.0),
}
_EXTRAS: Mapping[str, Sequence[str]] = {
    "release": ("leak", "reaches_all", "once", "additive", "fresh", "scale"),
    "claim": ("delta", "epsilon", "mu"),
    "ledger": ("tuning_runs", "model_follows_releases"),
}
"""What may stand beside the values of a part of the ledger."""
_ODD = (None, "", "\x1b[2J", -1, 10**30, float("nan"), float("inf"), [], {}, True, "a" * 300, "../x", "device(9)")


def mutate(case: Any, rng: random.Random) -> Any:
    """The case with one to three changes: other values, an entry more or less, seldom something odd."""
    changed = copy.deepcopy(case)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(changed))
        if not places:
            return changed
        holder, key = rng.choice(places)
        name = key if isinstance(key, str) else ""
        way = rng.random()
        if way < 0.03:
            holder[key] = rng.choice(_ODD)
        elif way < 0.15 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
        elif way < 0.22:
            del holder[key]
        elif way < 0.4 and isinstance(holder, dict) and (extras := _EXTRAS.get(_sort(holder))):
            extra = rng.choice(extras)
            holder[extra] = copy.deepcopy(rng.choice(_OPTIONAL[extra]))
        elif name in _SMALL:
            holder[key] = rng.randint(*_SMALL[name])
        elif name in _WORDS or name in _OPTIONAL:
            holder[key] = copy.deepcopy(rng.choice((_WORDS | _OPTIONAL)[name]))
        elif isinstance(holder[key], bool):
            holder[key] = not holder[key]
        elif isinstance(holder[key], int | float):
            holder[key] = rng.choice([*_NUMBERS, holder[key] * 2, holder[key] / 3])
    return changed


def _sort(holder: Mapping[str, Any]) -> str:
    """Which part of a ledger this is."""
    return "release" if "noise" in holder else "claim" if "view" in holder else "ledger" if "release" in holder else ""


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a tree, by what holds it and its key."""
    for key, value in list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def mutated_bytes(data: bytes, size: int, seed: int) -> bytes:
    """As atheris asks for it: another case of at most so many bytes; the first of the corpus if this is none."""
    rng = random.Random(seed)
    try:
        case = json.loads(data)
        assert isinstance(case, dict)
    except (ValueError, AssertionError, RecursionError):
        case = json.loads(sorted(CORPUS.glob("*.json"))[0].read_bytes())
    changed = json.dumps(mutate(case, rng)).encode()
    return changed if len(changed) <= size else data[:size]


def build(case: Mapping[str, Any], folder: Path) -> tuple[Path, Path]:
    """Record the training and write the ledger; whatever a case asks for that the recorder refuses is refused."""
    import torch

    sizes = {name: int(case.get(name, low)) for name, (low, _) in _SMALL.items()}
    if any(size > 64 for size in sizes.values()):
        raise InputError("case", sizes, "a small training")
    generator = torch.Generator().manual_seed(int(case.get("seed", 0)))
    labels = torch.arange(sizes["records"]) % sizes["classes"]
    canaries = members = None
    if case.get("canaries"):
        labels, canaries = vflpriv.plant(labels, classes=sizes["classes"], canaries=int(case["canaries"]), seed=1)
    if case.get("members"):
        members = vflpriv.plant_members(records=sizes["records"], canaries=int(case["members"]), seed=1)[1]
    transcript, ledger = folder / "transcript", folder / "ledger.toml"
    with vflpriv.record(
        transcript,
        devices=sizes["devices"],
        classes=sizes["classes"],
        records=sizes["records"],
        precision=case.get("precision", "full"),
    ) as wire:
        wire.labels(labels, canaries=canaries)
        if members is not None:
            wire.members(members)
        for m in range(sizes["devices"] if sizes["features"] else 0):
            wire.features(m, torch.randn(sizes["records"], sizes["features"], generator=generator), sensitive_column=0)
        for round_ in range(sizes["rounds"]):
            ids = torch.randperm(sizes["records"], generator=generator)[: sizes["batch"]]
            for m, message in ((m, message) for m in range(sizes["devices"]) for message in case.get("messages", [])):
                send = wire.up if message.get("up") else wire.down
                tensor = _tensor(message, labels[ids], sizes["classes"], generator)
                of_batch = message.get("shape", "rows") != "vector"
                send(round_, m, message["kind"], {message.get("tensor", "x"): tensor}, *([ids] if of_batch else []))
    ledger.write_text(tomlkit.dumps(dict(case.get("ledger", {}))), encoding="utf-8")
    return transcript, ledger


def _tensor(message: Mapping[str, Any], labels: Any, classes: int, generator: Any) -> Any:
    import torch

    shapes = {"rows": (len(labels), classes), "scalar": (), "vector": (3,), "empty": (0, classes)}
    shape = shapes[message.get("shape", "rows")]
    values = torch.randn(shape, generator=generator)
    fills = {"large": 1e30, "tiny": 1e-30, "nan": float("nan"), "inf": float("inf"), "zeros": 0.0}
    fill = message.get("fill", "normal")
    if fill == "labels" and len(shape) == 2 and shape[0] == len(labels):
        return torch.nn.functional.one_hot(labels, classes).float()
    if fill == "integers":
        return values.mul(5).long()
    return torch.full(shape, fills[fill]) if fill in fills else values


def check(case: Any, folder: Path) -> bool:
    """True if the case is audited and all that must hold holds; False if it is refused in one line."""
    with _limit(SECONDS):
        try:
            if not isinstance(case, Mapping):
                raise InputError("case", case, "an object")
            transcript, ledger = build(case, folder)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError, RuntimeError):
            return False  # no training that anybody recorded: the case itself is odd
        try:
            out = folder / "out"
            report = vflpriv.audit(transcript=transcript, ledger=ledger, out=out, formats=("json", "md"), quiet=True)
            (source,) = (source for source, _ in vflpriv.api.accounting(transcript=transcript, ledger=ledger).systems)
        except InputError as error:
            line = str(error)
            assert "\n" not in line, line
            assert line.isprintable(), ascii(line)
            return False
        _check_report(report, out)
        _check_accounting(source)
        return True


def _check_report(report: Any, out: Path) -> None:
    assert report.exit_code in (0, 1, 3), report.exit_code
    again = read_report(out / "report.json")
    assert again.exit_code == report.exit_code
    assert again.verdicts == report.verdicts
    lowest = exit_code(report.verdicts)
    # Premises without a claim may add to what the verdicts on claims say, and never take away from it.
    assert report.exit_code == 1 or (lowest in (0, report.exit_code)), (lowest, report.exit_code)
    assert "\x1b" not in (out / "report.md").read_text(encoding="utf-8")


def _check_accounting(source: Source) -> None:
    """A release less, and wider noise, never cost more than what is accounted for all."""
    for claim in source.claims:
        upper = _bounds(source.ledger, claim)[1]
        releases = source.ledger.releases
        for number, release in enumerate(releases):
            before, after = releases[:number], releases[number + 1 :]
            fewer = _bounds(replace(source.ledger, releases=before + after), claim)[0]
            assert fewer <= upper * (1 + 1e-6), f"{claim.key}: {fewer} without {release.kind}, {upper} with it"
            wider = _WIDER.get(type(release.noise), lambda law: law)(release.noise)
            quieter = _bounds(replace(source.ledger, releases=(*before, replace(release, noise=wider), *after)), claim)[
                0
            ]
            assert quieter <= upper * (1 + 1e-6), f"{claim.key}: {quieter} with wider {release.kind}, {upper} as it is"


_WIDER: Mapping[type, Callable[[Any], Any]] = {
    Gaussian: lambda law: replace(law, std=2 * law.std),
    Laplace: lambda law: replace(law, scale=2 * law.scale),
}
"""Noise of twice the size, of the laws whose size is one number."""


def _bounds(ledger: Ledger, claim: Claim) -> tuple[float, float]:
    """The certified lower and upper ε of what the claim is about; nothing is lost where nothing is bounded."""
    exposure = ledger.exposure(claim.adversary, claim.unit)
    accountant = AutoAccountant()
    if exposure.not_applicable is not None or accountant.supports(exposure) is not None:
        return 0.0, float("inf")
    budget = accountant.budget(exposure, claim.delta)
    assert budget.lower <= budget.upper * (1 + 1e-9), budget
    return budget.lower, budget.upper


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise where a case takes longer; atheris has a limit of its own."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"Expected a case to take at most {seconds} s.")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_bytes(content: bytes, _: Path) -> None:
    """As a target of tools/fuzz.py: a case as JSON."""
    try:
        case = json.loads(content)
    except (ValueError, RecursionError):
        return
    with tempfile.TemporaryDirectory() as folder:
        check(case, Path(folder))
