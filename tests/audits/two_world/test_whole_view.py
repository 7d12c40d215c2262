"""The whole view: what a system hides from its ledger shows in a score learned from all messages; sound ones pass."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import rankdata
from torch import Tensor

from tests.support import make_system, toy_data
from vflpriv.audits.learned import learners
from vflpriv.audits.learned.learners import learn
from vflpriv.audits.learned.rows import moments
from vflpriv.audits.statistics.bounds import Errors, epsilon_rectangle, p_value_dp, tail
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.audits.two_world.canaries import SEARCHED, craft, plan
from vflpriv.audits.two_world.methods import whole_view_refusal
from vflpriv.audits.two_world.plan import first_replica
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import LARGEST, WHOLE_VIEW, WholeView
from vflpriv.common.registry import find
from vflpriv.common.store import Store
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.canaries import CanaryKind, TwoWorldSettings
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Payload, Wire, device

pytestmark = pytest.mark.usefixtures("few_trees")
Dpzv, Split = find("engine", "dpzv"), find("engine", "split")
ALL_TREES = learners._TREES
ALL = Adversary.parse("devices(all)")


def claim(unit: Unit = Unit.LABEL, view: str = "devices(all)", epsilon: float = 1.0) -> Claim:
    texts = {"key": "it", "source": "a test", "where": "here", "statement": "it is private"}
    return Claim.of_epsilon(epsilon, 1e-3, unit=unit, view=view, **texts)


def sound(variant: str = "dpzv-joint", **changes: object) -> System:
    """Two classes, so that another label is the other one; noise that hides everything."""
    base: dict[str, object] = {"schedule": "full", "batch_size": 24, "rounds": 12}
    if variant == "dpzv-joint":
        # A record moves a scalar by 2/24 at most: μ = 0.388 over twelve rounds, ε = 1 at δ = 1e-3.
        base |= {"clip": 1.0, "noise_std": 0.745}
    return make_system(variant, data=toy_data(records=24, classes=2), **{**base, **changes})


def audited(system: System, *claims: Claim, trials: int = 100, **options: object) -> list[Finding]:
    by_kind = options.pop("by_kind", {CanaryKind.NATURAL: trials})
    context = AuditContext(
        claims=claims or (claim(),),
        settings=TwoWorldSettings.model_validate({"trials": by_kind, "whole_view": 200} | options),
    )
    return [f for f in TwoWorldAudit().run(system, context) if f.subject == WHOLE_VIEW]


def labels_of(engine: object, records: Tensor) -> Tensor:
    return engine.data.labels_of(records).expand(len(engine.replicas), -1)


class InClear(Dpzv):
    """Sends the labels beside the scalar."""

    def serve(self, round_: int, records: Tensor, uplinks: Mapping) -> Mapping[int, Payload]:
        return {
            m: Payload(p.kind, {**p.tensors, "extra": labels_of(self, records)})
            for m, p in super().serve(round_, records, uplinks).items()
        }


class LowestBit(Dpzv):
    """Puts the parity of the labels into the lowest bit of the noised scalar."""

    def serve(self, round_: int, records: Tensor, uplinks: Mapping) -> Mapping[int, Payload]:
        parity = (labels_of(self, records).sum(1) % 2).to(torch.int32)
        return {
            m: Payload(p.kind, {"delta": ((p.tensors["delta"].view(torch.int32) & -2) | parity).view(torch.float32)})
            for m, p in super().serve(round_, records, uplinks).items()
        }


class HalvedNoise(Split):
    """Noise of each record's row, half as much for one label; nothing but noise is sent."""

    def serve(self, round_: int, records: Tensor, uplinks: Mapping) -> Mapping[int, Payload]:
        label = labels_of(self, records)
        sent = {}
        for m, p in super().serve(round_, records, uplinks).items():
            gradient = p.tensors["gradient"]
            noise = self.stream("noise").normal(gradient[0].numel(), round_, m).reshape(gradient.shape)
            sent[m] = Payload(p.kind, {"gradient": noise * (1 - 0.5 * label).unsqueeze(2)})
        return sent


class ExactCopy(Split):
    """Sends noise in the place of gradients, and the gradients themselves under another name."""

    def serve(self, round_: int, records: Tensor, uplinks: Mapping) -> Mapping[int, Payload]:
        self.exact = super().serve(round_, records, uplinks)
        noised = {}
        for m, p in self.exact.items():
            gradient = p.tensors["gradient"]
            noise = self.stream("noise").normal(gradient[0].numel(), round_, m).reshape(gradient.shape)
            noised[m] = Payload(p.kind, {"gradient": noise})
        return noised

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(np.asarray(self.schedule.batch(round_)))
        for m, p in self.exact.items():
            Payload("acknowledgement", p.tensors).send(wire, round_, SERVER, device(m), records)


