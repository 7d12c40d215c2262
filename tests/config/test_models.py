"""Configurations: what is read, what overrides what, and one clear line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import load_config
from vflpriv.config.models import ClaimConfig
from vflpriv.core.canaries import FULL_TRIALS, SECOND_OPINION, TRIALS, CanaryKind, TwoWorldSettings
from vflpriv.errors import InputError
from vflpriv.run.systems import build_system, claims_of, load_data

GOOD = """
seed = 3
[data]
name = "digits"
[engine]
name = "dpzv"
rounds = 40
batch_size = 32
[audit]
trials = 8
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def build(path: Path | None):
    config = load_config(path)
    data = load_data(config)
    return [build_system(config, place, data) for place in range(len(config.system))]


def test_the_embedded_configuration_is_the_published_setting():
    published, clip, joint, split = build(None)
    assert (published.data.records, published.settings.batch_size, published.data.devices) == (1437, 64, 4)
    assert published.settings.rounds == 1122
    assert published.settings.server_update == "sgd"
    assert clip.settings.clip_rule == "paper"
    assert joint.settings.server_update == "joint"
    assert split.settings.aggregation == "sum"


def test_a_single_system_needs_no_list(tmp_path):
    config = load_config(write(tmp_path, GOOD))
    assert [s.key for s in config.system] == ["dpzv"]
    assert config.system[0].audit.trials_by_kind()[CanaryKind.NATURAL] == 8


def test_trials_can_be_given_by_canary(tmp_path):
    text = GOOD.replace("trials = 8", 'trials = { worst-case = 5 }\ncanaries = ["worst-case", "natural"]')
    audit = load_config(write(tmp_path, text)).system[0].audit
    assert audit.trials_by_kind() == {CanaryKind.WORST_CASE: 5}


def test_claims_that_an_exact_figure_settles_have_fewer_trials() -> None:
    plain = TwoWorldSettings()
    assert plain.trials_by_kind() == dict.fromkeys(CanaryKind, TRIALS)
    ends = (CanaryKind.NATURAL, CanaryKind.WORST_CASE)
    assert plain.trials_by_kind(reached=True) == dict.fromkeys(ends, SECOND_OPINION)
    assert plain.trials_by_kind(refuted=True) == {CanaryKind.WORST_CASE: SECOND_OPINION}
    # What is asked for is done, but for canaries that add nothing to a refutation.
    asked = TwoWorldSettings(trials=2000)
    assert asked.trials_by_kind(reached=True) == dict.fromkeys(CanaryKind, 2000)
    assert asked.trials_by_kind(refuted=True) == {CanaryKind.WORST_CASE: 2000}
    assert TwoWorldSettings(trials=0).trials_by_kind(reached=True) == {}
    alone = TwoWorldSettings(canaries=(CanaryKind.NATURAL,))
    assert alone.trials_by_kind(reached=True) == alone.trials_by_kind(refuted=True) == {CanaryKind.NATURAL: 100}


def test_an_audits_table_comes_before_the_common_options_which_it_keeps(tmp_path):
    common = "trials = 8\nreach = 3.0\nsensitivity = false\n"
    table = f"{common}[audit.two-world]\nreach = 5.0\n[audit.one-run]\ncanaries = 40"
    tables = load_config(write(tmp_path, GOOD.replace("trials = 8", table))).system[0].audit.tables
    trials = TwoWorldSettings.model_validate(tables["two-world"])
    assert (trials.trials, trials.reach, trials.full_trials) == (8, 5.0, FULL_TRIALS)
    assert (tables["one-run"], tables["sensitivity"]) == ({"canaries": 40}, False)
    both = f"{common}two-world = false\none-run.guesses = 30\none_run.canaries = 40"
    tables = load_config(write(tmp_path, GOOD.replace("trials = 8", both))).system[0].audit.tables
    assert (tables["one-run"], tables["two-world"]) == ({"canaries": 40, "guesses": 30}, False)


