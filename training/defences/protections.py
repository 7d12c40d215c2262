"""Protections that engines have themselves, as defences: noised labels, noised outputs, noised gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from vflpriv.common.registry import register
from vflpriv.laws import Alibi
from vflpriv.training.defence import Defence

__all__ = [
    "AlibiLabels",
    "ClientNoise",
    "EmbeddingNoise",
    "GradientNoise",
    "MultiStage",
    "RandomisedResponse",
    "ResponseWithPrior",
]


class _OfLabels(Defence):
    """Base of defences that promise ε for a label."""

    epsilon: float = Field(1.0, gt=0, description="ε of one label")

    @property
    def promise(self) -> str:
        return f"label ε = {self.epsilon:.3g}"


@register("defence")
class RandomisedResponse(_OfLabels):
    """Each label is kept with probability e^ε/(e^ε + C - 1), once, before training; otherwise it is another one.

    Warner 1965. All that is computed from the labels afterwards is post-processing: ε-label-DP against everybody who
    does not hold the labels, whatever the engine sends.
    """

    name = "randomised-response"
    draws = False
    summary = "the server flips labels at random before training"
    source = "Warner 1965"
    switch: ClassVar[Mapping[str, str]] = {"label_protection": "rr"}
    read_from: ClassVar[Mapping[str, str]] = {"epsilon": "label_noise"}


@register("defence")
class AlibiLabels(Defence):
    """Laplace noise of this standard deviation on every entry of the one-hot labels, once, before training.

    "Antipodes of Label Differential Privacy: PATE and ALIBI" (Malek et al., NeurIPS 2021): ε = 2√2/std for a label.
    """

    name = "alibi"
    draws = False
    summary = "the server adds Laplace noise to one-hot labels before training"
    source = "Malek et al. 2021, ALIBI"
    switch: ClassVar[Mapping[str, str]] = {"label_protection": "alibi"}
    read_from: ClassVar[Mapping[str, str]] = {"noise_std": "label_noise"}
    noise_std: float = Field(2.0, gt=0, description="standard deviation of the noise on every entry")

    @property
    def promise(self) -> str:
        return f"label ε = {Alibi(self.noise_std).label_epsilon:.3g}"


@register("defence")
class ResponseWithPrior(_OfLabels):
    """Randomised response among the k likeliest classes of a prior, once for each label, at its first round.

    "Deep Learning with Label Differential Privacy" (Ghazi et al., NeurIPS 2021), Algorithm 2: k maximises
    e^ε/(e^ε + k - 1) · Σ of the k largest probabilities, with which a label drawn from the prior is kept. (The
    published code divides by e^ε + k - 2 there; its draws are the paper's.) ε holds whatever the prior, as long as it
    does not read the label: it is `prior`, or the model's prediction for the record, which other records' responses
    have taught it. A model that knows little yet predicts badly, and its answers stay: `lp-mst` first lets it learn.
    """

    name = "rr-with-prior"
    draws = False
    summary = "the server flips labels at random among the likeliest classes, once each"
    source = "Ghazi et al. 2021, RRWithPrior"
    prior: tuple[float, ...] | None = Field(
        None,
        description="the probability of each class, as everybody knows it without the labels; the model's prediction "
        "for the record if not given",
    )

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"label_protection": "rr-with-prior", "label_noise": self.epsilon, "label_prior": self.prior}


@register("defence")
class MultiStage(_OfLabels):
    """Randomised response in stages: in the first among all classes, then among those that the model holds likely.

    "Deep Learning with Label Differential Privacy" (Ghazi et al., NeurIPS 2021), Algorithm 3. Each label is drawn in
    one stage, so that ε is that of one draw. Here a label is drawn at the first round of its record in its stage, with
    the prediction that the server makes there anyway: nothing more is sent. Records whose stage has not begun are
    trained towards their own prediction, which moves nothing. Stages divide records and rounds evenly and go on with
    the model of the stage before; temperatures, mixup and the filter of the published code are left out. It pays where
    a training lasts so long that flips are learned by heart (`tests/training/mechanisms/test_priors.py`): with few
    records or rounds plain randomised response, whose model learns from all records at once, does better.
    """

    name = "lp-mst"
    draws = False
    summary = "the server flips labels at random in stages, among the classes that its model holds likely"
    source = "Ghazi et al. 2021, LP-MST"
    stages: int = Field(2, ge=2, le=100, description="number of stages, which divide rounds and records evenly")

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"label_protection": "lp-mst", "label_noise": self.epsilon, "label_stages": self.stages}


@register("defence")
class EmbeddingNoise(Defence):
    """Each record's output is clipped to a ball and noised before it is sent.

    The Gaussian mechanism on the outputs, as in VAFL. The ledger accounts for it by round and record: what ε it is
    depends on the rounds. Labels are protected only as far as outputs depend on them.
    """

    name = "embedding-noise"
    draws = False
    summary = "devices clip and noise the output of each record"
    source = "VAFL, §4"
    switch: ClassVar[Mapping[str, str]] = {"protection": "embedding"}
    read_from: ClassVar[Mapping[str, str]] = {"clip": "clip", "noise_std": "noise_std"}
    clip: float = Field(1.0, gt=0, description="bound of the L2 norm of an output")
    noise_std: float = Field(0.5, gt=0, description="standard deviation of the noise on every entry")

    @property
    def promise(self) -> str:
        return "feature ε by the ledger"


@register("defence")
class ClientNoise(Defence):
    """All outputs that a device sends in a round are clipped together and noised.

    "Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (Xie et al. 2024),
    client-level differential privacy. The ledger accounts for it.
    """

    name = "client-noise"
    draws = False
    summary = "devices clip and noise all outputs of a round together"
    source = "VIMADMM, §V"
    switch: ClassVar[Mapping[str, str]] = {"protection": "client"}
    read_from: ClassVar[Mapping[str, str]] = {"clip": "clip", "noise_std": "noise_std"}
    clip: float = Field(8.0, gt=0, description="bound of the Frobenius norm of a round's outputs")
    noise_std: float = Field(0.5, gt=0, description="standard deviation of the noise on every entry")

    @property
    def promise(self) -> str:
        return "client ε by the ledger"


@register("defence")
class GradientNoise(Defence):
    """Each record's gradient is clipped to a ball and noised before it is sent.

    Clip and Gaussian noise would bound one message, but the server's model was moved by exact labels and is in every
    later gradient: the ledger gives no credit, and it promises no ε.
    """

    name = "gradient-noise"
    draws = False
    summary = "the server clips and noises the gradient of each record"
    source = "common practice"
    read_from: ClassVar[Mapping[str, str]] = {"clip": "gradient_clip", "noise_std": "gradient_noise_std"}
    clip: float = Field(0.01, gt=0, description="bound of the L2 norm of a record's gradient of the batch mean")
    noise_std: float = Field(0.01, gt=0, description="standard deviation of the noise on every entry")
