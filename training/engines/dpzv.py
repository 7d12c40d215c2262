"""DPZV: zeroth-order training whose downlink is one clipped, noised scalar.

"Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order Optimization" (Zhang
et al.), Algorithm 1; equation and theorem numbers are that paper's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import available, register
from vflpriv.core.budgets import epsilon_of, mu_of
from vflpriv.core.claims import Claim
from vflpriv.core.engine import Capabilities, Contributions
from vflpriv.core.law import Law
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import FEATURE_UNITS, Unit
from vflpriv.core.views import EVERYONE, ON_THE_WIRE, UPLINK_READERS
from vflpriv.core.wire import Payload
from vflpriv.training.engines.zeroth_order import SERVER_UPDATES, Losses, ZoEngine, ZoSettings, server_mechanism
from vflpriv.training.mechanisms.base import Mechanism, NoNoise, ScalarMean
from vflpriv.training.models.finite_differences import Change, Direction, Directions, Shift, nearby
from vflpriv.training.settings import AsyncSettings, NoiseChoice, NoisedSettings

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Dpzv", "DpzvSettings"]

_NOISELESS_UPDATES = ("sgd", "zo")
_TABLE_3: Mapping[str, float] = {"clip": 10.0, "smoothing": 1e-3, "momentum": 0.9, "delta": 1e-5}
_TABLE_2: Mapping[str, Mapping[str, float]] = {
    "mnist": {"server_rate": 5e-3, "device_rate": 5e-4},
    "cifar10": {"server_rate": 5e-3, "device_rate": 1e-4},
    "modelnet40": {"server_rate": 1e-5, "device_rate": 1e-5},
    "amazon": {"server_rate": 5e-7, "device_rate": 5e-7},
}


class DpzvSettings(AsyncSettings, ZoSettings, NoisedSettings):
    """Settings of DPZV; C = 10 and λ = 1e-3 are the paper's.

    The rest of what its conference version used (Tables 2 and 3) is a `profile`, one for each of its data sets.
    """

    profile: Literal["mnist", "cifar10", "modelnet40", "amazon"] | None = Field(
        None,
        description="the published rates, momentum, clip, smoothing and delta (Tables 2 and 3 of the conference "
        "version) for one of the paper's data sets, where they are not given here",
    )
    smoothing: float = Field(1e-3, gt=0, description="λ, the step of the finite difference")
    clip: float = Field(10.0, gt=0, description="C, the bound of each record's finite difference")
    clip_rule: Literal["two-sided", "paper"] = Field(
        "two-sided", description="clamp to [-C, C], or the published min(δ, C), which bounds nothing"
    )
    server_update: Literal["sgd", "zo", "joint", "dp-sgd", "dp-zo"] = Field(
        "sgd",
        description="how the server learns: sgd (a gradient step) and zo (Algorithm 1, line 9) as published, the "
        "others with a guarantee",
    )
    noise: NoiseChoice = Field(
        "paper",
        description="noise std by Theorem VI.5, by calibration to `epsilon` for `unit` and `protect`, or as given in "
        "noise_std",
    )
    noise_law: str = Field(
        "gaussian",
        description="law of the noise on each scalar: gaussian, or any other registered one that a standard deviation, "
        "noise_std, describes, such as laplace or discrete-gaussian",
    )
    delta: float = Field(1e-3, gt=0, lt=1, description="δ at which ε is read")
    protect: str = Field("device", description="the view that calibrated noise is for")
    server_clip: float = Field(1.0, gt=0, description="clip of the server's own update, for dp-sgd and dp-zo")
    server_noise_std: float = Field(
        0.0,
        ge=0,
        description="noise std of the server's own update; with calibrated noise it may be left out, and is then as "
        "large a multiple of server_clip as noise_std is of clip",
    )
    lean: bool = Field(
        False,
        description="save memory as MeZO does: parameters are moved in place, and directions drawn anew, in pieces, "
        "instead of held; momentum draws those of the last steps anew as well, 158 of them for 0.9, and takes longer",
    )
    encrypted_uplink: bool = Field(
        False, description="embeddings travel encrypted and padded: only the server reads them, nobody on the wire"
    )

    @classmethod
    def completed(cls, raw: Mapping[str, Any]) -> dict[str, Any]:
        profile = raw.get("profile")
        published = {**_TABLE_3, **_TABLE_2[profile]} if profile in list(_TABLE_2) else {}
        return super().completed({**published, **raw})

    @field_validator("noise_law")
    @classmethod
    def _of_single_numbers(cls, value: str, info: ValidationInfo) -> str:
        usable = [name for name, law in available("law").items() if _described_by_deviation(law)]
        if value not in usable:
            raise ValueError(f"one of {', '.join(usable)}")
        if value != "gaussian" and info.data.get("noise") == "paper":
            raise ValueError("gaussian with noise = 'paper': Theorem VI.5 is about no other law")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> DpzvSettings:
        if self.profile and not self.model_fields_set.issuperset({*_TABLE_3, *_TABLE_2[self.profile]}):
            raise ValueError("a profile's settings are missing: DpzvSettings.completed puts them in")
        if self.server_adds_noise and self.server_noise_std == 0 and self.noise != "calibrated":
            raise ValueError(f"server_noise_std must be > 0 for server_update = '{self.server_update}'")
        return self

    def with_std(self, std: float) -> Self:
        own = std * self.server_clip / self.clip if self.server_adds_noise else 0.0
        return self.model_copy(update={"noise_std": std, "server_noise_std": self.server_noise_std or own})

    @property
    def server_adds_noise(self) -> bool:
        """Whether the server's own step has a clip and noise of its own."""
        return self.server_update in ("dp-sgd", "dp-zo")

    @property
    def server_learns_without_noise(self) -> bool:
        """Whether the server's model moves by exact labels, as published."""
        return self.server_update in _NOISELESS_UPDATES