def test_overrides_reach_any_field(tmp_path):
    path = write(tmp_path, GOOD)
    assert load_config(path, {"seed": 9, "engine.rounds": 7}).seed == 9
    assert load_config(path, {"engine.rounds": 7}).system[0].engine["rounds"] == 7
    assert load_config(None, {"system.0.engine.rounds": 7}).system[0].engine["rounds"] == 7
    assert load_config(None, {"system.dpzv-joint.engine.rounds": 7}).system[2].engine["rounds"] == 7


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (('name = "dpzv"', 'name = "dpvz"'), "engine.name = 'dpvz': expected one of "),
        (("batch_size = 32", "batch_size = 1438"), "system.dpzv.engine.batch_size = 1438: expected at most the 1437"),
        (("batch_size = 32", 'batch_size = "many"'), "system.dpzv.engine.batch_size = 'many': expected a whole number"),
        (("batch_size = 32", 'batch_size = "32"'), "system.dpzv.engine.batch_size = '32': expected a whole number"),
        (("batch_size = 32", "batch_size = 0"), "system.dpzv.engine.batch_size = 0: expected a number >= 1"),
        (("batch_size = 32", "batch_size = [1]"), "system.dpzv.engine.batch_size = [1]: expected a whole number"),
        (("rounds = 40", "rounds = 40\nnoise_std = -1.0"), "engine.noise_std = -1.0: expected a number >= 0"),
        (("trials = 8", "trials = 8\nmin_trials = 0"), "audit.min_trials = 0: expected a number >= 1"),
        (("trials = 8", "trials = 8\nfull_trials = 0"), "audit.full_trials = 0: expected a number >= 1"),
        (("trials = 8", "trials = 8\none_run = {canaries = 5}"), "one_run.canaries = 5: expected a number >= 20"),
        (
            ("trials = 8", "trials = 8\none_run = {canaries = 1438}"),
            "system.dpzv.audit.one_run.canaries = 1438: expected at most the 1437 records",
        ),
        (
            ("trials = 8", "trials = 8\none_run = {canaries = 50, guesses = 60}"),
            "audit.one_run = 'settings': expected guesses <= canaries, found 60 > 50",
        ),
        (
            ("trials = 8", "trials = 8\n[audit.one-run]\ncanaries = 1438"),
            "system.dpzv.audit.one-run.canaries = 1438: expected at most the 1437 records",
        ),
        (
            ("trials = 8", "trials = 8\n[audit.two-world]\ntrails = 4"),
            "system.dpzv.audit.two-world.trails = 4: expected no such field",
        ),
        (("trials = 8", "trials = 8\n[audit.wire]\ndepth = 4"), "audit.wire = {'depth': 4}: expected true or false"),
        (("rounds = 40", "rounds = 40\nclip = nan"), "engine.clip = nan: expected a finite number"),
        (("rounds = 40", "rounds = 40\ndelta = 1.0"), "engine.delta = 1.0: expected a number < 1"),
        (("rounds = 40", "rounds = 40\nnoise_sdt = 1.0"), "engine.noise_sdt = 1.0: expected no such field"),
        (("rounds = 40", 'rounds = 40\nprotect = "me"'), "engine.protect = 'me': expected device, device(M)"),
        (("rounds = 40", 'rounds = 40\nclip_rule = "both"'), "engine.clip_rule = 'both': expected one of 'two-sided'"),
        (("rounds = 40\n", ""), "system.dpzv.engine.rounds = 'nothing': expected a value; it is required"),
        (('name = "digits"', 'name = "digit"'), "data.name = 'digit': expected one of digits"),
        (('name = "digits"', 'name = "mnist"\nfolder = "nowhere"'), "vflpriv data fetch mnist"),
        (('name = "digits"', 'name = "digits"\ndevices = 0'), "data.devices = 0: expected a number >= 1"),
        (('name = "digits"', 'name = "digits"\ntrain = 0'), "data.train = 0: expected a number >= 1"),
        (("[engine]", "[train]\npatience = 3\n[engine]"), "train.patience = 3: expected data.validation beside it"),
        (("[engine]", "[train]\npatience = 0\n[engine]"), "train.patience = 0: expected a number >= 1"),
        (('name = "digits"', 'name = "digits"\noverlap = 1.5'), "data.overlap = 1.5: expected a number <= 1"),
        (('name = "digits"', 'name = "digits"\nimbalance = 0.1'), "data.imbalance = 0.1: expected a number >= 1"),
        (('name = "digits"', 'name = "digits"\nkept_devices = [4]'), "data.kept_devices = 4: expected devices 0 to 3"),
        (('name = "digits"', 'name = "digits"\nkept_devices = [1, 1]'), "data.kept_devices = [1, 1]: expected each"),
        (
            ('name = "digits"', 'name = "digits"\nnoisy_devices = [4]'),
            "data.noisy_devices = 4: expected devices 0 to 3",
        ),
        (('name = "digits"', 'name = "digits"\nfeature_noise = 0'), "data.feature_noise = 0: expected a number > 0"),
        (('name = "digits"', 'name = "digits"\nvalidation = 0'), "data.validation = 0: expected a number > 0"),
        (
            ('name = "digits"', 'name = "digits"\nvalidation = 1437'),
            "data.validation = 1437: expected 1 to 1436 of the",
        ),
        (('name = "digits"', 'name = "digits"\nstandardise = 1'), "data.standardise = 1: expected true or false"),
        (
            ('name = "digits"', 'name = "digits"\nvocabulary = "v"'),
            "data.vocabulary = 'v': expected none, since digits",
        ),
        (("rounds = 40", 'rounds = 40\nbottom = "lstm"'), "engine.bottom = 'lstm': expected another one, since no"),
        (("rounds = 40", 'rounds = 40\ntop = "resnet18"'), "system.dpzv.engine.top = 'resnet18': expected mlp, or bot"),
        (("trials = 8", "trials = -1"), "trials"),
        (("seed = 3", "seed = 3\nconfidence = 1.5"), "confidence = 1.5: expected a number < 1"),
        (("seed = 3", "seed = 3\nverdict_confidence = 0.9"), "verdict_confidence >= confidence, found 0.9 < 0.95"),
        (("seed = 3", 'seed = 3\ndevice = "tpu9"'), "device = 'tpu9': expected auto, cpu, cuda or mps"),
        (("seed = 3", 'seed = 3\naccountant = "magic"'), "accountant = 'magic': expected one of auto"),
        (("seed = 3", "seed = = 3"), "expected valid TOML"),
        (("[engine]", "[engines]"), "engines"),
    ],
)
def test_mistakes_are_one_line_with_field_value_and_what_was_expected(tmp_path, change, line):
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(InputError) as caught:
        build(write(tmp_path, text))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_calibration_that_cannot_work_says_which_message_is_to_blame(tmp_path):
    text = GOOD.replace("rounds = 40", 'rounds = 40\nnoise = "calibrated"\nprotect = "eavesdropper"')
    with pytest.raises(InputError, match="embedding-pair"):
        build(write(tmp_path, text))


