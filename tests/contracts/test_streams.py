"""Random streams: all are declared public or secret where they are named, and secret ones come from the key."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support import ENGINES, make_system
from vflpriv.common.random import Randomness, Stream
from vflpriv.common.registry import available
from vflpriv.common.seeds import STREAMS, SecretKey
from vflpriv.core.systems import System
from vflpriv.core.wire import Transcript, Wire

ROOT = Path(__file__).parents[2]
_NAMED = {
    "of": 1,
    "host_generator": 1,
    "derive": 1,
    "derived": 0,
    "generator": 0,
    "stream": 0,
    "public_stream": 0,
    "streams": 0,
}
"""Functions that are told the name of a stream, and the place of that argument."""
_FROM_SEEDS = {"of", "host_generator", "derive", "public_stream"}
"""Those that draw from a seed, which is no secret."""
_ALLOWED = {
    ("vflpriv/core/schedules.py", "batches"): "schedules are drawn from the seed, and again from the key of a training",
    ("vflpriv/data/noise.py", "features"): "the noise of an audit, which has no key",
}
PROTECTED = {
    "split-sum-rr": ("split-sum", {"label_protection": "rr"}),
    "split-sum-alibi": ("split-sum", {"label_protection": "alibi"}),
    "split-sum-subset": ("split-sum", {"label_protection": "subset"}),
    "split-sum-stages": ("split-sum", {"label_protection": "lp-mst"}),
    "split-sum-guarded": ("split-sum", {"gradient_clip": 1.0, "gradient_noise_std": 0.5}),
    **{f"split-sum-{name}": ("split-sum", {"defence": name}) for name in ("laplace", "max-norm", "ppdl")},
}


def named_streams() -> Iterator[tuple[str, str, str]]:
    """File, function and name of every stream that the program names in its text."""
    for folder in ("vflpriv", "training", "audits", "attacks", "accountants"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(call, ast.Call):
                    continue
                function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                place = _NAMED.get(function)
                if function == "of" and not (isinstance(call.func, ast.Attribute) and _is_stream(call.func.value)):
                    continue
                if place is not None and len(call.args) > place and isinstance(call.args[place], ast.Constant):
                    yield str(path.relative_to(ROOT)), function, str(call.args[place].value)


def _is_stream(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "Stream"


def test_every_stream_that_is_named_is_declared_and_secret_ones_are_never_drawn_from_a_seed() -> None:
    named = list(named_streams())
    assert len(named) > 60
    undeclared = [line for line in named if line[1] != "derived" and line[2] not in STREAMS]
    assert not undeclared
    wrong = [
        (file, name)
        for file, function, name in named
        if function in _FROM_SEEDS and STREAMS[name].secret and (file, name) not in _ALLOWED
    ]
    assert not wrong
    assert {name for _, _, name in named} >= set(STREAMS) - {"noise"}, "a declared stream that nobody draws from"


_SOURCES = {"default_rng", "RandomState", "Philox", "PCG64", "SystemRandom", "urandom", "token_bytes", "Generator"}
_GLOBAL = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "bernoulli", "multinomial", "dropout"}
_IN_PLACE = {"normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_", "geometric_", "log_normal_"}
_HOMES = {
    "vflpriv/common/seeds.py": "where streams and keys come from",
    "vflpriv/common/files.py": "the key of a user's stored results",
    "vflpriv/data/files.py": "which rows of a file are test records, which everybody may know",
}


def other_sources() -> Iterator[str]:
    """Where trainings draw from something that is no stream: a generator of their own, or the global one."""
    for folder in ("training", "vflpriv/laws", "vflpriv/data", "vflpriv/core", "vflpriv/common"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
            imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
            owners = {"np.random"} | {"random", "secrets"} & imported
            for call in nodes:
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                name, owner = call.func.attr, ast.unparse(call.func.value)
                drawn = name in _GLOBAL and owner.startswith(("torch", "functional", "F"))
                if drawn or name in _SOURCES | _IN_PLACE or owner in owners:
                    yield str(path.relative_to(ROOT))


def test_trainings_draw_from_streams_alone() -> None:
    assert set(other_sources()) == set(_HOMES)


class _Listener:
    """Notes the names of all streams that are made, and whether they come from a seed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seeded: set[str] = set()
        of, stream = Stream.of.__func__, Randomness.stream  # type: ignore[attr-defined]
        self.asked: set[str] = set()

        def noted_of(cls: type[Stream], seed: object, name: str, *others: object) -> Stream:
            self.seeded.add(name)
            return of(cls, seed, name, *others)

        def noted_stream(randomness: Randomness, name: str, *others: object) -> object:
            self.asked.add(name)
            return stream(randomness, name, *others)

        monkeypatch.setattr(Stream, "of", classmethod(noted_of))
        monkeypatch.setattr(Randomness, "stream", noted_stream)


def test_every_engine_is_run() -> None:
    assert {name for name, _ in ENGINES.values()} >= set(available("engine"))


def with_key(system: System) -> System:
    object.__setattr__(system, "secret_key", SecretKey.fresh())
    return system


@pytest.mark.parametrize("variant", [*ENGINES, *PROTECTED])
def test_secret_streams_of_an_engine_come_from_its_key(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, changes = PROTECTED.get(variant, (variant, {}))
    listener = _Listener(monkeypatch)
    system = with_key(make_system(base, rounds=2, **changes))
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    system.train([0]).run(Wire(Transcript()))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    assert (torch.equal(before[0], after[0]), before[1:]) == (True, after[1:]), "global generators are no streams"
    assert listener.seeded | listener.asked <= set(STREAMS)
    assert not [name for name in listener.seeded if STREAMS[name].secret]
    if "noise" in variant or "client" in variant or variant in PROTECTED:
        assert [name for name in listener.asked if STREAMS[name].secret]
    assert set(system.secret_draws) == {name for name in listener.asked if STREAMS[name].secret}


def test_the_seed_of_a_secret_training_inverts_no_label() -> None:
    """Two trainings of the same seed draw other labels, and what the seed would draw is neither of them."""
    systems = [make_system("split-sum", label_protection="rr", secure_noise=True) for _ in range(2)]
    every = torch.arange(60)
    first, again = (system.train([0]).data.labels_of(every) for system in systems)
    seeded = make_system("split-sum", label_protection="rr").train([0]).data.labels_of(every)
    for drawn in (again, seeded):
        assert not torch.equal(first, drawn)
    assert torch.equal(first, systems[0].train([0]).data.labels_of(every)), "the trainings of one audit share a key"


def test_secret_batches_are_those_of_the_key_where_sampling_may_amplify() -> None:
    for batching, sampled in (("poisson", True), ("fixed", True), ("shuffle", False), ("full", False)):
        schedule = make_system("dpzv-joint", schedule=batching).schedule
        first, again, other = (
            schedule.with_batches_of(key.generator("batches")).order.tolist()
            for key in (SecretKey(bytes(32)), SecretKey(bytes(32)), SecretKey(bytes(31) + b"1"))
        )
        assert first == again
        assert (first != other) is sampled
        assert (first != schedule.order.tolist()) is sampled
