"""What a pair of worlds costs in `vflpriv trace`: figures that refute a claim are of what the view is sent itself."""

from __future__ import annotations

import pytest

from vflpriv import api

_CLAIM = """
[[claim]]
key = "labels"
unit = "label"
view = "{view}"
epsilon = {epsilon}
delta = 1e-5
"""

_PARTIES = """
import torch
import vflpriv

n = 20
blocks = torch.randn(n, 3), torch.randn(n, 3)
y = (blocks[0][:, 0] > 0).float()
weights = [torch.zeros(3), torch.zeros(3)]
wire = vflpriv.watch(2, labels=y.long(), classes=2)
ids = torch.arange(n)
previous = torch.zeros(n)
for t in range(4):
    scores = [x @ w for x, w in zip(blocks, weights)]
    for d, score in enumerate(scores):
        wire.up(t, d, "scores", {"score": score}, ids)
    residual = torch.sigmoid(sum(scores)) - y
    for d in (0, 1):
        noised = NOISED
        wire.down(t, d, "residuals", {"residual": noised}, ids)
        weights[d] = weights[d] - 1e-3 * blocks[d].T @ noised / n
"""

_RESPONSES = """
import torch
import vflpriv

n = 20
x = torch.randn(n, 3)
y = (x[:, 0] > 0).long()
wire = vflpriv.watch(2, labels=y, classes=2)
answers = torch.where(torch.rand(n) < torch.sigmoid(torch.tensor(1.0)), y, 1 - y)
for t, ids in enumerate(torch.randperm(n).split(10)):
    for d in (0, 1):
        wire.up(t, d, "rows", {"embedding": x[ids]}, ids)
    for d in (0, 1):
        wire.down(t, d, "residuals", {"residual": (d + 1) * answers[ids].float() - 0.5}, ids)
"""


_SAVED = _RESPONSES.replace(
    "for t, ids",
    """import io
buffer = io.BytesIO()
torch.save(answers, buffer)
buffer.seek(0)
answers = torch.load(buffer)
for t, ids""",
)
"""Whatever is sent after the answers went to a file may show them."""


def _traced(tmp_path, program: str, *, view: str, epsilon: float):
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "ledger.toml").write_text(_CLAIM.format(view=view, epsilon=epsilon))
    return api.trace(tmp_path / "train.py", rounds=4, against=tmp_path / "ledger.toml", quiet=True)


def test_what_another_device_is_sent_refutes_no_claim_about_this_one(tmp_path):
    """Device 1 is sent residuals under little noise, and what it learns moves the scores by next to nothing."""
    program = _PARTIES.replace("NOISED", "residual + (16.0 if d == 0 else 1.0) * torch.randn(n)")
    report = _traced(tmp_path, program, view="device(0)", epsilon=1.0)
    (pair,) = [pair for pair in report.pairs if pair.view == "device(0)"]
    assert report.exit_code != 1
    assert not pair.refutes
    # μ is 4 rounds of 1/16; Margin: μ = 0.125 is ε = 0.43, of 2.5 that the other device is shown.
    assert 0.3 < pair.least < 0.5
    assert pair.epsilon > 1.0
    assert not pair.exact


@pytest.mark.slow
def test_noise_that_the_next_message_takes_back_refutes_a_claim(tmp_path):
    """The last of four messages has the noise of one draw on the sum of them all."""
    program = _PARTIES.replace("NOISED", "residual + (drawn := 4.0 * torch.randn(n)) - previous")
    program = program.replace("        weights[d] = ", "        previous = drawn\n        weights[d] = ")
    report = _traced(tmp_path, program, view="devices(all)", epsilon=2.0)
    assert report.exit_code == 1
    assert report.pairs[-1].refutes


def test_answers_that_are_drawn_once_count_once_for_two_devices_and_one_epoch(tmp_path):
    report = _traced(tmp_path, _RESPONSES, view="devices(all)", epsilon=1.0)
    assert report.exit_code == 0
    assert abs((report.pairs[-1].accounted or 0.0) - 1.0) < 1e-4


def test_answers_that_went_to_a_file_count_for_what_a_party_receives_and_not_for_what_it_sends(tmp_path):
    report = _traced(tmp_path, _SAVED, view="devices(all)", epsilon=1.0)
    assert [pair.accounted for pair in report.pairs] == [pytest.approx(1.0, rel=1e-4)] * len(report.pairs)
    assert all(pair.accounted >= pair.least * (1 - 1e-4) for pair in report.pairs)
    rows = next(part for part in report.ledger.split("[[release]]") if 'kind = "rows"' in part)
    assert 'noise = "none"' in rows
    assert 'independent_of = ["label"]' in rows


_COUNTED = """
import torch
import vflpriv

n = 200
x = torch.randn(n, 3)
y = (x[:, 0] > 0).long()
wire = vflpriv.watch(1, labels=y, classes=2)
answers = torch.where(torch.rand(n) < torch.sigmoid(torch.tensor(1.0)), y, 1 - y)
ids = torch.arange(n)
for t in range(2):
    wire.up(t, 0, "rows", {"embedding": x}, ids)
    share = answers.float().sum() / n
    wire.down(t, 0, "residuals", {"residual": torch.sigmoid(x[:, 0]) - share}, ids)
"""


def test_a_count_of_answers_is_not_accused_of_what_each_answer_would_tell(tmp_path):
    # The sum of 200 such answers tells a label with ε = 0.27 at δ = 1e-5, each of them with 1.
    report = _traced(tmp_path, _COUNTED, view="device(0)", epsilon=0.8)
    assert report.exit_code == 3
    (pair,) = report.pairs
    assert pair.least == 0
    assert not pair.exact
