"""A sensitive column is predicted from embeddings by a server and from replies by a device."""

from __future__ import annotations

import pytest

from tests.attacks.support import attack, two_blocks
from tests.support import make_system, toy_data
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary


@pytest.mark.parametrize("adversary", ["server", "device(0)"])
def test_a_sensitive_column_shows(adversary):
    """Device 1's first column is 0 or 1 and device 0 knows nothing of it: all that is right comes from the protocol."""
    data = two_blocks(6, 3, binary=1, classes=4)
    tried = attack("feature_attribute", "split-sum", data, adversary, attribute=0, rounds=24, device_rate=0.5)
    assert tried.mean.measure.name == "AUC"
    assert tried.mean.leakage.low > 0.1
    assert abs((tried.mean.blind or 0.5) - 0.5) < 0.1


def test_without_a_sensitive_column_there_is_nothing_to_guess():
    tried = attack("feature_attribute", "split-sum", two_blocks(6, 3), "server")
    assert tried.refusal == "needs a sensitive column; none is named"


@pytest.mark.parametrize("variant", ["split-concat", "cascaded"])
def test_a_training_on_other_people_tells_the_column_of_these(variant):
    data = two_blocks(6, 3, binary=1, classes=4)
    tried = attack("feature_attribute_others", variant, data, "server", attribute=0, rounds=12)
    # Margin: an AUC of 0.997.
    assert tried.mean.low > 0.9
    assert tried.mean.guesses > 200


def test_noise_at_epsilon_one_hides_it_from_who_knows_other_people():
    data, noised = two_blocks(6, 3, binary=1, classes=4), {"protection": "embedding", "clip": 1.0, "noise_std": 200.0}
    system = make_system("split-concat", data=data, rounds=8, batch_size=50, **noised)
    exposure = system.ledger.exposure(Adversary.parse("server"), Unit.FEATURES)
    assert 0.1 < AutoAccountant().budget(exposure, 1e-5).upper < 1.0
    tried = attack("feature_attribute_others", "split-concat", data, "server", attribute=0, seeds=3, **noised)
    # Margin: 0.5 with a standard error of 0.02; ε = 1 allows no AUC above 0.74.
    assert tried.mean.value < 0.6


def test_other_people_are_needed():
    tried = attack("feature_attribute_others", "split-concat", toy_data(), "server", attribute=0, batch_size=40)
    assert tried.refusal == "needs a training of its own, on held-out records with and without the attribute"
    tried = attack("feature_attribute_others", "split-concat", toy_data(), "device(0)", attribute=0)
    assert tried.refusal == "needs what the victim sends of each record; this view holds none of it"
