"""Defences of the attack matrix in a configuration: by their settings, and at several strengths."""

from __future__ import annotations

import pytest

from vflpriv.config.loading import load_config
from vflpriv.errors import InputError
from vflpriv.run.attack import variants_of
from vflpriv.run.features import FeaturePlan
from vflpriv.run.systems import check_defences, load_data

SPLIT = {"name": "split", "rounds": 2, "batch_size": 16}


def configured(defences, **attack):
    return load_config({"data": {"train": 40}, "attack": {"defences": defences, **attack}, "engine": SPLIT})


def test_each_strength_is_a_row_of_its_own():
    laplace = {"defence": "laplace", "strengths": {"scale": [0.01, 1]}}
    noise = {"protection": "embedding", "strengths": {"noise_std": [0.5], "clip": [1.0, 2.0]}}
    config = configured({"noisy": laplace, "outputs": noise, "plain": {"defence": "dcor"}})
    rows = {row.defence: (row.settings, system) for row, system in variants_of(config, 0, load_data(config))}
    scales = ["noisy (scale 0.01)", "noisy (scale 1)"]
    clips = ["outputs (noise_std 0.5, clip 1)", "outputs (noise_std 0.5, clip 2)"]
    assert list(rows) == ["none", *scales, *clips, "plain"]
    assert rows[scales[1]][0]["defence"] == {"name": "laplace", "scale": 1.0}
    assert [rows[name][1].settings.clip for name in clips] == [1.0, 2.0]
    assert rows["plain"][0]["defence"]["name"] == "dcor"


def test_strengths_are_added_to_those_that_are_the_same_for_all():
    ppdl = {"defence": {"name": "ppdl", "clip": 0.5}, "strengths": {"share": [0.1, 0.2]}}
    config = configured({"ppdl": ppdl})
    defences = [v.changes["defence"] for v in config.attack.variants]
    assert defences == [{"name": "ppdl", "clip": 0.5, "share": share} for share in (0.1, 0.2)]
    assert load_config(config).attack.variants == config.attack.variants


@pytest.mark.parametrize(
    "strengths", [{}, [0.1], {"scale": 0.1}, {"scale": []}, {"scale": [0.1, 0.1]}, {"scale": [[]]}]
)
def test_strengths_without_lists_of_values_are_refused(strengths):
    with pytest.raises(InputError, match=r"^attack\.defences\.x\.strengths = .*: expected strengths as a table"):
        configured({"x": {"defence": "laplace", "strengths": strengths}})


@pytest.mark.parametrize(
    ("defences", "message"),
    [
        ({"none": {"defence": "laplace"}}, r"attack\.defences\.none = 'none': expected another name"),
        (
            {"x": {"defence": {"name": "laplace", "scale": 1.0}, "strengths": {"scale": [2.0]}}},
            r"attack\.defences\.x\.strengths\.scale = 2\.0: expected a field that is given nowhere else",
        ),
    ],
)
def test_names_and_fields_are_given_once(defences, message):
    with pytest.raises(InputError, match=message):
        configured(defences)


@pytest.mark.parametrize(
    ("defence", "message"),
    [
        ("nothing", r"^attack\.defences\.x\.defence = 'nothing': expected one of"),
        ({"name": "laplace", "power": 1.0}, r"^attack\.defences\.x\.defence\.power = 1\.0: expected no such field"),
        ({"name": "laplace", "scale": -1.0}, r"^attack\.defences\.x\.defence\.scale = -1\.0: expected a number > 0"),
    ],
)
def test_what_is_no_registered_defence_is_named(defence, message):
    with pytest.raises(InputError, match=message):
        check_defences(configured({"x": {"defence": defence}}))


def test_attacks_on_features_are_tried_at_all_strengths_or_at_one():
    noisy = {"defence": "embedding-noise", "strengths": {"noise_std": [0.5, 1.0]}}
    names = ("none", "noisy (noise_std 0.5)", "noisy (noise_std 1)", "rr")
    for chosen, tried in ((["noisy"], [False, True, True, False]), (["none", names[1]], [True, True, False, False])):
        defences = {"noisy": noisy, "rr": {"defence": "randomised-response"}}
        config = configured(defences, features={"defences": chosen})
        plan = FeaturePlan.of(config, load_data(config))
        assert [plan.applies(name) for name in names] == tried
