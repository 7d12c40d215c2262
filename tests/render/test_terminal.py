"""The terminal: aligned, complete without colour, never wider than the window, never steered by a name."""

from __future__ import annotations

import io
from typing import Literal

import pytest
from rich.cells import cell_len
from rich.console import Console

from vflpriv.render.terminal import print_result
from vflpriv.report.audit import Report

SMALL = """
Claims, worst first
system           seen by             accounted,
claim            unit       claimed       paper  accounted   measured  verdict
─────────────────────────────────────────────────────────────────────────────────
dpzv             device    ε = 1.00    ε ≤ 2.90  no useful  μ ≥ 0.750  ✗ violated
dpzv-vi5-device  record   μ = 0.388   μ = 0.939      bound   ε ≥ 0.35

DPZV as published – measured for dpzv-vi5-device
                                     ε ≥    ε ≥             μ ≥  of accounted       p
canary      trials     FPR     FNR   any  Gauss    μ ≥  known σ             μ    Holm  refutes
──────────────────────────────────────────────────────────────────────────────────────────────
natural        400  47.0 %  51.0 %     0      0      0        –           0 %   1.000  no
crafted        400  37.5 %  43.0 %     0   0.76  0.310        –          33 %   1.000  no
worst-case     400  32.8 %  32.0 %  0.35   2.21  0.750        –          80 %  1.6e-8  yes

DPZV as published – premises
audit        of                        verdict       reason
────────────────────────────────────────────────────────────────────────────────────────────────────
sensitivity  scalar, clip = two-sided  ✓ consistent  none of 20000 pairs of neighbours moved scalar
                                                     by more than 0.3125
sensitivity  scalar, clip = paper      ✗ violated    min{δ, C} has no lower bound: δ = −1e6 passes

DPZV as published – attacks
                                           interval              no
attack    seen by    target  success   over records  chance  signal  guesses
────────────────────────────────────────────────────────────────────────────
label_zo  device(0)  labels   11.6 %  10.0 – 13.2 %  10.0 %       –    1,437

Not applicable, for reasons that the report gives: label_gradient.

✗ violated  dpzv, dpzv-vi5-device: With the worst-case canary a test errs less often than any test
            can under the claim: μ ≥ 0.750 at 95 % confidence against the claimed 0.388.
            $ vflpriv audit dpzv.toml --claim dpzv-vi5-device --seed 7

to change  dpzv: Calibrate the noise for known batches: noise_std 1.2 → 5.633.
to change  dpzv: Bound what one record moves.

✗ The claim is violated
"""


def shown(report: Report, width: int, *, encoding: str = "utf-8", colour: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    # Without the environment: NO_COLOR and its like are rich's to heed, and set on some machines that run the tests.
    system: Literal["standard"] | None = "standard" if colour else None
    console = Console(file=file, width=width, force_terminal=colour, color_system=system, _environ={})
    print_result(report, console)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_small_report_at_100_columns(small: Report) -> None:
    assert "\n".join(line.rstrip() for line in shown(small, 100).split("\n")) == SMALL


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_window(report: Report, hostile: Report, width: int) -> None:
    for one in (report, hostile):
        assert max(cell_len(line) for line in shown(one, width).split("\n")) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_numbers_are_never_cut(report: Report, width: int) -> None:
    text = shown(report, width)
    for expected in ("μ ≥ 0.750", "dpzv-vi5-devices", "devices(all)", "! unsupported", "1.6e-8", "100.0 %"):
        assert expected in text
    assert "…" not in text


def test_the_verdict_is_the_last_line(report: Report) -> None:
    assert shown(report, 80).rstrip().split("\n")[-1] == "✗ 2 of 5 claims are violated"
    empty = report.model_copy(update={"systems": ()})
    assert shown(empty, 80).strip() == "No claim to check"


def test_colour_adds_nothing_but_colour(report: Report) -> None:
    coloured = shown(report, 100, colour=True)
    assert "\x1b[1;31m✗ violated" in coloured
    assert "\x1b" not in shown(report, 100)


def test_names_cannot_steer_the_terminal(hostile: Report) -> None:
    text = shown(hostile, 120)
    assert "\x1b" not in text
    assert "[red]" in shown(hostile, 200)


def test_a_terminal_without_greek_letters(report: Report) -> None:
    text = shown(report, 100, encoding="ascii")
    assert "mu >=" in text
    assert "x 2 of 5 claims are violated" in text
    assert "?" not in text.replace("holds?", "")


def test_a_caveat_of_importance_is_a_sentence(small: Report) -> None:
    system = small.systems[0].model_copy(update={"importance_caveat": "The heads have hardly moved."})
    text = shown(small.model_copy(update={"systems": (system,)}), 120)
    assert "importance of each device. The heads have hardly moved." in text
    assert "hardly moved" not in shown(small, 120)
