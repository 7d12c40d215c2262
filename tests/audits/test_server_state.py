"""The state audit: published server updates carry a label over, sound ones carry exactly nothing, ledgers say which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import ENGINES, make_system
from vflpriv.audits.server_state import StateAudit
from vflpriv.core.units import Unit
from vflpriv.training.engines.dpzv import Dpzv


@pytest.mark.parametrize("update", ["sgd", "zo"])
def test_published_updates_carry_a_label_into_rounds_it_is_not_in(update):
    (finding,) = StateAudit().search(make_system(f"dpzv-{update}", rounds=30), Unit.LABEL)
    assert finding.moved > 5
    assert finding.mu > 0
    assert finding.carrier == "the server's model w0"
    assert finding.sentence.startswith(f"one record's label moved {finding.moved} of the {finding.outside} zo-scalar")


@pytest.mark.parametrize("update", ["joint", "dp-sgd", "dp-zo"])
def test_sound_updates_carry_exactly_nothing(update):
    for finding in StateAudit().moved(make_system(f"dpzv-{update}", rounds=30)):
        assert finding.inside > 0
        assert finding.outside > 0
        assert finding.moved == 0
        assert finding.largest == 0.0
        assert finding.sentence.endswith("exactly 0")


NOISED = [v for v in ENGINES if StateAudit().units(make_system(v)) and "lean" not in v]


@pytest.mark.parametrize("variant", NOISED)
def test_every_ledger_names_what_carries_a_record_over(variant):
    """And where it names a carrier, something is carried: the ledger is not merely careful."""
    findings = StateAudit().moved(make_system(variant))
    assert all(f.holds for f in findings)
    assert all(f.moved > 0 for f in findings if f.carrier is not None)


def test_a_ledger_that_keeps_silent_is_caught():
    class Silent(Dpzv):
        @staticmethod
        def releases(settings, schedule):
            return tuple(replace(r, leak=None) for r in Dpzv.releases(settings, schedule))

    one = replace(make_system("dpzv-sgd", rounds=30), engine=Silent)
    assert not any(f.holds for f in StateAudit().moved(one))


def test_full_batches_leave_nothing_to_see():
    (finding,) = StateAudit().search(make_system("dpzv-sgd", schedule="full", batch_size=60), Unit.LABEL)
    assert finding.outside == 0
    assert finding.holds


def test_zeros_for_data_are_not_zeros_on_the_wire():
    """vimadmm.txt bounds the sensitivity by C (Lemma 6), but a bottom with a bias answers zeros with something else."""
    found = {v: StateAudit().emptied(make_system(v, clip=0.5)) for v in ("vimadmm-client", "linear-admm-client")}
    (proven, published), (linear,) = found["vimadmm-client"], found["linear-admm-client"]
    assert published.published
    assert not published.holds
    assert published.declared == 0.5 < published.largest <= 1.0
    assert published.sentence.endswith("beyond the published 0.5")
    assert "does not send zeros" in published.sentence
    assert proven.holds
    assert proven.largest == published.largest
    assert linear.holds
    assert not linear.published
    assert StateAudit().emptied(make_system("dpzv-joint")) == []


def test_each_of_two_values_in_a_message_keeps_the_bound_of_one():
    """A pair moves by √2 times as much as one of its values, and the ledger counts the pair."""
    one = make_system("zoo-vfl-embedding", clip=0.5)
    (found,) = StateAudit().emptied(one)
    (clip,) = one.engine.mechanisms(one.settings, one.schedule).values()
    assert found.declared == clip.sensitivity[Unit.CLIENT_ZERO]
    assert found.holds