@register("engine")
class Dpzv(ZoEngine):
    """Asynchronous two-point zeroth-order VFL with scalar noise; the server's table of the others' embeddings is stale.

    The finite difference divides by λ as the paper's eq. (7) does, not by 2λ as its estimator (3); the factor two is
    part of C and of the devices' rate. The two embeddings of a pair refresh the table by their mean.
    """

    name = "dpzv"
    summary = "zeroth-order, asynchronous; one clipped and noised scalar on the downlink"
    source = "DPZV, Algorithm 1"
    settings_type = DpzvSettings
    asynchronous = True
    capabilities = Capabilities(relabels=True, server_model=True)
    settings: DpzvSettings

    # Algorithm 1 ---------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        super().setup()
        s, models = self.settings, [*self.bank.models, self.top]
        mechanisms = self.mechanisms(s, self.schedule)
        self.directions = Directions(self.public_stream("directions"), models, self.schedule.turns, lean=s.lean)
        self.scalar = self.release_point("zo-scalar", mechanisms["zo-scalar"])
        if "server-update" in mechanisms:
            own = mechanisms["server-update"]
            self.server_point = self.release_point("server-update", own, stream="server-noise", internal=True)
        self.server_update = SERVER_UPDATES[s.server_update]
        self._direction: Direction | None = None

    @no_grad
    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        assert self.directions is not None
        self._direction = self.directions.at(round_, m)
        outputs = nearby(self.bank.models[m], self.bottom_parameters[m], self.inputs(m, records))
        plus, minus = outputs.either_side(Shift(self._direction, self.settings.smoothing))
        pair = {"plus": plus.transpose(1, 2), "minus": minus.transpose(1, 2)}
        return Payload("embedding-pair", pair, encrypted=self.settings.encrypted_uplink)  # eq. (6)

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, pair),) = uplinks.items()
        rows = self.refresh(m, records, torch.lerp(pair["plus"], pair["minus"], 0.5))
        step, smoothing = self.server_step(round_, records, rows), self.settings.smoothing
        change = Change(self.columns(m), (pair["plus"] - pair["minus"]).mul_(0.5))
        plus, minus = map(Losses, step.outputs.either_side(self.server_update.shift(step), change))
        delta = self.scalar.scalar(
            Contributions(
                round=round_,
                party=m,
                records=records,
                values=(plus.of(step.labels) - minus.of(step.labels)) / smoothing,  # eq. (7)
                relabelled=lambda places, labels: (plus.at(places, labels) - minus.at(places, labels)) / smoothing,
            )
        )  # eq. (8)
        self.server_update.apply(step, delta)
        return {m: Payload("zo-scalar", {"delta": delta})}

    @no_grad
    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        assert self._direction is not None
        self.move(round_, m, self._direction, reply["delta"])  # eq. (9)

    # Releases and claims -------------------------------------------------------------------------------------------

    @staticmethod
    def mechanisms(settings: DpzvSettings, schedule: Schedule) -> Mapping[str, Mechanism]:
        """The scalar's mechanism, and that of the server's own step where it has one."""
        own = server_mechanism(settings, schedule)
        return {"zo-scalar": _scalar(settings, schedule)} | ({} if own is None else {"server-update": own})

    @staticmethod
    def releases(settings: DpzvSettings, schedule: Schedule) -> tuple[Release, ...]:
        """Scalars down, embeddings up, and the server's model.

        With several devices what a record adds is not fresh: it depends on the embeddings that other devices sent last.
        """
        scalar, carried = _scalar(settings, schedule), not settings.server_learns_without_noise
        leak = StateLeak(carrier="the server's model w0", sensitivity=dict.fromkeys(Unit, scalar.span))
        down = scalar.describe(
            kind="zo-scalar",
            what="clipped mean loss difference, server to device",
            rounds=schedule.every_round,
            seen_by=EVERYONE,
            carried=carried,
            fresh=schedule.devices == 1,
            leak=None if carried else leak,
        )
        up = NoNoise(depends_on=FEATURE_UNITS).describe(
            kind="embedding-pair",
            what="embeddings, device to server",
            rounds=schedule.every_round,
            seen_by=UPLINK_READERS - ON_THE_WIRE if settings.encrypted_uplink else UPLINK_READERS,
        )
        return (down, up, *_server_releases(settings, schedule))

    @staticmethod
    def published_noise(settings: DpzvSettings, schedule: Schedule) -> float:
        """σ = 2C√T/(Dμ), Theorem VI.5."""
        mu = mu_of(settings.epsilon, settings.delta)
        return 2 * settings.clip * math.sqrt(schedule.rounds) / (schedule.records * mu)

    @staticmethod
    def claims(settings: DpzvSettings, schedule: Schedule) -> tuple[Claim, ...]:
        """Theorem VI.5 and the conference version's Corollary 5.2 and Appendix F.2 for this noise, if it is Gaussian.

        Corollary 5.2 names no reader. The server, who is sent the embeddings, has the labels; who else reads them with
        their ids is the eavesdropper.
        """
        if not settings.noise_std or settings.noise_law != "gaussian":
            return ()
        mu = 2 * settings.clip * math.sqrt(schedule.rounds) / (schedule.records * settings.noise_std)
        statement = "σ = 2C√T/(Dμ) makes the whole training μ-GDP, against one or a few curious devices"
        theorem = [
            Claim.of_mu(
                mu,
                settings.delta,
                key=key,
                source="DPZV",
                where="Theorem VI.5",
                statement=statement,
                unit=Unit.RECORD,
                view=view,
            )
            for key, view in (("dpzv-device", "device"), ("dpzv-devices", "devices(all)"))
        ]
        model = Claim.of_epsilon(
            epsilon_of(mu, settings.delta),
            settings.delta,
            key="dpzv-model",
            source="DPZV (conference)",
            where="Appendix F.2",
            statement="the final model parameters satisfy the same (ε, δ)",
            unit=Unit.RECORD,
            view="model",
        )
        embeddings = Claim.of_mu(
            mu,
            settings.delta,
            key="dpzv-embeddings",
            source="DPZV (conference)",
            where="Corollary 5.2",
            statement="with the scalars, all embeddings at any time are μ-GDP with respect to the labels",
            unit=Unit.LABEL,
            view="eavesdropper",
        )
        return (*theorem, model, embeddings)


