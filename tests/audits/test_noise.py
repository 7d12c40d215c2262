"""The noise audit: sound engines pass, every wrong noise is caught, false alarms are as rare as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from tests.support import make_system
from vflpriv.audits.noise import NoiseAudit, examine
from vflpriv.audits.statistics.noise_tests import (
    anderson_darling,
    anderson_darling_limit,
    correlation,
    like_pairs,
    scale,
)
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.core.systems import System
from vflpriv.core.wire import Payload
from vflpriv.training.engines.dpzv import Dpzv
from vflpriv.training.engines.split import Split
from vflpriv.training.mechanisms.base import NoiseSource


def broken(variant: str, base: type, **attributes) -> System:
    """One of the support's systems with another engine class in its place."""
    return replace(make_system(variant, rounds=40, seed=3), engine=type("Broken", (base,), attributes))


def after_setup(change):
    """An engine whose setup is followed by this change."""

    def setup(self) -> None:
        super(type(self), self).setup()
        change(self)

    return {"setup": setup}


class Odd(NoiseSource):
    """A noise source with another law, or an address of its own."""

    def __init__(self, stream, change, address=lambda round_: round_) -> None:
        super().__init__(stream, secure=False)
        self.change, self.address = change, address

    def scalar(self, round_):
        return self.change(super().scalar(self.address(round_)))

    def tensor(self, shape, round_, party):
        return self.change(super().tensor(shape, self.address(round_), party))


def odd(change=lambda z: z, address=lambda round_: round_):
    return sourced(lambda self: Odd(self.stream("noise"), change, address))


def laplace(z):
    uniform = torch.special.ndtr(z.double()).clamp(1e-12, 1 - 1e-12) - 0.5
    return (-uniform.sign() * torch.log1p(-2 * uniform.abs()) / 2**0.5).float()


def uniform(z):
    return ((2 * torch.special.ndtr(z) - 1) * 3**0.5).float()


class Restarting(NoiseSource):
    """Counts its draws instead of reading the round: after a resume it begins again."""

    def __init__(self, stream) -> None:
        super().__init__(stream, secure=False)
        self.drawn = -1

    def scalar(self, round_):
        self.drawn += 1
        return super().scalar(self.drawn)