class NowAndThen(Dpzv):
    """Sends one more message where the labels are odd; the other replicas, which send none, have no numbers in it."""

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(np.asarray(self.schedule.batch(round_)))
        silent = labels_of(self, records).sum(1) % 2 == 0
        beat = torch.where(silent, float("nan"), 1.0)
        Payload("heartbeat", {"beat": beat}).send(wire, round_, SERVER, device(0), records)


class NoisedLabel(Dpzv):
    """Sends the first record's label with noise of μ = 2, once, or three times with fresh noise."""

    times = 1

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(np.asarray(self.schedule.batch(round_)))
        if round_ == 0:
            noise = self.stream("labels").normal(self.times)
            side = 2.0 * labels_of(self, records)[:, :1] - 1
            for m in range(self.times):
                value = side[:, 0] + noise[:, m]
                Payload("hint", {"value": value}).send(wire, round_, SERVER, device(m), records)


class NoisedThrice(NoisedLabel):
    times = 3


@pytest.mark.parametrize(
    ("engine", "variant"),
    [
        (InClear, "dpzv-joint"),
        (LowestBit, "dpzv-joint"),
        (NowAndThen, "dpzv-joint"),
        (HalvedNoise, "split-concat"),
        (ExactCopy, "split-concat"),
    ],
)
def test_what_the_ledger_does_not_say_is_found_on_the_wire(engine, variant):
    """Margin: p is below 1e-12: no trial errs."""
    broken = dataclasses.replace(sound(variant), engine=engine)
    (finding,) = audited(broken)
    assert finding.verdict is Verdict.VIOLATED
    assert finding.p_value < 1e-6
    assert finding.trials == 50
    assert "learned on 2 × 50 other trials" in finding.sentence


def test_a_label_that_is_noised_three_times_is_told_better_than_once():
    """A claim of μ = 2 holds for one noised copy; three of them have μ = 3.5.

    Margin: of 800 guesses 127 are wrong at μ = 2 and 33 at best with three copies; 89 would still have this p-value.
    """
    once, thrice = (sum(_errors(engine, seed) for seed in range(4)) for engine in (NoisedLabel, NoisedThrice))
    p_values = [float(tail(errors, 800, float(ndtr(-1.0)))) for errors in (once, thrice)]
    assert p_values[0] > 0.01
    assert p_values[1] < 1e-4


def _errors(engine: type, seed: int) -> int:
    (finding,) = audited(dataclasses.replace(sound(seed=seed), engine=engine), trials=200)
    return finding.measurement.errors.total


@pytest.mark.parametrize(
    ("variant", "unit", "view", "changes"),
    [
        ("dpzv-joint", Unit.LABEL, "devices(all)", {}),
        ("dpzv-joint", Unit.RECORD, "device", {}),
        ("dpzv-joint", Unit.LABEL, "model", {}),
        ("vafl-noise", Unit.FEATURES, "server", {"noise_std": 40.0, "hidden_noise": 0.0, "schedule": "shuffle"}),
        ("split-rr", Unit.LABEL, "devices(all)", {"label_noise": 1.0}),
        ("split-client", Unit.CLIENT, "eavesdropper", {"clip": 1.0, "noise_std": 40.0}),
    ],
)
def test_sound_systems_are_not_accused(variant, unit, view, changes):
    """Margin: p is 0.32 and more, and seeds are fixed."""
    for seed in range(2):
        (finding,) = audited(sound(variant, seed=seed, **changes), claim(unit, view), trials=60)
        assert finding.verdict is Verdict.CONSISTENT, finding.sentence
        assert finding.p_value > 0.001


def test_a_claim_that_no_other_score_tests_is_tested_by_the_whole_view():
    """By the ledger nothing depends on the label; the labels are on the wire."""
    broken = dataclasses.replace(sound(), engine=type("Silent", (InClear,), {"ledger": classmethod(_no_releases)}))
    (finding,) = audited(broken, by_kind={CanaryKind.WORST_CASE: 80})
    assert finding.verdict is Verdict.VIOLATED
    assert finding.trials == 40


def _no_releases(engine: type, settings: object, schedule: object) -> object:
    return dataclasses.replace(super(InClear, engine).ledger(settings, schedule), releases=())


def test_whole_views_share_the_trainings_of_canaries_in_the_data(monkeypatch):
    trained = []
    train = System.train
    monkeypatch.setattr(
        System, "train", lambda self, replicas, **o: trained.append(len(replicas)) or train(self, replicas, **o)
    )
    context = AuditContext(
        claims=(claim(),),
        settings=TwoWorldSettings(trials={CanaryKind.NATURAL: 64, CanaryKind.WORST_CASE: 96}, whole_view=64),
    )
    findings = TwoWorldAudit().run(sound(), context)
    assert [f.subject for f in findings] == ["natural", WHOLE_VIEW, "worst-case"]
    assert sum(trained) == 2 * 64 + 2 * 96
    assert TwoWorldAudit().work(sound(), context) == sum(trained) * sound().schedule.rounds