def _described_by_deviation(law: type[Law]) -> bool:
    try:
        return law.of_deviation(1.0).independent
    except ValueError:
        return False


def _scalar(settings: DpzvSettings, schedule: Schedule) -> ScalarMean:
    std, gaussian = settings.known_std, settings.noise_law == "gaussian"
    return ScalarMean(
        noise_std=std,
        law=None if gaussian or not std else available("law")[settings.noise_law].of_deviation(std),
        clip=settings.clip,
        batch_size=schedule.batch_size,
        two_sided=settings.clip_rule == "two-sided",
        largest=int(schedule.size.max(initial=0)),
    )


def _server_releases(settings: DpzvSettings, schedule: Schedule) -> tuple[Release, ...]:
    """The trained w0 where exact labels moved it, or the server's own noised step."""
    if settings.server_learns_without_noise:
        what = "the trained w0, moved by exact labels"
        model = NoNoise(depends_on=frozenset(Unit))
        return (
            model.describe(kind="server-model", what=what, rounds=schedule.last_round, seen_by=frozenset({"model"})),
        )
    own = server_mechanism(settings, schedule)
    if own is None:
        return ()
    what = "the server's own noised step, which every later message reads"
    step = own.describe(
        kind="server-update",
        what=what,
        rounds=schedule.every_round,
        seen_by=EVERYONE,
        reaches_all=True,
        fresh=schedule.devices == 1,
    )
    return (step,)
