"""What surrogate attacks read of a view, and the clone: it finds the server's linear model from gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.attacks.label.trained.surrogates import CLASSES, WIDTH, linear_view, told
from tests.support import make_system, toy_data
from vflpriv.attacks.label.trained._surrogate import Clone, FirstPass
from vflpriv.attacks.label.trained.batch import LabelBatch
from vflpriv.attacks.label.trained.exploit import LabelExploit
from vflpriv.attacks.label.trained.pcat import LabelPcat
from vflpriv.attacks.label.trained.unsplit import LabelUnsplit
from vflpriv.core.views import View

ATTACKS = [LabelExploit, LabelUnsplit]


def test_first_pairs_belong_together_and_lie_in_the_order_of_the_rounds():
    view, _, labels = linear_view(rounds=12)
    known = told(labels)
    first = FirstPass.of(view, [known], 10_000)
    sent = {m.round: m for m in view.of_kind("embeddings")}
    times = {}
    for m in view.of_kind("embedding-gradient"):
        for row, record in enumerate(m.records.tolist()):
            if record not in times:
                times[record] = m.round
                assert torch.equal(first.embeddings[0, record], sent[m.round].tensors["embedding"][0, row])
                expected = m.tensors["gradient"][0, row] * len(m.records)
                assert torch.allclose(first.gradients[0, record], expected)
    rounds = [times[int(record)] for record in first.samples[0].records[first.order[0]]]
    assert rounds == sorted(rounds)
    assert torch.equal(first.given[0].ge(0).nonzero().flatten(), known.records)
    assert torch.equal(first.given[0, known.records], known.labels)


def test_an_answer_that_the_server_asked_for_again_is_not_taken_for_what_the_gradients_belong_to():
    view, _, labels = linear_view(rounds=4)
    stale = replace(view.of_kind("embeddings")[0], tensors={"embedding": torch.full((1, 40, WIDTH), 9.0)})
    first = FirstPass.of(replace(view, messages=(*view.messages, stale)), [told(labels)], 10_000)
    assert float(first.embeddings.max()) < 9.0


def test_the_clone_is_the_servers_model_up_to_a_shift_of_all_classes():
    view, head, labels = linear_view(rounds=8)
    known = told(labels, per_class=20)
    first = FirstPass.of(view, [known], 10_000)
    clone = Clone(first)
    shares = torch.full((1, len(labels), CLASSES), 1 / CLASSES)
    for _ in range(3):
        clone.learn(first.gradients, clone.shares(first.embeddings), labels.unsqueeze(0))
    found, truth = (w - w.mean(0) for w in (clone.head[0], head))
    assert torch.nn.functional.cosine_similarity(found, truth).min() > 0.98
    assert float((clone.fits(first.gradients, shares).argmax(2)[0] == labels).float().mean()) > 0.98


def test_cosines_are_those_with_the_gradient_of_each_label():
    view, _, labels = linear_view(rounds=4)
    first = FirstPass.of(view, [told(labels)], 50)
    clone, shares = Clone(first), torch.softmax(torch.randn(1, 50, CLASSES), 2)
    fits = clone.fits(first.gradients, shares)
    for label in range(CLASSES):
        own = (shares - torch.eye(CLASSES)[label]) @ clone.head
        expected = torch.nn.functional.cosine_similarity(own, first.gradients, dim=2)
        assert torch.allclose(fits[..., label], expected, atol=1e-5)


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_says_what_it_lacks(attack, watch):
    sums = watch(make_system("split-sum", rounds=2), "device(0)")
    assert attack().refusal(sums) == "needs gradients of embeddings; the server sends gradients of logits"
    view = watch(make_system("split-concat", rounds=2), "device(0)")
    assert attack().refusal(view) is None
    without = View(view.adversary, view.of_kind("embedding-gradient"), view.classes, view.own)
    expected = "needs the embeddings that the gradients belong to; this view holds none"
    assert attack().refusal(without) == expected
    wide = [replace(m, tensors={"embedding": torch.ones(1, 8, 9)}) for m in view.of_kind("embeddings")]
    other = View(view.adversary, (*wide, *view.of_kind("embedding-gradient")), view.classes, view.own)
    assert attack().refusal(other) == expected


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("hidden", [False, True], ids=["no defence", "constant gradients"])
def test_gradients_give_the_labels_away_and_constant_ones_do_not(attack, hidden):
    """All labels of a linear server model; where all gradients are alike, not more than the commonest label."""
    view, _, labels = linear_view(rounds=8)
    if hidden:
        flat = [replace(m, tensors={n: torch.ones_like(t) for n, t in m.tensors.items()}) for m in view.messages]
        view = replace(view, messages=tuple(flat))
    known = told(labels)
    guess = attack().run(view, known)
    counted = ~torch.isin(guess.records, known.records)
    right = float((guess.values[0][counted] == labels[guess.records[counted]]).float().mean())
    commonest = float(torch.bincount(labels).max()) / len(labels)
    assert right <= commonest + 0.02 if hidden else right > 0.99


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("value", [0.0, 1e-25, 1e25])
def test_gradients_of_any_size_are_read(attack, value, watch):
    view = watch(make_system("split-concat", rounds=4, data=toy_data(classes=2)), "devices(0, 1)")
    scaled = [
        replace(m, tensors={"gradient": m.tensors["gradient"] * value}) if m.kind == "embedding-gradient" else m
        for m in view.messages
    ]
    guess = attack().run(replace(view, messages=tuple(scaled)), told(toy_data(classes=2).labels, classes=2))
    assert set(guess.values.unique().tolist()) <= {0, 1}


@pytest.mark.parametrize("attack", [*ATTACKS, LabelBatch, LabelPcat])
def test_embeddings_of_any_rank_are_read(attack):
    view, _, labels = linear_view(rounds=8)
    square = [replace(m, tensors={n: t.unflatten(2, (2, -1)) for n, t in m.tensors.items()}) for m in view.messages]
    shaped, known = replace(view, messages=tuple(square)), told(labels)
    assert attack().refusal(shaped) is None
    assert torch.equal(attack().run(shaped, known).values, attack().run(view, known).values)