def test_data_can_be_standardised(tmp_path):
    config = load_config(write(tmp_path, GOOD), {"data.standardise": True})
    values = torch.cat([block.flatten() for block in load_data(config).blocks])
    assert float(values.mean()) == pytest.approx(0, abs=1e-5)
    assert float(values.std()) == pytest.approx(1, abs=1e-3)
    plain = torch.cat([block.flatten() for block in load_data(load_config(write(tmp_path, GOOD))).blocks])
    assert float(plain.min()) == 0


def test_systems_need_distinct_keys(tmp_path):
    text = GOOD + '\n[[system]]\nkey = "dpzv"\n[system.engine]\nname = "split"\nrounds = 1\nbatch_size = 4\n'
    with pytest.raises(InputError, match="distinct keys"):
        load_config(write(tmp_path, text))


def test_the_papers_come_with_the_package_and_name_every_flaw():
    config = load_config(Path("papers"))
    flaws = (
        "dpzv-clip",
        "dpzv-amplification",
        "dpzv-batches",
        "dpzv-state",
        "dpzv-model",
        "vafl-rows",
        "vimadmm-duals",
    )
    assert {s.key for s in config.system} >= set(flaws)
    data = load_data(config)
    for place, section in enumerate(config.system):
        assert claims_of(build_system(config, place, data), section), section.key


def test_a_claim_of_ones_own_is_read_and_checked():
    raw = {"key": "mine", "unit": "label", "view": "device"}
    for wrong in ({}, {"epsilon": 1.0, "mu": 1.0}, {"mu": 0.5, "like": "x"}):
        with pytest.raises(InputError, match="a claim needs one of epsilon, mu and like"):
            parse_settings(ClaimConfig, {**raw, **wrong}, "claim")
    own = parse_settings(ClaimConfig, {**raw, "mu": 0.5, "delta": 1e-3}, "claim").claim({})
    assert (own.mu, own.unit.value, str(own.adversary)) == (0.5, "label", "device")
    other = parse_settings(ClaimConfig, {**raw, "like": "mine", "key": "other", "view": "server"}, "claim")
    assert other.claim({"mine": own}).mu == 0.5
    with pytest.raises(InputError, match=r"claim\.like = 'mine': expected nothing: the engine makes no claim"):
        other.claim({})


def test_a_field_of_several_types_is_named_as_the_user_wrote_it(tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text('[data]\nname = "digits"\n[engine]\nname = "split"\n[audit]\ntrials = "many"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"audit\.trials = 'many': expected"):
        load_config(path)
