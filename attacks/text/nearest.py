"""Tokens from embeddings: the nearest ones among those of an encoder that anybody can download."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vflpriv.attacks._base import FeatureInference
from vflpriv.attacks._observations import UPLINKS, Observation, uplinks_of
from vflpriv.common.registry import register
from vflpriv.common.seeds import host_generator
from vflpriv.core.attack import FeatureAuxiliary, Guess, PublishedEncoder
from vflpriv.core.views import View

__all__ = ["TextLayers", "TextNearest", "by_token", "nearest", "states_alone"]

_NUMBERS = 1 << 24
"""Numbers of an encoder's output that are compared at a time."""


@register("attack")
class TextNearest(FeatureInference):
    """Nearest neighbour: a token's state h is that of the token v whose published state is most like it,

        argmax_v cos(h_t, e_t(v)),

    where e_t(v) is what the published encoder computes of v in place t. It models a curious server, or whoever listens,
    that downloads the encoder from which the device started, and knows nothing else; training moves the embedding layer
    by little, so that the published one is near enough in any round. A clip of whole texts changes lengths alone, not
    the angle. A state of zeros is padding. Of noised states the mean over all rounds is compared.

    The similar attack on a language model's embedding layer is Song and Raghunathan's, "Information Leakage in
    Embedding Models", CCS 2020, section 3. Chance level: the share of the commonest token. Of many texts a random
    sample is guessed, of about 4,096 tokens.
    """

    name = "text_nearest"
    summary = "reads tokens off embeddings, as the nearest ones of the published encoder"
    needs = UPLINKS
    knows = frozenset({"published"})
    target: ClassVar[str] = "tokens"
    tokens: ClassVar[int] = 4096
    """About how many tokens are guessed, in whole texts."""

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        encoder = auxiliary.published.get(auxiliary.victim)
        if encoder is None:
            return "published weights for all of the victim's model"
        observations = uplinks_of(view, auxiliary.victim)
        if not observations:
            return "embeddings of the victim; this view holds none"
        width = observations[0].values.shape[-1]
        return None if width % encoder.tokens == 0 else "a state for each token; the device sends one for each text"

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        encoder = auxiliary.published[auxiliary.victim]
        records, rows = _sampled(uplinks_of(view, auxiliary.victim), encoder, auxiliary, self.tokens)
        tokens = self.read(rows.to(torch.float32), encoder, auxiliary)
        return Guess(records, tokens.unsqueeze(0))

    def read(self, rows: Tensor, encoder: PublishedEncoder, auxiliary: FeatureAuxiliary) -> Tensor:
        """(n, T) the tokens of texts of which these rows (n, T · W) were sent."""
        del auxiliary
        states = by_token(rows, encoder)
        return nearest(states, encoder, 1)[..., 0].masked_fill((states == 0).all(-1), 0)


@register("attack")
class TextLayers(TextNearest):
    """Discrete search behind further public layers, in which a token's state depends on the tokens around it:

        argmax_x cos(h, f(x)),

    where f(x) is what the published layers make of a text x. It starts from the nearest neighbours of the states as if
    each token were a text of nothing else, e(v). Each sweep takes the `candidates` tokens of every place whose e(v) is
    most like h - f(x) + e(x), where what the layers add to a token for its neighbours is taken off, and tries them in
    one place after another, keeping the best.

    It models whom `text_nearest` models, and needs what that needs. Discrete search for a text that a known model maps
    to a given embedding is that of "Text Embeddings Reveal (Almost) As Much As Text" (Morris et al., EMNLP 2023), with
    coordinates in the place of a learnt corrector. Chance level: the share of the commonest token. Of many texts a
    random sample is guessed, of about 512 tokens.
    """

    name = "text_layers"
    summary = "searches the text that public layers map to the states seen"
    heavy = True
    tokens = 512
    candidates: ClassVar[int] = 16
    sweeps: ClassVar[int] = 6

    def start(self, rows: Tensor, encoder: PublishedEncoder, auxiliary: FeatureAuxiliary) -> Tensor:
        """(n, T) the tokens from which it searches."""
        return super().read(rows, encoder, auxiliary)

    def read(self, rows: Tensor, encoder: PublishedEncoder, auxiliary: FeatureAuxiliary) -> Tensor:
        states, guess = by_token(rows, encoder), self.start(rows, encoder, auxiliary)
        padding = guess == 0
        for _ in range(self.sweeps):
            before, alone = guess.clone(), states_alone(guess, encoder)
            wanted = states - by_token(encoder.apply(guess), encoder) + alone
            likely = nearest(wanted, encoder, self.candidates)
            for place in range(encoder.tokens):
                guess[:, place] = _best(rows, guess, place, likely[:, place], encoder)
                guess = guess.masked_fill(padding, 0)
            if torch.equal(guess, before):
                break
        return guess


