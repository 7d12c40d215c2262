"""Small systems that tests train: a synthetic data set and every registered engine with settings that suit it."""

from __future__ import annotations

from typing import Any

import torch

from vflpriv.common.registry import find
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System

__all__ = ["ENGINES", "make_system", "toy_data"]

# ADMM devices each close the whole gap on their own: this keeps them stable at the learning rate of the contracts.
_GENTLE: dict[str, Any] = {"penalty": 0.1, "local_steps": 2, "momentum": 0.0, "weight_decay": 0.005}
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "dpzv-sgd": ("dpzv", {"server_update": "sgd", "noise": "given", "noise_std": 0.1}),
    "dpzv-zo": ("dpzv", {"server_update": "zo", "noise": "given", "noise_std": 0.1}),
    "dpzv-joint": ("dpzv", {"server_update": "joint", "noise": "given", "noise_std": 0.1}),
    "dpzv-dp-sgd": ("dpzv", {"server_update": "dp-sgd", "noise": "given", "noise_std": 0.1, "server_noise_std": 0.1}),
    "dpzv-dp-zo": ("dpzv", {"server_update": "dp-zo", "noise": "given", "noise_std": 0.1, "server_noise_std": 0.1}),
    "dpzv-lean": ("dpzv", {"server_update": "joint", "noise": "given", "noise_std": 0.1, "lean": True}),
    "zoo-vfl": ("zoo-vfl", {}),
    "zoo-vfl-gaussian": ("zoo-vfl", {"direction": "gaussian", "label_protection": "rr", "label_noise": 3.0}),
    "zoo-vfl-embedding": ("zoo-vfl", {"protection": "embedding", "clip": 2.0, "noise_std": 0.01}),
    "zoo-vfl-sum": ("zoo-vfl", {"aggregation": "sum"}),
    "syn-zoo-vfl-sum": ("syn-zoo-vfl", {"aggregation": "sum"}),
    "cascaded-sum": ("cascaded", {"aggregation": "sum"}),
    "czofo-sum": ("czofo", {"aggregation": "sum"}),
    "syn-zoo-vfl": ("syn-zoo-vfl", {}),
    "syn-zoo-vfl-client": ("syn-zoo-vfl", {"protection": "client", "clip": 10.0, "noise_std": 0.01}),
    "cascaded": ("cascaded", {}),
    "cascaded-embedding": ("cascaded", {"protection": "embedding", "clip": 2.0, "noise_std": 0.01}),
    "czofo": ("czofo", {}),
    "czofo-gaussian": ("czofo", {"direction": "gaussian"}),
    "czofo-embedding": ("czofo", {"protection": "embedding", "clip": 2.0, "noise_std": 0.1}),
    "split-concat": ("split", {"aggregation": "concat"}),
    "split-sum": ("split", {"aggregation": "sum"}),
    "split-client": ("split", {"protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "split-some": ("split", {"together": 2, "momentum": 0.5, "protection": "embedding", "noise_std": 0.1}),
    "split-alibi": ("split", {"aggregation": "sum", "label_protection": "alibi", "label_noise": 0.5}),
    "split-rr": ("split", {"aggregation": "sum", "label_protection": "rr", "label_noise": 3.0}),
    "split-lp-mst": ("split", {"aggregation": "sum", "label_protection": "lp-mst", "label_noise": 3.0}),
    "zoo-vfl-prior": ("zoo-vfl", {"label_protection": "rr-with-prior", "label_noise": 3.0}),
    "split-guarded": ("split", {"gradient_clip": 0.1, "gradient_noise_std": 0.001}),
    "vafl-guarded": ("vafl", {"aggregation": "sum", "gradient_clip": 0.1, "gradient_noise_std": 0.001}),
    "vafl-concat": ("vafl", {"activation": "round-robin"}),
    "vafl-sum": ("vafl", {"aggregation": "sum", "regulariser": 0.001}),
    "vafl-weighted": ("vafl", {"aggregation": "weighted", "activation": "round-robin", "max_delay": 2}),
    "vafl-noise": ("vafl", {"protection": "embedding", "noise_std": 0.1, "hidden": (5,), "hidden_noise": 0.1}),
    "vafl-unclipped": ("vafl", {"protection": "unclipped", "noise_std": 0.05, "noise_place": "activation"}),
    "vafl-inside": (
        "vafl",
        {"protection": "embedding", "clip": 4.0, "noise_std": 0.05, "noise_place": "activation", "max_delay": 2},
    ),
    "vafl-client": ("vafl", {"protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "vafl-tsync-some": ("vafl-tsync", {"together": 2}),
    "vafl-tsync-all": ("vafl-tsync", {"aggregation": "weighted"}),
    "vafl-tsync-noise": ("vafl-tsync", {"together": 2, "protection": "embedding", "noise_std": 0.1, "max_delay": 3}),
    "fedbcd": ("fedbcd", {"local_steps": 3}),
    "fedbcd-client": ("fedbcd", {"local_steps": 2, "protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "fdml": ("fdml", {}),
    "fdml-client": ("fdml", {"protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "split-embedding": ("split", {"protection": "embedding", "noise_std": 0.1}),
    "vimadmm": ("vimadmm", _GENTLE),
    "vimadmm-mlp": ("vimadmm", {**_GENTLE, "heads": "mlp"}),
    "vimadmm-client": ("vimadmm", {**_GENTLE, "protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "vimadmm-alibi": ("vimadmm", {**_GENTLE, "label_protection": "alibi", "label_noise": 0.5}),
    "vimadmm-some": ("vimadmm", {**_GENTLE, "together": 2, "protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "vimadmm-j": ("vimadmm-j", _GENTLE),
    "vimadmm-j-client": ("vimadmm-j", {**_GENTLE, "protection": "client", "clip": 10.0, "noise_std": 0.1}),
    "vimadmm-j-rr": ("vimadmm-j", {**_GENTLE, "label_protection": "rr", "label_noise": 3.0}),
    "linear-admm": ("linear-admm", {}),
    "send-once": ("send-once", {"noise": "given", "noise_std": 0.01, "server_rate": 1.0}),
    "noise-once": ("noise-once", {"label_protection": "subset", "label_noise": 3.0}),
    "noise-once-features": ("noise-once", {"protection": "embedding", "clip": 1.0, "noise_std": 0.1}),
    "send-once-random": ("send-once", {"noise": "given", "noise_std": 0.01, "features": "random", "server_rate": 1.0}),
    "linear-admm-client": ("linear-admm", {"protection": "client", "clip": 10.0, "noise_std": 0.1}),
}


def toy_data(records: int = 60, devices: int = 3, classes: int = 3, seed: int = 0) -> VerticalData:
    """Separable classes: each device sees a noisy projection of the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(records + 30) % classes
    means = torch.randn(devices, classes, 5, generator=generator)
    blocks = [means[m][labels] + 0.3 * torch.randn(records + 30, 5, generator=generator) for m in range(devices)]
    return VerticalData(
        name="toy",
        classes=classes,
        blocks=tuple(b[:records] for b in blocks),
        labels=labels[:records],
        test_blocks=tuple(b[records:] for b in blocks),
        test_labels=labels[records:],
    )


def make_system(
    variant: str,
    *,
    data: VerticalData | None = None,
    seed: int = 0,
    torch_device: str = "cpu",
    rounds: int = 12,
    batch_size: int = 8,
    **changes: Any,
) -> System:
    """One of ENGINES on the toy data."""
    name, base = ENGINES[variant]
    engine = find("engine", name)
    data = data or toy_data()
    common = {"rounds": rounds, "batch_size": batch_size, "embedding": 4, "top_hidden": (6,)}
    if "smoothing" in engine.settings_type.model_fields:
        # A wider step than the default: float32 differences divided by it are then good to five digits.
        common["smoothing"] = 0.05
    settings = engine.settings_type.model_validate(engine.settings_type.completed({**common, **base, **changes}))
    schedule = engine.draw_schedule(settings, records=data.records, devices=data.devices, seed=seed)
    return System(
        key=variant,
        engine=engine,
        settings=settings,
        data=data,
        schedule=schedule,
        seed=seed,
        torch_device=torch.device(torch_device),
    )
