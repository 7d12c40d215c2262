"""Tokens from states by a decoder that is learnt on made-up texts, whose states the published encoder computes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.attacks._base import few_known
from vflpriv.attacks._observations import uplinks_of
from vflpriv.attacks.text.nearest import TextLayers, TextNearest, by_token, nearest, states_alone
from vflpriv.common.registry import register
from vflpriv.common.seeds import host_generator
from vflpriv.core.attack import FeatureAuxiliary, PublishedEncoder
from vflpriv.core.views import View

__all__ = ["TextDecoder", "TextDecoderLayers"]

_RIDGE = 1e-3
_TOGETHER = 256


@register("attack")
class TextDecoder(TextNearest):
    """A linear decoder from a token's state and the mean state of its text, behind the published layers, to the state
    that the token has alone; the guess is the token whose state alone is nearest to that.

    What the layers add to a token for its neighbours is learnt on texts that the adversary makes up, whose tokens are
    drawn as often as in the few texts that it knows, and of which the published encoder computes the states. Ridge
    regression finds the decoder in closed form; where the device's states are noised, so are those that it is learnt
    from. It models a curious server, or whoever listens, that knows the encoder and a few of the device's texts.

    The inversion learnt on auxiliary text, before any optimisation, is that of "Unveiling the Vulnerability of Private
    Fine-Tuning in Split-Based Frameworks for Large Language Models" (Chen et al., CCS 2024), BiSR; its decoder is
    recurrent. The other half of BiSR matches gradients that come back from a client who keeps the labels: here the
    server computes the gradients itself, from what it holds, so that they tell it nothing about the text.

    Chance level: the share of the commonest token.
    """

    name = "text_decoder"
    summary = "decodes tokens behind public layers, learnt from texts that it makes up"
    knows = frozenset({"published", "records"})
    texts: ClassVar[int] = 1024
    """Made-up texts."""

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        return super().missing(view, auxiliary) or few_known(uplinks_of(view, auxiliary.victim), auxiliary, "states")

    def read(self, rows: Tensor, encoder: PublishedEncoder, auxiliary: FeatureAuxiliary) -> Tensor:
        made = _made_up(auxiliary, encoder, self.texts)
        sent = torch.cat([encoder.apply(ids) for ids in made.split(_TOGETHER)])
        present, padding = made != 0, (by_token(rows, encoder) == 0).all(-1)
        alone = states_alone(made, encoder)[present]
        noise = torch.from_numpy(host_generator(auxiliary.seed, "attack", 2).standard_normal(sent.shape))
        inputs = _inputs(sent + auxiliary.noise_std * noise.to(sent), present, encoder)[present]
        weights = _ridge(inputs, alone)
        decoded = _inputs(rows, ~padding, encoder) @ weights
        return nearest(decoded, encoder, 1)[..., 0].masked_fill(padding, 0)


@register("attack")
class TextDecoderLayers(TextLayers):
    """A search like that of `text_layers`, begun at what `text_decoder` reads in place of the nearest neighbours.

    These are the two stages of BiSR's forward half: a learnt inversion, then one by optimisation, here over tokens.
    Chance level: the share of the commonest token.
    """

    name = "text_decoder_layers"
    summary = "decodes tokens, then searches the text that public layers map to the states seen"
    knows = TextDecoder.knows

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        return TextDecoder().missing(view, auxiliary)

    def start(self, rows: Tensor, encoder: PublishedEncoder, auxiliary: FeatureAuxiliary) -> Tensor:
        return TextDecoder().read(rows, encoder, auxiliary)


def _made_up(auxiliary: FeatureAuxiliary, encoder: PublishedEncoder, count: int) -> Tensor:
    """(count, T) texts as long as known ones, half of their tokens drawn from these, half from the vocabulary."""
    known, generator = auxiliary.block, host_generator(auxiliary.seed, "attack", 1)
    drawn = torch.from_numpy(generator.integers(0, len(known), count)).to(known.device)
    present = known[drawn] != 0
    seen = known[known != 0]
    places = torch.from_numpy(generator.integers(0, max(1, len(seen)), (count, encoder.tokens))).to(known.device)
    others = torch.from_numpy(generator.integers(1, encoder.vocabulary, (count, encoder.tokens))).to(known.device)
    usual = torch.from_numpy(generator.integers(0, 2, (count, encoder.tokens)) == 1).to(known.device)
    return torch.where(usual, seen[places], others) * present


def _inputs(rows: Tensor, present: Tensor, encoder: PublishedEncoder) -> Tensor:
    """(n, T, 2W + 1) each token's state, the mean state of its text, and 1; texts are scaled alike, as a clip does."""
    states = by_token(rows, encoder) * present.unsqueeze(-1)
    count = present.sum(1).clamp(min=1).view(-1, 1, 1)
    states = states * count.sqrt() / states.flatten(1).norm(dim=1).clamp(min=1e-12).view(-1, 1, 1)
    mean = (states.sum(1, keepdim=True) / count).expand_as(states)
    return torch.cat((states, mean, torch.ones_like(states[..., :1])), dim=-1)


def _ridge(inputs: Tensor, targets: Tensor) -> Tensor:
    """(k, W) of inputs (n, k) and targets (n, W), in double precision."""
    x, y = inputs.double(), targets.double()
    gram = x.T @ x
    gram.diagonal().add_(_RIDGE * gram.diagonal().mean())
    weights: Tensor = torch.linalg.solve(gram, x.T @ y).to(inputs.dtype)
    return weights
