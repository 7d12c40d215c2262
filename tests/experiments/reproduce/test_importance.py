"""The bars of the devices' importance: one for each device and each row whose engine has heads."""

from __future__ import annotations

import pytest

from vflpriv.experiments.curves import LearningCurve
from vflpriv.experiments.reproduce.plots import importance_plots
from vflpriv.experiments.reproduce.result import Reproduction, TrainedLine


def curve(seed: int, *norms: float) -> LearningCurve:
    return LearningCurve(seed=seed, rounds=(1,), accuracy=(0.5,), megabytes=(1.0,), importance=norms)


def line(key: str, *curves: LearningCurve) -> TrainedLine:
    return TrainedLine(key=key, title=key.upper(), engine="vimadmm", settings={}, figures=(), curves=curves)


def report(*lines: TrainedLine) -> Reproduction:
    words = dict.fromkeys(("tool_version", "name", "title", "source", "setting", "chosen", "command"), "a")
    facts = {"versions": {}, "hardware": {}, "data": {}, "target": None}
    return Reproduction(**words, **facts, seed=0, seeds=2, quick=False, confidence=0.95, lines=lines)


def test_a_table_without_printed_figures_says_so() -> None:
    assert report(line("split", curve(0))).headline == "a: nothing is printed to compare with"


def test_bars_are_means_over_seeds() -> None:
    clean, noisy = line("clean", curve(0, 1.0, 3.0), curve(1, 2.0, 5.0)), line("noisy", curve(0, 1.0, 0.5))
    (plot,) = importance_plots(report(clean, noisy, line("split", curve(0))))
    assert plot.header == ("Row", "Device 0", "Device 1")
    assert list(plot.rows) == [("CLEAN", "1.500", "4.000"), ("NOISY", "1.000", "0.500")]
    assert "CLEAN is largest at device 1; NOISY is largest at device 0" in plot.svg


def test_the_caption_says_where_heads_have_not_moved() -> None:
    still = curve(0, 1.0).model_copy(update={"importance_caveat": "The heads have hardly moved."})
    (plot,) = importance_plots(report(line("clean", curve(0, 1.0)), line("short", curve(0, 1.0), still)))
    assert plot.caption.endswith("from 0. SHORT: The heads have hardly moved.")


@pytest.mark.parametrize("norms", [(), (1.0,)])
def test_no_plot_without_heads_everywhere(norms: tuple[float, ...]) -> None:
    assert len(importance_plots(report(line("split", curve(0, *norms), curve(1, *norms))))) == bool(norms)
