"""Systems of a configuration: their titles, the settings that reports read, and claims with distinct keys."""

from __future__ import annotations

import pytest

from vflpriv.config.loading import load_config
from vflpriv.config.models import Config
from vflpriv.core.systems import DEFAULT_DELTA, System
from vflpriv.errors import InputError
from vflpriv.run.systems import build_system, claims_of, declare_system, load_data, read_data

DPZV = {"name": "dpzv", "rounds": 4, "batch_size": 8, "embedding": 3, "noise": "paper", "delta": 1e-4}


def built(claims: list[dict[str, object]]) -> tuple[System, Config]:
    systems = [
        {"key": "a", "title": "A system", "engine": DPZV, "claim": claims},
        {"key": "b", "engine": {"name": "split", "rounds": 4, "batch_size": 8}},
    ]
    config = load_config({"data": {"name": "digits", "train": 60}, "system": systems})
    return build_system(config, 0, load_data(config)), config


def test_a_system_declares_what_reports_and_accountants_ask() -> None:
    system, config = built([])
    assert (system.title, system.engine_name, system.delta, system.noise_parameters.mode) == (
        "A system",
        "dpzv",
        1e-4,
        "paper",
    )
    assert system.noise_std is not None
    assert system.noise_std > 0
    assert system.secure_noise is False
    assert system.data_facts["records"] == 60
    assert system.settings_facts["rounds"] == system.rounds == 4
    other = build_system(config, 1, system.data)
    assert (other.title, other.delta, other.noise_parameters.mode) == ("", DEFAULT_DELTA, "given")


def test_claims_are_joined_by_their_keys_so_every_key_is_there_once() -> None:
    system, config = built([])
    keys = [claim.key for claim in claims_of(system, config.system[0])]
    assert len(set(keys)) == len(keys) > 0
    again = {"key": keys[0], "unit": "record", "view": "device", "epsilon": 1.0}
    for claims in ([again], [again | {"key": "mine"}, again | {"key": "mine"}]):
        system, config = built(claims)
        with pytest.raises(InputError, match=rf"system\.a\.claim = '{claims[0]['key']}': expected a key that no other"):
            claims_of(system, config.system[0])


@pytest.mark.parametrize("defence", [None, "compression", {"name": "randomised-response", "epsilon": 2.0}])
def test_settings_that_are_lists_are_read_with_and_without_a_defence(defence):
    engine = {"name": "split", "rounds": 4, "batch_size": 8, "hidden": [16, 8], "top_hidden": [4]}
    config = load_config({"data": {"train": 60}, "engine": engine | ({} if defence is None else {"defence": defence})})
    settings = declare_system(config, 0, read_data(config)).settings
    assert (settings.hidden, settings.top_hidden) == ((16, 8), (4,))
    assert settings.label_protection == ("rr" if isinstance(defence, dict) else "none")


def test_a_system_may_have_two_classes_of_the_datas():
    engine = {"name": "split", "rounds": 4, "batch_size": 8, "defence": "marvell"}
    config = load_config({"data": {"train": 60}, "engine": engine, "positive_classes": [8, 9]})
    data = load_data(config)
    system, declared = build_system(config, 0, data), declare_system(config, 0, read_data(config))
    assert (system.classes, declared.classes, data.classes) == (2, 2, 10)
    assert system.data.labels.tolist() == [int(label >= 8) for label in data.labels.tolist()]
    assert list(declared.data.labels) == system.data.labels.tolist()
    several = load_config({"data": {"train": 60}, "engine": engine, "positive_classes": [10]})
    with pytest.raises(
        InputError, match=r"^system\.split\.positive_classes = \[10\]: expected some of the classes 0 to 9"
    ):
        build_system(several, 0, data)