def continued(self, round_):
    """The number that comes behind the direction of the round's device."""
    (m,) = self.schedule.members(round_)
    shapes = self.bank.models[m].shapes.values()
    size = sum(4 * -(-int(np.prod(shape)) // 4) for shape in shapes)
    return self.stream("directions").normal(4, round_, m, first=size // 4)[:, 0]


class Continued:
    def __init__(self, engine) -> None:
        self.engine = engine

    def scalar(self, round_):
        return continued(self.engine, round_)


def _same_devices(engine) -> None:
    source = NoiseSource(engine.stream("noise"), secure=False)
    draw = source.tensor
    source.tensor = lambda shape, round_, party: draw(shape, round_, 0)  # type: ignore[method-assign]
    engine.release_points[0].noise = source


def sourced(make):
    """An engine with another noise source."""
    return after_setup(lambda self: setattr(self.release_points[0], "noise", make(self)))


SHARED = sourced(lambda self: NoiseSource(self.stream("directions"), secure=False))
RESTARTING = sourced(lambda self: Restarting(self.stream("noise")))
WRONG = {
    "half": ("dpzv-joint", Dpzv, odd(lambda z: 0.5 * z), "scale"),
    "laplace": ("dpzv-joint", Dpzv, odd(laplace), "law"),
    "uniform": ("dpzv-joint", Dpzv, odd(uniform), "law"),
    "reused": ("dpzv-joint", Dpzv, odd(address=lambda round_: round_ // 2), "rounds"),
    "equal replicas": ("dpzv-joint", Dpzv, odd(lambda z: z[:1].expand_as(z)), "replicas"),
    "resumed": ("dpzv-joint", Dpzv, RESTARTING, "resume"),
    "shared stream": ("dpzv-joint", Dpzv, SHARED, "public"),
    "behind the direction": ("dpzv-joint", Dpzv, sourced(Continued), "public"),
    "equal devices": ("split-embedding", Split, after_setup(_same_devices), "devices"),
    "equal rows": ("split-embedding", Split, odd(lambda z: z[:, :1].expand_as(z)), "entries"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_wrong_noise_is_caught_by_the_test_for_it(name):
    variant, base, change, test = WRONG[name]
    (finding,) = NoiseAudit().measure(broken(variant, base, **change))
    assert not finding.holds
    assert test in {t.name for t in finding.rejected}, finding.sentence
    assert test in finding.sentence


def test_half_the_noise_is_measured_as_half():
    (finding,) = NoiseAudit().measure(broken("dpzv-joint", Dpzv, **odd(lambda z: 0.5 * z)))
    assert finding.low < 0.5 < finding.high
    assert finding.high < 0.6


def test_a_message_without_its_noise_is_caught():
    def serve(self, round_, records, uplinks):
        replies = Dpzv.serve(self, round_, records, uplinks)
        return {m: Payload(p.kind, {"delta": p.tensors["delta"].clone()}) for m, p in replies.items()}

    (finding,) = NoiseAudit().measure(broken("dpzv-joint", Dpzv, serve=serve))
    assert not finding.holds
    assert finding.sentence == "40 zo-scalar messages do not carry the value that their mechanism released"


SLOWER = ("dpzv-dp-sgd", "vimadmm-client", "vafl-noise", "zoo-vfl-embedding", "czofo-embedding", "fdml-client")


@pytest.mark.parametrize(
    "variant", ["dpzv-joint", "split-embedding", *(pytest.param(v, marks=pytest.mark.slow) for v in SLOWER)]
)
def test_sound_engines_pass(variant):
    findings = NoiseAudit().measure(make_system(variant, rounds=40))
    assert findings
    assert all(f.holds for f in findings), [f.sentence for f in findings]
    assert all(f.low < 1.1 and f.high > 0.9 for f in findings)


def test_secure_noise_passes_and_no_noise_is_not_asked_about():
    (finding,) = NoiseAudit().measure(make_system("dpzv-joint", rounds=40, secure_noise=True))
    assert finding.holds
    assert NoiseAudit().measure(make_system("split-concat")) == []


def test_false_alarms_are_as_rare_as_they_say():
    """Family-wise at 5 %, and each test alone; 600 repetitions have a Monte-Carlo error of 0.9 %."""
    generator = np.random.default_rng(0)
    rounds, devices = np.repeat(np.arange(10), 3), np.tile(np.arange(3), 10)
    alarms, each = 0, {}
    for _ in range(600):
        z = generator.standard_normal((30, 6, 4))
        tests = examine(z, rounds, devices)
        again, public = generator.standard_normal((2, 12, 24)), generator.standard_normal((50, 40))
        tests.append(("resume", "", like_pairs(again[0], again[1])))
        tests.append(("public", "", correlation(generator.standard_normal(40), public)))
        alarms += min(holm_adjusted([p for *_, p in tests])) <= 0.05
        for name, _, p in tests:
            each.setdefault(name, []).append(p <= 0.05)
    assert alarms / 600 <= 0.05 + 3 * 0.009
    assert all(np.mean(found) <= 0.05 + 3 * 0.009 for found in each.values()), {k: np.mean(v) for k, v in each.items()}
    assert np.mean(each["law"]) > 0.02
    assert np.mean(each["scale"]) > 0.02


def test_uncorrected_tests_would_alarm_too_often():
    """The same simulation catches a variant that forgets to correct."""
    generator = np.random.default_rng(1)
    rounds, devices = np.arange(20), np.zeros(20, dtype=np.int64)
    alarms = sum(
        min(p for *_, p in examine(generator.standard_normal((20, 6, 4)), rounds, devices)) <= 0.05 for _ in range(300)
    )
    assert alarms / 300 > 0.05 + 3 * 0.0126


def exceedance(a: float) -> float:
    """P[Σ Z_j²/(j(j+1)) > a] by Imhof's integral, the far terms replaced by their mean."""
    weights = 1 / (np.arange(1, 3000) * np.arange(2, 3001))
    rest = a - 1 / 3000

    def integrand(u: float) -> float:
        angle = 0.5 * np.arctan(weights * u).sum() - 0.5 * rest * u
        return float(np.sin(angle) / (u * np.exp(0.25 * np.log1p((weights * u) ** 2).sum())))

    return 0.5 + quad(integrand, 1e-9, 400, limit=2000)[0] / np.pi


@pytest.mark.parametrize("a", [0.5, 1.0, 1.933, 2.492, 3.857, 6.0])
def test_the_limit_law_of_anderson_and_darling_is_that_of_the_weighted_sum_of_squares(a):
    assert 1 - anderson_darling_limit(a) == pytest.approx(exceedance(a), abs=2e-5)


def test_a_constant_is_not_noise():
    assert anderson_darling(np.full(100, 3.0)) == 0.0


def test_the_interval_covers_the_std():
    generator = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        low, high = scale(1.3 * generator.standard_normal(50), 0.95)[1]
        inside += low <= 1.3 <= high
    assert 0.92 <= inside / 400 <= 0.98


def test_empty_poisson_batches_have_no_noise_to_test():
    system = make_system("split-embedding", schedule="poisson", batch_size=1, rounds=40)
    assert any(len(system.schedule.batch(t)) == 0 for t in range(40))
    (measured,) = NoiseAudit().measure(system)
    assert measured.holds
    assert measured.values > 0