def _sampled(
    observations: list[Observation], encoder: PublishedEncoder, auxiliary: FeatureAuxiliary, tokens: int
) -> tuple[Tensor, Tensor]:
    """Some records (n,), sorted, and for each what was first sent of it; the mean of all where they are noised."""
    records = torch.cat([o.records for o in observations]).unique()
    most = max(4, tokens // encoder.tokens)
    if len(records) > most:
        drawn = host_generator(auxiliary.seed, "attack").permutation(len(records))[:most]
        records = records[torch.from_numpy(drawn).to(records.device)].sort().values
    rows = observations[0].values.new_zeros(len(records), observations[0].values.shape[-1])
    times = rows.new_zeros(len(records))
    for observation in observations:
        places = torch.searchsorted(records, observation.records).clamp(max=len(records) - 1)
        chosen = records[places] == observation.records
        if not auxiliary.noise_std:
            chosen &= times[places] == 0
        rows.index_add_(0, places[chosen], observation.values[chosen])
        times.index_add_(0, places[chosen], torch.ones_like(times[places[chosen]]))
    return records, rows / times.unsqueeze(1)


def by_token(rows: Tensor, encoder: PublishedEncoder) -> Tensor:
    """(n, T, W) of rows (n, T · W)."""
    states: Tensor = rows.unflatten(1, (encoder.tokens, -1))
    return states


def nearest(states: Tensor, encoder: PublishedEncoder, most: int) -> Tensor:
    """(n, T, most) the tokens which as texts of nothing else have the states most like these (n, T, W), best first."""
    wanted = normalize(states, dim=-1).transpose(0, 1)
    tokens = torch.empty(*wanted.shape[:2], 0, dtype=torch.int64, device=states.device)
    likeness = torch.empty(*wanted.shape[:2], 0, device=states.device)
    ids = torch.arange(1, encoder.vocabulary, device=states.device)
    for piece in ids.split(max(1, _NUMBERS // (encoder.tokens * states.shape[-1]))):
        reference = by_token(encoder.apply(piece.unsqueeze(1).expand(-1, encoder.tokens)), encoder)
        likeness = torch.cat((likeness, wanted @ normalize(reference, dim=-1).permute(1, 2, 0)), dim=2)
        tokens = torch.cat((tokens, piece.expand(*wanted.shape[:2], -1)), dim=2)
        likeness, order = likeness.topk(min(most, likeness.shape[2]), dim=2)
        tokens = tokens.gather(2, order)
    return tokens.transpose(0, 1)


def states_alone(guess: Tensor, encoder: PublishedEncoder) -> Tensor:
    """(n, T, W) the state of every token of these texts (n, T) in a text of nothing but this token."""
    tokens, where = guess.unique(return_inverse=True)
    states = by_token(encoder.apply(tokens.unsqueeze(1).expand(-1, encoder.tokens)), encoder)
    return states[where, torch.arange(encoder.tokens, device=guess.device)]


def _best(rows: Tensor, guess: Tensor, place: int, likely: Tensor, encoder: PublishedEncoder) -> Tensor:
    """(n,) of the guessed token in one place and of likely ones (n, m), that with which the texts fit best."""
    tried = torch.cat((guess[:, place : place + 1], likely), dim=1)
    texts = guess.unsqueeze(1).repeat(1, tried.shape[1], 1)
    texts[:, :, place] = tried
    made = encoder.apply(texts.flatten(0, 1)).unflatten(0, tried.shape)
    fit = (normalize(made, dim=-1) * normalize(rows, dim=-1).unsqueeze(1)).sum(-1)
    return tried.gather(1, fit.argmax(1, keepdim=True))[:, 0]
