"""All small programs, by theme."""

from __future__ import annotations

from tests.mutations.flow import (
    afterwards,
    batches_and_state,
    blind_releases,
    blind_trainings,
    clips,
    generators,
    hidden_ways,
    host_generators,
    label_choices,
    library_bugs,
    noise_laws,
    noise_structure,
    numpy_and_host,
    ordinary_scripts,
    post_processing,
    side_channels,
    statistics_released,
    trainings,
)
from tests.mutations.flow.program import TracedProgram

__all__ = ["PROGRAMS"]

_THEMES = (
    noise_structure,
    noise_laws,
    generators,
    host_generators,
    hidden_ways,
    label_choices,
    clips,
    post_processing,
    batches_and_state,
    side_channels,
    numpy_and_host,
    ordinary_scripts,
    library_bugs,
    afterwards,
    trainings,
    statistics_released,
    blind_releases,
    blind_trainings,
)
PROGRAMS: tuple[TracedProgram, ...] = tuple(program for module in _THEMES for program in module.PROGRAMS)
