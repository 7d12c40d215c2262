"""Contract of feature attacks: an answer or a reason, the same for the same seed, and no access to the true values."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import view_of
from tests.contracts.test_attacks import reachable
from tests.support import make_system, toy_data
from vflpriv.audits.scoring.trainings import known_model
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available
from vflpriv.core.attack import FeatureAuxiliary
from vflpriv.core.data import VerticalData
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.training.engine import Engine

LIGHT = [a for a in available("attack").values() if a.target in ("features", "attribute") and "grn" not in a.name]
KNOWS = {
    "features": {"records", "model"},
    "attribute": {"attribute", "model", "others"},
    "membership": {"labels", "membership", "shadows"},
    "tokens": {"published", "records"},
    "integrity": {"target"},
    "property": {"own-trainings"},
}
VARIANTS = {
    "split": "split-concat",
    "vafl": "vafl-weighted",
    "vafl-tsync": "vafl-tsync-some",
    "fedbcd": "fedbcd",
    "fdml": "fdml",
    "zoo-vfl": "zoo-vfl",
    "syn-zoo-vfl": "syn-zoo-vfl-sum",
    "cascaded": "cascaded",
    "czofo": "czofo-sum",
    "dpzv": "dpzv-joint",
    "vimadmm": "vimadmm",
    "vimadmm-j": "vimadmm-j",
    "linear-admm": "linear-admm",
    "noise-once": "noise-once-features",
    "send-once": "send-once",
}
VIEWS = ("server", "device(0)", "devices(0, 2)", "eavesdropper", "outsider", "model")


def knowledge(system, engine) -> FeatureAuxiliary:
    records = torch.arange(0, 40)
    rounds = {
        t: {n: v.clone() for n, v in engine.bank.parameters[1].items()} for t in range(system.schedule.rounds + 1)
    }
    return FeatureAuxiliary(
        victim=1,
        records=records,
        blocks={m: block[records].clone() for m, block in enumerate(system.data.blocks)},
        attribute=(system.data.blocks[1][records, 0] > 0).long(),
        models={m: known_model(engine, m, rounds) for m in range(system.data.devices)},
        seed=3,
    )


def trained(variant: str, rounds: int = 16):
    system = make_system(variant, rounds=rounds, data=toy_data())
    transcript, engine = Transcript(), system.train([0])
    engine.run(Wire(transcript))
    return system, engine, transcript


def test_every_engine_is_here():
    assert set(VARIANTS) == set(available("engine"))


@pytest.mark.parametrize("attack", [a for a in available("attack").values() if a.target != "labels"])
def test_it_declares_what_it_knows(attack):
    assert attack.knows or attack.target == "integrity"
    assert attack.knows <= KNOWS[attack.target]


@pytest.mark.parametrize("engine", list(VARIANTS))
def test_attacks_run_or_say_why_not_and_the_server_always_learns_something(engine):
    system = make_system(VARIANTS[engine], rounds=16, data=toy_data())
    adversaries = [Adversary.parse(text) for text in VIEWS]
    trials = Trials(system=system, seeds=1, confidence=0.95, known=25, victim=1, attribute=0)
    results = trials.run([attack() for attack in LIGHT if not attack.heavy], adversaries)
    assert len(results) == len(VIEWS) * len([a for a in LIGHT if not a.heavy])
    for tried in results:
        assert (tried.mean is None) == (tried.refusal is not None)
        if tried.refusal is not None:
            assert tried.refusal.startswith("needs ")
        else:
            assert tried.mean.low <= tried.mean.value <= tried.mean.high <= 1
            assert 0 < tried.mean.guesses <= (60 if "others" in tried.knows else 35)
    by_server = {t.attack: t for t in results if str(t.adversary) == "server"}
    assert by_server["feature_inversion"].mean.value > 0
    assert all(t.refusal for t in results if str(t.adversary) in ("outsider", "model"))


@pytest.mark.parametrize("adversary", ["server", "device(0)"])
@pytest.mark.parametrize("variant", ["split-sum", "vimadmm-j"])
def test_an_attack_repeats_itself(variant, adversary):
    system, engine, transcript = trained(variant)
    view, auxiliary = view_of(system, engine, transcript, adversary), knowledge(system, engine)
    for attack in LIGHT:
        if attack().refusal(view, auxiliary) is None:
            first, second = (attack().run(view, auxiliary) for _ in range(2))
            assert torch.equal(first.values, second.values)


@pytest.mark.parametrize("adversary", ["server", "device(0)", "eavesdropper"])
@pytest.mark.parametrize("variant", ["split-concat", "fdml", "vimadmm-j"])
def test_nothing_an_attack_is_given_leads_to_the_victims_features(variant, adversary):
    """Walk everything reachable from a view and the knowledge: no engine, no data set, no row that was not given."""
    system, engine, transcript = trained(variant)
    given = (view_of(system, engine, transcript, adversary), knowledge(system, engine))
    secret = system.data.blocks[1][40:]
    for item in reachable(given):
        assert not isinstance(item, Engine | VerticalData)
        if isinstance(item, torch.Tensor) and item.is_floating_point() and item.shape[-1:] == secret.shape[1:]:
            rows = item.reshape(-1, secret.shape[1]).to(secret.dtype)
            assert not (rows.unsqueeze(1) == secret.unsqueeze(0)).all(-1).any()


def test_the_walk_finds_features_that_are_hidden_well():
    _, engine, _ = trained("split-concat")
    assert any(item is engine.data for item in reachable(known_model(engine, 1, {0: {"x": engine.data}})))
