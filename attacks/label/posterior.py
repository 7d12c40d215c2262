"""Labels that were noised before training: the likeliest ones, by the known noise and what the adversary has itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelInference, sent_instead
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS
from vflpriv.attacks._estimators import posterior
from vflpriv.attacks._left_out import LeftOut, known_rows
from vflpriv.attacks._observations import known_positions
from vflpriv.attacks._samples import Sample
from vflpriv.attacks.label.direct import LabelDirect, LabelDual
from vflpriv.attacks.label.zo_query import LabelZoQuery
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Defences, Guess
from vflpriv.core.views import View
from vflpriv.laws import Alibi, RandomizedResponse

__all__ = ["LabelPosterior"]

_READERS: tuple[type[LabelInference], ...] = (LabelDirect, LabelDual, LabelZoQuery)
"""Attacks that read the label which was trained on off one message; the first that applies is used."""
_LEAST = 0.02
"""The least probability of a class before the record's own label is read."""


@register("attack")
class LabelPosterior(LabelInference):
    """Reads the noised label that was trained on, and asks how likely each true one is given that and one's features.

    Label noise that is drawn once cannot be averaged away over rounds, but over people: a classifier of the adversary's
    own features (an eavesdropper's: of the embeddings it saw) is fitted to all noised labels, and corrected for the
    known probability q that a label was kept, as in "Making Deep Neural Networks Robust to Label Noise: a Loss
    Correction Approach" (Patrini et al., CVPR 2017). P[y | x, read label] ∝ P[y | x] · q^[y = read] ((1-q)/(C-1))^[y ≠
    read]. It is the Bayes rule for randomised response; of other label noise the strongest entry alone is read.

    What the classifier predicts of a record from all other records' labels is no secret of this record's label, and is
    the baseline (`Guess.others`): ε bounds what the record's own noised label adds to it.
    """

    name = "label_posterior"
    summary = "weighs the noised label that it reads by the known noise and its own features"
    needs = frozenset().union(*(reader.needs for reader in _READERS)) | EMBEDDING_NEEDS
    auxiliary = True
    adapts_to = frozenset({"randomised-response", "alibi", "lp-mst", "rr-with-prior"})

    def missing(self, view: View) -> str | None:
        return f"labels that can be read; {sent_instead(view)}" if _reader(view) is None else None

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        reader = _reader(view)
        assert reader is not None, "a view that is not refused has a reader"
        guess = reader.run(view, auxiliary)
        sample = Sample.draw(guess.records, auxiliary, self.most)
        read = guess.values[0].index_select(0, sample.positions)
        rows = known_rows(view, auxiliary, sample.records)
        if rows is None:
            return _drawn_as(sample.guess(read.unsqueeze(0)), guess)
        known = _Known.of(sample.records, read, auxiliary, view.classes)
        told = posterior([rows], replace(auxiliary, records=known.places, labels=known.labels), view.classes)
        alone, whole = _posteriors(LeftOut(rows, auxiliary.seed), read, told.double(), known)
        named = _drawn_as(sample.guess(whole.argmax(-1).unsqueeze(0)), guess)
        return replace(named, others=alone.argmax(-1).unsqueeze(0))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Known:
    """The places of the records whose true label is known, these labels, and the probability that a label is kept.

    The latter is by the strengths of the defence; where labels are read with errors, it is at most what the known ones
    show, plus one standard error.
    """

    places: Tensor
    labels: Tensor
    kept: Tensor
    classes: int

    @classmethod
    def of(cls, records: Tensor, read: Tensor, auxiliary: Auxiliary, classes: int) -> _Known:
        places, which = known_positions(records, auxiliary.records)
        labels = auxiliary.labels[which]
        right, times = (read.index_select(0, places) == labels).sum().double(), len(labels)
        share = (right + 1) / (times + 2)
        shown = share + (share * (1 - share) / (times + 2)).sqrt()
        most = min(_most_kept(auxiliary.defences, classes), 1 - 1e-6)
        return cls(places=places, labels=labels, kept=shown.clamp(1.05 / classes, most), classes=classes)

    def trust(self, probabilities: Tensor) -> Tensor:
        """By how much of what is possible these probabilities (n, C) beat chance on the known labels; at least 0."""
        right = (probabilities.index_select(0, self.places).argmax(-1) == self.labels).sum().double()
        chance = 1 / self.classes
        return ((right / max(1, len(self.labels)) - chance) / (1 - chance)).clamp(min=0)


def _reader(view: View) -> LabelInference | None:
    return next((reader for reader in (kind() for kind in _READERS) if reader.refusal(view) is None), None)


def _drawn_as(named: Guess, guess: Guess) -> Guess:
    """A guess about a sample of the records that another attack guessed about, which may be a sample itself."""
    if guess.drawn is None:
        return named
    places = torch.searchsorted(guess.records, named.records)
    drawn = guess.drawn.index_select(0, places) & (True if named.drawn is None else named.drawn)
    return replace(named, drawn=drawn, population=guess.population)


def _posteriors(classifier: LeftOut, read: Tensor, told: Tensor, known: _Known) -> tuple[Tensor, Tensor]:
    """(n, C) twice: P[y | x] from the other records' labels, and with the record's own noised label too.

    The former is a mixture of the corrected classifier's and of what the few known labels say, `told` (n, C); the
    classifier, which was fitted to none of the known labels, has the weight that it earns on these.
    """
    onehot = torch.nn.functional.one_hot(read, known.classes).to(torch.float64)
    other = (1 - known.kept) / (known.classes - 1)
    # E[onehot(read) | x] = other + (kept - other) P[y | x]
    alone = ((classifier.predict(onehot) - other) / (known.kept - other)).clamp(_LEAST, 1)
    alone = alone / alone.sum(-1, keepdim=True)
    trust = known.trust(alone)
    alone = trust * alone + (1 - trust) * told
    whole = alone * torch.where(onehot > 0, known.kept, other)
    return alone, whole / whole.sum(-1, keepdim=True)


def _most_kept(defences: Defences, classes: int) -> float:
    """The probability that a label is kept, by the strengths of the defence in force; 1 without one."""
    response, alibi = defences.get("randomised-response"), defences.get("alibi")
    if response is not None:
        return RandomizedResponse(response["epsilon"]).kept(classes)
    return 1.0 if alibi is None else Alibi(alibi["noise_std"]).kept(classes)
