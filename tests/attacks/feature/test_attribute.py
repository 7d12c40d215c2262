"""A sensitive column is predicted from embeddings by a server and from replies by a device."""

from __future__ import annotations

import pytest

from tests.attacks.support import attack, two_blocks


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
