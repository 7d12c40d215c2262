"""Labels from the gradients of all rounds together, by an adversary who knows what the server does to its gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelInference, sent_instead
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS
from vflpriv.attacks._estimators import posterior
from vflpriv.attacks._left_out import LeftOut, known_rows
from vflpriv.attacks._observations import by_link, known_positions, records_of, with_places
from vflpriv.attacks._samples import Sample
from vflpriv.attacks.label._mixture import Link, class_shares
from vflpriv.attacks.label.clusters import clustered
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Defences, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelRounds"]

_GRADIENTS = frozenset({"logit-gradient", "embedding-gradient"})
_PER_CLASS = 24
"""Rows of each class that a window of rounds has on average."""
_SPARSE = frozenset({"compression", "discrete", "ppdl"})
"""Defences that send zeros in place of entries."""


@register("attack")
class LabelRounds(LabelInference):
    """One label explains all gradients of a record: the likelihoods of its rounds are multiplied, by the known noise.

    In each window of rounds every class has a mean gradient; which records are of which class is found by expectation
    maximisation, beginning with what the adversary guesses by itself. A defence that bounds what one batch tells
    (MARVELL) does not bound what all of them do: `adaptive.toml` of docs/attack.md measures 97.7 % after 240 rounds,
    where directions are at 66.4 % and the adversary's own features at 90.3 %. What is public about a defence decides
    how a gradient is read:

    - laplace: entries have the Laplace likelihood of the known scale, not a normal one;
    - compression, discrete, ppdl: a zero is an entry that was not sent; which ones were sent is read, too;
    - max-norm: its noise is in a gradient's length and sign; the line that it lies on is what it was. The gradients of
      two classes share one line, and only signs are left;
    - marvell: the noise's covariance differs between the classes, and so tells them apart, too;
    - dcor, mid: they change embeddings, not what gradients tell; cae, dcae: classes are named by the known labels, not
      by entries of the gradient;
    - gradient-noise: normal noise, as in all other cases.

    A classifier of the adversary's own features (an eavesdropper's: of embeddings) that is fitted to the other records'
    probabilities gives each record's prior. Noise of many records then averages out as that of many rounds does. Of
    more than `most` records it attacks a random sample.
    """

    name = "label_rounds"
    summary = "weighs the gradients of all rounds by the known noise of the defence"
    needs = _GRADIENTS | EMBEDDING_NEEDS
    auxiliary = True
    adapts_to = frozenset(
        {
            *("laplace", "gradient-noise", "marvell", "max-norm", "compression", "discrete", "ppdl"),
            *("dcor", "mid", "cae", "dcae"),
        }
    )
    most = 2000

    def missing(self, view: View) -> str | None:
        return None if _GRADIENTS & view.kinds else f"gradients of each record; {sent_instead(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*_GRADIENTS)
        sample = Sample.draw(records_of(messages), auxiliary, self.most)
        records = sample.records
        links = [_link(of_link, records, view.classes, auxiliary.defences) for of_link in by_link(messages)]
        known, which = known_positions(records, auxiliary.records)
        labels = auxiliary.labels[which]
        rows = known_rows(view, auxiliary, records)
        start = _start(view, links, sample, auxiliary)
        classifier = None if rows is None else LeftOut(rows, auxiliary.seed)
        shares = class_shares(links, start, known, labels, classifier)
        return sample.guess(shares.argmax(-1).unsqueeze(0))


def _link(messages: Sequence[Message], records: Tensor, classes: int, defences: Defences) -> Link:
    """The gradients of one link as rows, every window scaled to a mean square of 1."""
    sent = with_places(messages, records)
    rows = torch.cat([m.tensors["gradient"][0] for m, _ in sent]).to(torch.float32)
    places = torch.cat([positions for _, positions in sent])
    sizes = [len(positions) for _, positions in sent]
    count = max(1, sum(sizes) // (_PER_CLASS * classes))
    ends = torch.tensor(sizes).cumsum(0)
    of_message = ((ends - 1) * count // max(1, sum(sizes))).repeat_interleave(torch.tensor(sizes))
    windows = of_message.to(rows.device)
    squares = torch.zeros(count, 2, device=rows.device)
    squares.index_add_(0, windows, torch.stack((rows.square().mean(1), torch.ones_like(rows[:, 0])), 1))
    scale = (squares[:, 0] / squares[:, 1].clamp(min=1)).sqrt().clamp(min=1e-30).index_select(0, windows)
    noise = defences.get("laplace", {}).get("scale")
    return Link(
        rows=_seen(rows / scale.unsqueeze(1), classes, defences),
        places=places,
        windows=windows,
        count=count,
        longest=int(of_message.bincount().max()),
        laplace=None if noise is None else (noise / scale),
        by_class="marvell" in defences,
    )


def _seen(rows: Tensor, classes: int, defences: Defences) -> Tensor:
    """What is read of gradients (m, width) under these defences."""
    if not _SPARSE.isdisjoint(defences):
        return torch.cat((rows, (rows != 0).to(rows.dtype)), dim=1)
    if "max-norm" in defences:
        units = torch.nn.functional.normalize(rows, dim=1)
        return units if classes == 2 else torch.cat((units, _lines(rows, classes)), dim=1)
    return rows


def _lines(rows: Tensor, classes: int) -> Tensor:
    """The line each row lies on, whatever its sign and length: products of its unit vector's entries."""
    width = min(classes, rows.shape[1])
    _, _, axes = torch.linalg.svd(rows.T @ rows)
    units = torch.nn.functional.normalize(rows @ axes[:width].T, dim=1)
    pairs = torch.triu_indices(width, width, device=rows.device)
    return units[:, pairs[0]] * units[:, pairs[1]]


def _start(view: View, links: Sequence[Link], sample: Sample, auxiliary: Auxiliary) -> Tensor:
    """(n, C) by the adversary's own features and the known labels; without features, clusters of the mean rows."""
    if view.own and len(auxiliary.records):
        alone = posterior([own.features for own in view.own.values()], auxiliary, view.classes)
        return alone.index_select(0, sample.records)
    columns = []
    for link in links:
        counted = torch.cat((link.rows, torch.ones_like(link.rows[:, :1])), dim=1)
        sums = torch.zeros(len(sample.records) + 1, counted.shape[1], device=counted.device)
        sums.index_add_(0, link.places, counted)
        columns.append(sums[:-1, :-1] / sums[:-1, -1:].clamp(min=1))
    clusters = clustered(torch.cat(columns, dim=1), sample.records, auxiliary, view.classes, starts=1)
    return torch.nn.functional.one_hot(clusters, view.classes).to(torch.float32)