def test_zero_turns_it_off_and_too_few_trials_are_not_worth_it():
    assert not audited(sound(), whole_view=0)
    assert not audited(sound(), trials=59)
    assert len(audited(sound(), trials=60)) == 1


@pytest.mark.parametrize(
    ("variant", "unit", "view", "reason"),
    [
        ("dpzv-joint", Unit.LABEL, "server", "the server holds the labels"),
        ("dpzv-joint", Unit.ADD_REMOVE, "devices(all)", "name the same records"),
        ("dpzv-joint", Unit.RECORD, "server", None),
        ("split-concat", Unit.LABEL, "eavesdropper", None),
    ],
)
def test_it_says_where_there_is_nothing_to_learn(variant, unit, view, reason):
    found = whole_view_refusal(sound(variant), Adversary.parse(view), unit)
    assert found is None if reason is None else reason in found


def test_secret_batches_are_not_tested_by_trials_that_share_them():
    one = make_system("dpzv-joint", schedule="poisson", batch_size=8, encrypted_uplink=True)
    assert "secret to outsider" in whole_view_refusal(one, Adversary.parse("outsider"), Unit.LABEL)


def test_a_device_does_not_accuse_itself():
    """Its own block changes between the worlds, and its own messages show it."""
    assert not audited(sound("split-client"), claim(Unit.CLIENT, "devices(all)"))


# The statistic


def trials_of(rows: np.ndarray) -> Errors:
    """Learned on the first half of the pairs, tested on the second: even rows are of world 0."""
    half = len(rows) // 2
    score = learn(rows[0:half:2], rows[1:half:2]).score
    scores = score(rows[half::2]), score(rows[half + 1 :: 2])
    canary = plan(sound(), CanaryKind.NATURAL, 0, Store())
    return Trials(adversary=ALL, canary=canary, scores=scores, strengths=np.zeros(0), method=WHOLE_VIEW).errors


def false_alarms(sets: int, level: float, *, epsilon: float = 1.0, together: bool = False) -> float:
    """How often a mechanism at exactly this ε is accused at this level; `together` tests what it learned on."""
    alarms = 0
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((160, 12))
        truth = np.arange(160) % 2
        said = np.where(rng.random(160) < 1 / (1 + np.exp(-epsilon)), truth, 1 - truth)
        rows[:, 3] += 6 * said
        if together:
            score = learn(rows[0::2], rows[1::2]).score
            wrong = int((score(rows[0::2]) <= 0).sum()), int((score(rows[1::2]) > 0).sum())
            errors = Errors(false_positives=wrong[1], negatives=80, false_negatives=wrong[0], positives=80)
        else:
            errors = trials_of(rows)
        alarms += p_value_dp(errors, epsilon, 0.0) <= level
    return alarms / sets


@pytest.mark.slow
def test_a_mechanism_at_its_claim_is_accused_no_more_often_than_the_level_says():
    assert false_alarms(240, 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 240)
    assert false_alarms(20, 0.05, epsilon=0.0, together=True) > 0.5, "trials that taught the score must not be tested"


def test_a_mechanism_at_its_claim_is_seldom_accused():
    assert false_alarms(8, 0.01) <= 1 / 8


def test_equal_values_share_their_mean_rank():
    rows = np.random.default_rng(0).integers(0, 4, (9, 5)).astype(float)
    np.testing.assert_array_equal(learners._ranks(rows), rankdata(rows, axis=0) - 1)


def test_every_learner_finds_what_suits_it(monkeypatch):
    monkeypatch.setattr(learners, "_TREES", ALL_TREES)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((400, 60))
    world = np.arange(400) % 2
    leaks = {
        "a constant": noise + 5 * (np.arange(60) == 7) * world[:, None],
        "many small differences": noise + 0.4 * world[:, None],
        "a range": np.where((np.arange(60) == 7) & (world[:, None] == 1), 3 * np.sign(noise), noise * 0.5),
    }
    for name, rows in leaks.items():
        assert trials_of(rows).total < 40, name
    assert trials_of(noise).total > 70


def test_a_leak_that_shows_in_a_third_of_the_trials_is_told_by_a_threshold_far_out():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((800, 20))
    rows[:, 4] = (np.arange(800) % 2) * (rng.random(800) < 0.35)
    learned = learn(rows[0:400:2], rows[1:400:2])
    scores = learned.score(rows[400::2]), learned.score(rows[401::2])
    wrong = [int((scores[1] > learned.threshold).sum()), int((scores[0] <= learned.threshold).sum())]
    errors = Errors(false_positives=wrong[0], negatives=200, false_negatives=wrong[1], positives=200)
    assert learned.threshold != 0.0
    assert epsilon_rectangle(errors, 0.0, 0.999) > 1.5
    assert p_value_dp(errors, 1.0, 0.0) > 0.05, "the number of all errors says nothing"


