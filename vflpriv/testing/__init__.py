"""Assertions for the tests of your own mechanisms and trainings, and strategies that generate neighbouring inputs.

    from vflpriv.testing import assert_epsilon, assert_sensitivity, neighbouring_rows

A failure names the witness or the measured figure. Needs Hypothesis: `pip install 'vflpriv[test] @ git+https://github.com/vflpriv/vflpriv'`.
"""

from __future__ import annotations

from vflpriv.testing.mechanisms import Train, assert_epsilon, assert_sensitivity, assert_training_epsilon
from vflpriv.testing.neighbours import Records, neighbouring_data, neighbouring_rows
from vflpriv.testing.private import assert_private
from vflpriv.testing.twins import assert_twin_wires

__all__ = [
    "Records",
    "Train",
    "assert_epsilon",
    "assert_private",
    "assert_sensitivity",
    "assert_training_epsilon",
    "assert_twin_wires",
    "neighbouring_data",
    "neighbouring_rows",
]
