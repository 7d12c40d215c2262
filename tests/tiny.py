"""The smallest configuration that has a claim, trials and an attack that succeeds; it takes a second."""

from __future__ import annotations

__all__ = ["TINY"]

TINY = """
seed = 1
[data]
name = "digits"
train = 60

[[system]]
key = "sound"
[system.engine]
name = "dpzv"
rounds = 6
batch_size = 8
embedding = 3
server_update = "joint"
noise = "calibrated"
[system.audit]
trials = 4
min_trials = 4
canaries = ["worst-case"]
attacks = []
sensitivity = false
noise = false
state = false

[[system]]
key = "split"
[system.engine]
name = "split"
aggregation = "sum"
rounds = 4
batch_size = 8
[system.audit]
attacks = ["label_direct"]
sensitivity = false
noise = false
state = false
"""