def test_features_are_bounded_finite_and_tell_every_kind_of_value():
    canary = plan(sound(), CanaryKind.NATURAL, 1, Store())
    watch = WholeView(
        canary, [ALL, Adversary.parse("outsider")], labels=sound().data.labels, devices=3, replicas=4, rounds=5
    )
    records = torch.tensor([0, 1, 2])
    wide = torch.randn(4, 3, 3000)
    wide[0, 0, 0], wide[1, 1, 1] = float("nan"), float("inf")
    tensors = {
        "wide": wide,
        "ids": torch.arange(12).reshape(4, 3),
        "flags": torch.ones(4, 3, dtype=torch.bool),
        "complex": torch.ones(4, 3, dtype=torch.complex64),
        "half": torch.ones(4, dtype=torch.float16),
        "empty": torch.zeros(4, 0),
        "shared": torch.tensor([2.0]),
    }
    for round_ in range(5):
        for m in range(3):
            Payload("anything", tensors).send(Wire(watch), round_, SERVER, device(m), records)
            Payload("request", {}).send(Wire(watch), round_, SERVER, device(m), records)
    for rows in watch.features(None).values():
        assert rows.shape[0] == 4
        assert 1 < rows.shape[1] <= LARGEST
        assert bool(torch.isfinite(rows).all())


def test_the_number_of_messages_is_a_feature():
    canary = plan(sound(), CanaryKind.NATURAL, 1, Store())
    rows = []
    for count in (3, 4):
        watch = WholeView(canary, [ALL], labels=sound().data.labels, devices=1, replicas=1, rounds=5)
        for round_ in range(count):
            Payload("ping", {}).send(Wire(watch), round_, SERVER, device(0), torch.tensor([0]))
        rows.append(watch.features(None)[str(ALL)])
    assert not torch.equal(*rows)


def test_the_lowest_bit_of_a_value_is_a_feature():
    values = torch.randn(8, 5)
    other = (values.view(torch.int32) ^ 1).view(torch.float32)
    torch.testing.assert_close(moments(values)[:, 10], 1 - moments(other)[:, 10])


# Fresh trials


def test_canaries_are_searched_on_replicas_that_are_never_tested(monkeypatch):
    trained: list[set[int]] = []
    train = System.train
    monkeypatch.setattr(
        System, "train", lambda self, replicas, **o: trained.append(set(replicas)) or train(self, replicas, **o)
    )
    one = sound("dpzv-joint")
    craft(one, plan(one, CanaryKind.WORST_CASE, 0, Store(), unit=Unit.LABEL))
    searched = set().union(*trained)
    trained.clear()
    TwoWorldAudit().measure(one, [ALL], CanaryKind.NATURAL, trials=20)
    assert searched == set(SEARCHED)
    assert not searched & set().union(*trained)


def test_another_number_of_trials_is_tested_on_fresh_ones(tmp_path, monkeypatch):
    trained: list[int] = []
    train = System.train
    monkeypatch.setattr(
        System, "train", lambda self, replicas, **o: trained.extend(replicas) or train(self, replicas, **o)
    )
    one, audit = sound(), TwoWorldAudit(store=Store(tmp_path))
    for trials in (10, 20, 20):
        audit.measure(one, [ALL], CanaryKind.NATURAL, trials=trials)
    assert len(set(trained)) == len(trained) == 20 + 40, "the second 20 were stored"
    starts = sorted((first_replica(n, 0, 0), n) for n in range(1, 2000))
    assert all(a + 2 * n < b for (a, n), (b, _) in itertools.pairwise(starts))


def test_more_trials_after_a_look_are_a_fresh_test():
    """A user looks at 100 trials, and raises their number to 200 where the claim was nearly refuted."""
    rng, rate, level = np.random.default_rng(0), 1 / (1 + np.e), 0.05

    def p_values(errors: np.ndarray, trials: int) -> np.ndarray:
        return np.asarray(tail(errors, 2 * trials, rate))

    first = rng.binomial(200, rate, 20_000)
    raised = (p_values(first, 100) > level) & (p_values(first, 100) < 0.2)
    more, fresh = rng.binomial(200, rate, 20_000), rng.binomial(400, rate, 20_000)
    reused_alarms = (p_values(first + more, 200) <= level)[raised].mean()
    fresh_alarms = (p_values(fresh, 200) <= level)[raised].mean()
    assert reused_alarms > 2 * level, "what was wrong with trials that are used again"
    assert fresh_alarms <= level + 3 * np.sqrt(level / raised.sum())
