"""Settings of noise: published formulas give back their claims; what does not go together is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support import make_system
from vflpriv.common.registry import available, find
from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import load_config
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.run.systems import claims_of, declare_system, read_data

ALL_ROUNDS = {"rounds": 6, "batch_size": 8}
PUBLISHED = {
    "dpzv": ({}, {"dpzv-device", "dpzv-devices", "dpzv-embeddings", "dpzv-model"}),
    **{
        name: ({"protection": "client"}, {"vimadmm-client"})
        for name in ("split", "fedbcd", "fdml", "vimadmm", "vimadmm-j", "linear-admm", "vafl", "vafl-tsync")
    },
    "zoo-vfl": ({"protection": "embedding"}, {"vafl-formula"}),
    "czofo": ({"protection": "embedding"}, {"vafl-formula"}),
}


def declared(name: str, **engine: Any):
    config = load_config({"data": {"train": 60}, "engine": {"name": name, **ALL_ROUNDS, **engine}})
    system = declare_system(config, 0, read_data(config))
    return system, claims_of(system, config.system[0])


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_published_noise_gives_back_the_papers_claim(name, epsilon):
    changes, keys = PUBLISHED[name]
    system, claims = declared(name, noise="paper", epsilon=epsilon, delta=1e-4, **changes)
    assert {claim.key for claim in claims} == keys
    assert [claim.epsilon for claim in claims] == pytest.approx([epsilon] * len(claims), rel=1e-6)
    assert {claim.delta for claim in claims} == {1e-4}
    assert system.noise_std > 0


@pytest.mark.parametrize("name", ["vafl", "vafl-tsync"])
def test_vafls_noise_is_that_of_its_text(name):
    system, claims = declared(name, noise="paper", epsilon=2.0, protection="embedding")
    epsilons = {claim.key: claim.epsilon for claim in claims}
    assert epsilons["vafl-samples"] == pytest.approx(2.0)
    assert epsilons["vafl-steps"] < 2.0
    steps = int(system.schedule.active.sum(0).max())
    mu = 2.0 * 8 * math.sqrt(steps * 8) / (60 * system.noise_std)
    assert mu == pytest.approx(next(c.mu for c in claims if c.key == "vafl-samples"))


def test_other_engines_with_the_formula_of_vafl_have_its_noise():
    std = [declared(name, noise="paper", protection="embedding")[0].noise_std for name in ("vafl", "zoo-vfl", "czofo")]
    assert std == pytest.approx([std[0]] * 3)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("send-once", {}),
        ("split", {"protection": "embedding"}),
        ("vimadmm", {"protection": "embedding"}),
        ("zoo-vfl", {"protection": "client"}),
        ("cascaded", {"protection": "embedding"}),
        ("syn-zoo-vfl", {"protection": "embedding"}),
    ],
)
def test_engines_without_a_formula_say_so(name, changes):
    with pytest.raises(InputError, match=rf"^system\.{name}\.engine\.noise = 'paper': expected calibrated or given: "):
        declared(name, noise="paper", **changes)


@pytest.mark.parametrize("name", available("engine"))
def test_noise_that_is_not_chosen_yet_trains_nothing(name):
    fields = find("engine", name).settings_type.model_fields
    protection = {"protection": "client"} if "protection" in fields else {}
    engine = {"dpzv": "dpzv-joint", "split": "split-concat", "vafl": "vafl-sum", "vafl-tsync": "vafl-tsync-all"}
    changes = {"noise": "calibrated", "noise_std": 0.0, **protection}
    system = make_system(engine.get(name, name), **changes)
    with pytest.raises(ValueError, match=r"Expected a number for noise_std, found 0\.0 with noise='calibrated'"):
        system.train((0,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "calibrated"}, "engine.protection = 'none': expected client or embedding with noise = 'calibrated'"),
        ({"noise": "paper"}, "engine.protection = 'none': expected client or embedding with noise = 'paper'"),
        ({"noise": "some"}, "engine.noise = 'some': expected one of 'paper', 'calibrated' or 'given'"),
        ({"unit": "person"}, "engine.unit = 'person': expected one of 'label', 'record'"),
        ({"protect": "nobody"}, "engine.protect = 'nobody': expected"),
        ({"epsilon": 0}, "engine.epsilon = 0: expected a number > 0"),
        ({"delta": 1}, "engine.delta = 1: expected a number < 1"),
        (
            {"noise": "calibrated", "defence": {"name": "client-noise"}, "protection": "client"},
            "engine.noise = 'calibrated': expected given: the defence client-noise says what noise_std is",
        ),
        ({"label_epsilon": 1.0}, "engine.label_epsilon = 1.0: expected nothing without label_protection"),
        ({"label_protection": "rr", "label_epsilon": -1}, "engine.label_epsilon = -1: expected a number > 0"),
        (
            {"label_protection": "alibi", "label_epsilon": 1.0, "label_noise": 1.0},
            "engine.label_noise = 1.0: expected nothing beside label_epsilon = 1, which makes it 2.82843",
        ),
    ],
)
def test_what_does_not_go_together_is_named(changes, message):
    model = find("engine", "split").settings_type
    with pytest.raises(InputError) as caught:
        parse_settings(model, model.completed({**ALL_ROUNDS, **changes}), "engine")
    assert str(caught.value).startswith(message)


def test_settings_are_read_again_as_they_were_written():
    model = find("engine", "split").settings_type
    for changes in ({"label_protection": "alibi", "label_epsilon": 0.3}, {"unit": "client", "noise_std": 0.0}):
        settings = model(**ALL_ROUNDS, **changes)
        assert model.model_validate_json(settings.model_dump_json()) == settings


def test_label_noise_is_what_it_was_where_no_label_epsilon_is_given():
    model = find("engine", "split").settings_type
    assert model(**ALL_ROUNDS).label_noise == 1.0
    assert model(**ALL_ROUNDS, label_protection="alibi").label_mechanism.law.std == 1.0
    assert model(**ALL_ROUNDS, label_protection="rr", label_noise=3.0).label_mechanism.epsilon == 3.0
    (claim,) = declared("split", label_protection="alibi", label_noise=2.0)[1]
    assert (claim.epsilon, claim.unit, claim.where) == (pytest.approx(math.sqrt(2)), Unit.LABEL, "label_protection")
