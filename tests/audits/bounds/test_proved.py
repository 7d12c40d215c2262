"""Bounds along operations: no search exceeds them, common clips reach them, and what is no clip has none."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy, normalize

from tests.support import ENGINES, make_system
from vflpriv.audits.bounds.proved import Following, prove
from vflpriv.audits.sensitivity import SensitivityAudit, proved_bounds
from vflpriv.core.units import Unit
from vflpriv.training.mechanisms.base import ScalarMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

B, D, C = 8, 5, 0.5
LABELS = torch.arange(B) % D
WEIGHTS = torch.randn(3, D, generator=torch.Generator().manual_seed(1))


def norms(g):
    return g.norm(dim=1, keepdim=True)


def per_record_gradients(g):
    gradients = vmap(grad(lambda w, x: (w @ x).square().sum()), in_dims=(None, 0))(WEIGHTS, g).flatten(1)
    return (gradients * (C / (norms(gradients) + 1e-6)).clamp(max=1)).sum(0)


def of_cross_entropy(g):
    with torch.enable_grad():
        scores = g.clone().requires_grad_()
        cross_entropy(scores, LABELS).backward()
    return scores.grad


def in_place(g):
    rows = g.clone()
    rows.mul_((C / (norms(g) + 1e-6)).clamp_(max=1))
    return rows.sum(0).div_(B)


def clipped(g):
    return g * (C / (g.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)


def by_parameter(g):
    """As Opacus clips: gradients of two parameters by the norm of both."""
    parts = [g[:, :2], g[:, 2:]]
    longest = torch.stack([part.norm(2, dim=-1) for part in parts], dim=1).norm(2, dim=1)
    return torch.einsum("i,i...", (C / (longest + 1e-6)).clamp(max=1.0), parts[1])


def of_a_layer(g):
    return clipped(torch.nn.functional.linear(g, WEIGHTS, torch.ones(3)).relu()).sum(0)


def of_a_network(g):
    with torch.enable_grad():
        x = g[ROWS].requires_grad_()
        hidden = torch.dropout(torch.tanh(x @ WEIGHTS.t()), 0.5, True)
        cross_entropy(torch.nn.functional.layer_norm(hidden, (3,)), LABELS[ROWS] % 3).backward()
    return clipped(x.grad)


def of_all_at_once(g):
    products = g.t() @ g
    return products * (C / (products.norm() + 1e-6)).clamp(max=1)


def of_pictures(g):
    pictures = g.reshape(B, 1, 1, D)
    hidden = torch.nn.functional.conv2d(pictures, torch.ones(2, 1, 1, 2)).flatten(1)
    return clipped(hidden).mean(0)


BOUNDED = {
    "rows of a batch": (lambda g: clipped(g[ROWS]).sum(0), 2 * C),
    "a part of the rows": (lambda g: clipped(g[1:4]).sum(0), 2 * C),
    "a layer": (of_a_layer, math.sqrt(2) * C),
    "a network": (of_a_network, 2 * C),
    "pictures": (of_pictures, 2 * C / B),
    "by the norm of all parameters": (by_parameter, 2 * C),
    "joined": (lambda g: clipped(torch.cat([g, torch.tanh(g), torch.ones(B, 1)], 1)).sum(0), 2 * C),
    "looked up": (
        lambda g: WEIGHTS.t()[g[:, 0].long().clamp(0, 4)].sum(0),
        2 * math.sqrt(3) * float(WEIGHTS.abs().max()),
    ),
    "one-hot": (lambda g: torch.nn.functional.one_hot(g[:, 0].long().clamp(0, 4), 5).double().sum(0), math.sqrt(2)),
    "factor, clamped": (lambda g: (g * (C / norms(g)).clamp(max=1)).sum(0) / B, 2 * C / B),
    "factor with an epsilon": (lambda g: (g * (C / (g.norm(dim=1) + 1e-6)).clamp(max=1).unsqueeze(1)).sum(0), 2 * C),
    "divided by max(1, norm/C)": (lambda g: (g / (norms(g) / C).clamp(min=1)).mean(0), 2 * C / B),
    "norm from below": (lambda g: (g * (C / norms(g).clamp(min=1e-12)).clamp(max=1)).sum(0), 2 * C),
    "minimum with ones": (lambda g: (g * torch.minimum(torch.ones(B, 1), C / norms(g))).sum(0), 2 * C),
    "weights by einsum": (lambda g: torch.einsum("i,ij->j", (C / (g.norm(dim=1) + 1e-6)).clamp(max=1), g), 2 * C),
    "numbers, clamped": (lambda g: g[:, 0].clamp(-C, C).mean(), 2 * C / B),
    "normalised": (lambda g: (normalize(g, dim=1) * C).sum(0), 2 * C),
    "tanh": (lambda g: torch.tanh(g).sum(0), 2 * math.sqrt(D)),
    "softmax": (lambda g: torch.softmax(g, 1).sum(0), math.sqrt(2)),
    "noised": (lambda g: (normalize(g, dim=1)).sum(0).add(3 * torch.ones(D)) / B, 2 / B),
    "through a public matrix": (lambda g: normalize(g, dim=1).sum(0) @ torch.eye(D).mul(3), 6.0),
    "in place": (in_place, 2 * C / B),
    "gradients of each record": (per_record_gradients, 2 * C),
    "gradient of the cross-entropy": (of_cross_entropy, 2 * math.sqrt(2) / B),
}
ROWS = torch.tensor([6, 1, 4, 3])
MIXED = {
    "state clipped by rows": (lambda g: clipped(g - g.mean(0)), 2 * C * math.sqrt(B)),
    "sum of clipped state": (lambda g: clipped(g @ g.t() @ g).sum(0), 2 * C * B),
    "state clipped as a whole": (of_all_at_once, 2 * C),
    "records met twice": (lambda g: clipped(g)[torch.tensor([1, 1, 2])].sum(0), 6 * C),
    "other records' rows": (lambda g: (clipped(g)[1:] + clipped(g)[:-1]).sum(0), 4 * C * math.sqrt(B - 1)),
}
"""Rows that depend on several records: every one of them may move."""
UNBOUNDED = {
    "one-sided": (lambda g: g[:, 0].clamp(max=C).mean(), "clamp without a limit below"),
    "no clip": (lambda g: g.sum(0), ""),
    "largest entry for the norm": (
        lambda g: (g * (C / g.abs().amax(1, keepdim=True)).clamp(max=1)).sum(0),
        "reciprocal",
    ),
    "norm of another tensor": (lambda g: (g * (C / (norms((g * 2).sin()) + 1e-6)).clamp(max=1)).sum(0), ""),
    "a private weight afterwards": (lambda g: (normalize(g, dim=1) * g[:, :1].exp()).sum(0), "exp"),
    "rows mixed before": (lambda g: (g - g.mean(0)).sum(0), ""),
    "nothing below the norm": (lambda g: (g * (C / norms(g))).sum(0), "mul"),
    "norm of columns": (lambda g: (g * (C / (g.norm(dim=0, keepdim=True) + 1e-6)).clamp(max=1)).sum(0), ""),
    "divided by a private number": (lambda g: normalize(g, dim=1).sum(0) / g.abs().sum(), ""),
    "overwritten afterwards": (lambda g: (normalize(g, dim=1).copy_(g)).sum(0), ""),
    "norms of other rows": (lambda g: (g[1:] * (C / (norms(g)[:-1] + 1e-6)).clamp(max=1)).sum(0), ""),
    "a batch that is normalised": (lambda g: torch.nn.functional.batch_norm(g, None, None, training=True).sum(0), ""),
    "norms of the transposed": (
        lambda g: (g[:, :5] * (1 / ((g[:5] * g[:5].t()).sum(1, keepdim=True).abs().sqrt() + 1e-9))[:1]).sum(0),
        "",
    ),
}


def moved(computation, seed=0, tries=60):
    """The largest move that a search over extreme neighbours finds."""
    generator, worst = torch.Generator().manual_seed(seed), 0.0
    base = 10 * torch.randn(B, D, generator=generator)
    for _ in range(tries):
        first, second = base.clone(), base.clone()
        row = int(torch.randint(B, (), generator=generator))
        size = 10.0 ** float(torch.randint(-2, 5, (), generator=generator))
        first[row] = size * torch.randn(D, generator=generator)
        second[row] = -first[row] if torch.rand((), generator=generator) < 0.5 else first[row].flip(0)
        gap = computation(first).double() - computation(second).double()
        worst = max(worst, float(gap.norm()))
    return worst


@pytest.mark.parametrize("name", BOUNDED)
def test_common_clips_have_a_bound_that_no_search_exceeds(name):
    """No pair moves further than the bound, whichever are drawn.

    Margin: single precision rounds a move to 1e-6 of it, and 1e-5 is allowed; on other CPUs other pairs are drawn.
    """
    computation, bound = BOUNDED[name]
    proved = prove(computation, torch.randn(B, D))
    assert proved.moves.replace == pytest.approx(bound)
    assert moved(computation) <= bound * (1 + 1e-5)


@pytest.mark.parametrize("name", MIXED)
def test_rows_of_several_records_all_move(name):
    computation, bound = MIXED[name]
    assert prove(computation, torch.randn(B, D)).moves.replace == pytest.approx(bound)
    assert moved(computation) <= bound


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_is_no_clip_has_none(name):
    computation, blamed = UNBOUNDED[name]
    proved = prove(computation, torch.randn(B, D))
    assert math.isinf(proved.moves.replace)
    assert blamed in proved.why


STEPS = {
    "permuted": lambda g: g[torch.arange(len(g)).roll(1)],
    "half": lambda g: g[: max(1, len(g) // 2)],
    "first twice": lambda g: g[torch.zeros(2, dtype=torch.int64)],
    "beside itself": lambda g: torch.cat([g, g.tanh()], 1),
    "layer norm": lambda g: torch.nn.functional.layer_norm(g, g.shape[-1:]),
    "neighbours": lambda g: g * torch.sigmoid(g.roll(1, 0)),
    "normalise": lambda g: normalize(g, dim=-1),
    "clip": lambda g: g * (C / (g.norm(dim=-1, keepdim=True) + 1e-6)).clamp(max=1),
    "clamp": lambda g: g.clamp(-1.5, 2.0),
    "rise": lambda g: g.clamp(min=-0.5),
    "tanh": torch.tanh,
    "relu": torch.relu,
    "abs": torch.abs,
    "square": torch.square,
    "softmax": lambda g: torch.softmax(g, -1),
    "double": lambda g: 2 * g,
    "negate": lambda g: -g,
    "shift": lambda g: g + 0.75,
    "twice": lambda g: g + torch.tanh(g),
    "own weight": lambda g: g * torch.sigmoid(g[..., :1]),
    "centre": lambda g: g - g.mean(0),
    "by the whole": lambda g: g * (C / (g.norm() + 1e-6)).clamp(max=1),
    "columns": lambda g: g[:, 1:],
    "wide": lambda g: g[:, :1].expand(-1, 4),
    "matrix": lambda g: g @ torch.linspace(-1, 1, 3 * g.shape[-1]).reshape(g.shape[-1], 3),
    "choose": lambda g: torch.where(g > 0.3, g, torch.tanh(g)),
}
ENDS = {
    "sum": lambda g: g.sum(0),
    "mean": lambda g: g.mean(0),
    "all": lambda g: g.sum(),
    "itself": lambda g: g,
    "products": lambda g: g.t() @ torch.tanh(g),
    "weighted": lambda g: torch.arange(1.0, 1 + len(g)) @ g,
}


@given(steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), end=st.sampled_from(sorted(ENDS)))
def test_no_neighbours_of_a_drawn_computation_are_beyond_its_bound(steps, end):
    def computation(g):
        for step in steps:
            g = STEPS[step](g)
        return ENDS[end](g)

    bound = prove(computation, torch.randn(B, D)).moves
    if bound.replace < math.inf:
        assert moved(computation, tries=20) <= bound.replace * (1 + 1e-4) + 1e-5
    if bound.remove < math.inf:
        rows = 5 * torch.randn(B, D, generator=torch.Generator().manual_seed(2))
        without = rows.clone()
        without[3] = 0
        gap = computation(rows).double() - computation(without).double()
        assert float(gap.norm()) <= bound.remove * (1 + 1e-4) + 1e-5


def test_drawn_computations_often_have_a_bound():
    """So that the test before this one looks at something."""
    bounded = sum(
        prove(lambda g, one=one, end=end: ENDS[end](STEPS[one](g)), torch.randn(B, D)).moves.replace < math.inf
        for one in STEPS
        for end in ENDS
    )
    assert bounded > 0.2 * len(STEPS) * len(ENDS)


def test_values_that_read_a_shape_alone_are_public():
    following = Following()
    with following:
        private = following.private(torch.randn(3, 2), axis=0)
        assert following.known(torch.randn_like(private)) is None
        assert following.known(private.new_zeros(4)) is None
        assert following.known(private + 1) is not None


def test_weights_that_are_drawn_bound_nothing():
    """Those of this run are short, and those of another one need not be."""
    following, drawn = Following(), torch.ones(3)
    with following:
        private = following.private(torch.randn(4, 3), axis=0)
        rows = private / private.norm(dim=1, keepdim=True).clamp(min=1.0)
        assert following.moves(rows * drawn).moves.replace == pytest.approx(2.0)
        drawn.normal_()
        for product in (rows * drawn, rows @ drawn.reshape(3, 1).exp(), rows / drawn, rows.clamp(drawn, drawn + 1)):
            assert following.moves(product).moves.replace == math.inf
        assert following.moves(clipped(rows * drawn)).moves.replace == pytest.approx(2 * C)
        assert following.moves(rows + drawn).moves.replace == pytest.approx(2.0)


def test_gradients_in_memory_of_their_own_are_what_was_copied():
    following = Following()
    with following:
        private = following.private(torch.randn(4, 3), axis=0)
        kept = torch.empty(4, 3)
        kept.copy_(clipped(private))
        assert following.moves(kept).moves.replace == pytest.approx(2 * C)


def test_what_is_computed_from_two_batches_is_known_as_such():
    following = Following()
    with following:
        private = following.private(torch.randn(6, 3), axis=0)
        first, second = private[torch.arange(3)], private[torch.arange(3, 6)]
        assert not following.of_several_batches(first.sum(0))
        assert following.of_several_batches(first.sum(0) + second.sum(0))
        assert following.of_several_batches(second @ first.sum(0))


# Mechanisms


@pytest.mark.parametrize("variant", sorted(ENGINES))
def test_every_clip_of_every_engine_is_proved_and_is_what_its_docstring_says(variant):
    system = make_system(variant)
    for mechanism in system.engine.mechanisms(system.settings, system.schedule).values():
        proved = proved_bounds(mechanism, system.schedule.batch_size)
        for unit, bound in mechanism.sensitivity.items():
            assert proved[unit].bound == pytest.approx(bound), (mechanism, unit)
            assert bool(proved[unit].why) == math.isinf(bound)


@pytest.mark.parametrize("emptied", list(Emptied))
def test_what_a_device_without_data_moves_follows_from_what_its_model_sends(emptied):
    for mechanism in (ClientClip(clip=3.0, emptied=emptied), EmbeddingClip(clip=3.0, batch_size=7, emptied=emptied)):
        proved = proved_bounds(mechanism, 7)
        assert {unit: p.bound for unit, p in proved.items()} == pytest.approx(dict(mechanism.sensitivity))


def of_two_parameters(g, shared=True):
    """Gradients of two parameters, clipped as Opacus clips them: with one factor, or each with its own."""
    parts = [g[:, :3].clone(), g[:, 3:].clone()]
    lengths = torch.stack([part.reshape(len(part), -1).norm(dim=-1) for part in parts], dim=1)
    whole = lengths.norm(2, dim=1)
    factors = [(C / ((whole if shared else part.norm(dim=1)) + 1e-6)).clamp(max=1) for part in parts]
    return [torch.einsum("i,i...", f, part) for f, part in zip(factors, parts, strict=True)]


def test_parameters_that_are_clipped_together_move_together():
    """Between two worlds all of them are at most 2 C apart, which each alone may be: their shares have names."""
    following = Following()
    with torch.no_grad(), following:
        sums = of_two_parameters(following.private(torch.randn(B, D), axis=0))
    joint = [following.columns(following.moves(total).moves.joint) for total in sums]
    ((first, bound),), ((second, other),) = (own.items() for own in joint)
    assert (first[0], first[1], second[1]) == (second[0], 0, 1)
    assert bound == other == pytest.approx(2 * C)
    generator = torch.Generator().manual_seed(0)
    for size in (0.1, 1.0, 100.0):
        own = size * torch.randn(B, D, generator=generator)
        changed = own.clone()
        changed[0] *= -1
        apart = torch.cat(of_two_parameters(own)) - torch.cat(of_two_parameters(changed))
        assert float(apart.norm()) <= 2 * C


def test_parameters_that_are_clipped_alone_share_nothing():
    following = Following()
    with torch.no_grad(), following:
        sums = of_two_parameters(following.private(torch.randn(B, D), axis=0), shared=False)
    assert not any(following.columns(following.moves(total).moves.joint) for total in sums)
    assert [following.moves(total).moves.replace for total in sums] == pytest.approx([2 * C, 2 * C])


def test_the_published_clip_has_no_bound_and_its_operation_is_named():
    proved = proved_bounds(ScalarMean(clip=C, batch_size=B, two_sided=False), B)
    assert math.isinf(proved[Unit.LABEL].bound)
    assert proved[Unit.LABEL].why == "clamp without a limit below"


def test_the_audit_says_what_is_proved_and_what_was_searched():
    system = make_system("dpzv-joint", clip=2.0)
    pairs = SensitivityAudit().search_all(
        system.engine.mechanisms(system.settings, system.schedule), batch_size=8, seed=0
    )
    assert {pair.basis for pair in pairs} == {"proved"}
    assert all("proved for all inputs" in pair.sentence for pair in pairs)
