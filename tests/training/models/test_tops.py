"""Split ResNet-18 and split transformers: every engine with a server model trains both parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support import make_system, toy_data
from tests.training.models.encoders import WIDTH, WORDS, checkpoint
from vflpriv.config.loading import load_config
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.wire import Transcript, Wire
from vflpriv.errors import InputError
from vflpriv.run.systems import build_system
from vflpriv.training.models.architectures import ResNet18Rest
from vflpriv.training.models.transformer import EncoderRest

WITH_TOP = ["split-concat", "fedbcd", "vafl-concat", "vafl-tsync-some", "dpzv-joint", "zoo-vfl", "cascaded", "czofo"]
SYNCHRONOUS = ["syn-zoo-vfl"]
RECORDS, TESTS, TOKENS = 12, 6, 256


def pictures(devices: int = 2, *, classes: int = 10, contrast: float = 0.0) -> VerticalData:
    """CIFAR-10's shape: 3x32x32, cut into left and right halves; with a contrast, odd classes are brighter."""
    noise = torch.randn(RECORDS + TESTS, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(RECORDS + TESTS) % classes
    blocks = (noise + contrast * (2 * (labels % 2) - 1).reshape(-1, 1, 1, 1)).tensor_split(devices, dim=3)
    return VerticalData(
        name="pictures",
        classes=classes,
        blocks=tuple(b[:RECORDS].contiguous() for b in blocks),
        labels=labels[:RECORDS],
        test_blocks=tuple(b[RECORDS:].contiguous() for b in blocks),
        test_labels=labels[RECORDS:],
        grid=(1, devices),
    )


def texts(vocabulary: int | None = WORDS) -> VerticalData:
    """IMDb's shape: one device with 256 token ids, texts of several lengths; the classes use different words."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(RECORDS + TESTS) % 2
    ids = torch.randint(1, WORDS // 2, (RECORDS + TESTS, TOKENS), generator=generator)
    ids += WORDS // 2 * labels.unsqueeze(1)
    ids[torch.arange(TOKENS) >= torch.randint(1, TOKENS + 1, (RECORDS + TESTS, 1), generator=generator)] = 0
    return VerticalData(
        name="texts",
        classes=2,
        blocks=(ids[:RECORDS],),
        labels=labels[:RECORDS],
        test_blocks=(ids[RECORDS:],),
        test_labels=labels[RECORDS:],
        vocabulary=vocabulary,
    )


def with_top(
    variant: str, kind: str, folder: Path, *, images: VerticalData | None = None, filters: int = 2, **changes: Any
) -> System:
    if kind == "resnet18":
        data = images or pictures()
        parts = {"bottom": "resnet18-stem", "hidden": (filters,), "embedding": filters * 32 * 16}
    else:
        checkpoint(folder, positions=TOKENS)
        data, parts = texts(), {"bottom": "transformer-embedding", "encoder": str(folder), "embedding": TOKENS * WIDTH}
    if variant.startswith("vafl-tsync") and data.devices == 1:
        changes = {"together": 1, **changes}
    return make_system(
        variant, data=data, top=kind, top_hidden=(), **{"rounds": 2, "batch_size": 4, **parts, **changes}
    )


@pytest.mark.parametrize("kind", ["resnet18", "transformer"])
@pytest.mark.parametrize("variant", WITH_TOP + SYNCHRONOUS)
def test_replicas_are_independent_and_both_parts_are_trained(variant: str, kind: str, tmp_path: Path) -> None:
    system = with_top(variant, kind, tmp_path)
    sent, engines = {}, {}
    for replicas in ((3, 0), (0,)):
        transcript = Transcript()
        engines[replicas] = system.train(replicas)
        before = {name: value.clone() for name, value in engines[replicas].top_parameters.items()}
        engines[replicas].run(Wire(transcript))
        sent[replicas] = transcript.messages
    for together, alone in zip(sent[3, 0], sent[0,], strict=True):
        for name, tensor in alone.tensors.items():
            torch.testing.assert_close(together.tensors[name][1], tensor[0], rtol=2e-3, atol=2e-3)
    engine = engines[0,]
    expected = {"resnet18": ResNet18Rest, "transformer": EncoderRest}[kind]
    assert isinstance(engine.top.module, expected)
    moved = [name for name, value in engine.top_parameters.items() if not torch.equal(value, before[name])]
    assert {name.partition(".")[0] for name in moved} >= {"head", "trunk" if kind == "resnet18" else "layers"}
    evaluation = engine.evaluate()
    assert bool(torch.isfinite(evaluation.loss).all())


@pytest.mark.parametrize("kind", ["resnet18", "transformer"])
@pytest.mark.parametrize("variant", WITH_TOP + SYNCHRONOUS)
def test_one_round_runs_on_the_meta_device(variant: str, kind: str, tmp_path: Path) -> None:
    wire = Wire()
    system = with_top(variant, kind, tmp_path)
    meta = System(**{**vars(system), "torch_device": torch.device("meta")})
    meta.train((0, 1)).round(0, wire)
    assert wire.traffic.total > 0


@pytest.mark.parametrize("variant", [*WITH_TOP, *SYNCHRONOUS, "vafl-weighted"])
def test_the_linear_top_has_no_bias_and_is_trained(variant: str) -> None:
    system = make_system(variant, top="linear", top_hidden=(), rounds=3)
    together, alone = system.train((3, 0)), system.train((0,))
    before = together.top_parameters["weight0"].clone()
    together.run(Wire())
    alone.run(Wire())
    assert set(together.top_parameters) <= {"weight0", "combination"}
    assert not torch.equal(together.top_parameters["weight0"], before)
    torch.testing.assert_close(together.top_parameters["weight0"][1], alone.top_parameters["weight0"][0])


def test_the_split_resnet_learns(tmp_path: Path) -> None:
    """Margin: bright and dark images are told apart; seeds 0 to 7 end at a thirtieth of the loss or less."""
    images = pictures(classes=2, contrast=3.0)
    changes = {"rounds": 30, "batch_size": RECORDS, "device_rate": 0.03, "server_rate": 0.03}
    before, after = losses(with_top("split-concat", "resnet18", tmp_path, images=images, filters=8, **changes))
    assert after < 0.3 * before


def test_the_split_transformer_learns(tmp_path: Path) -> None:
    """Margin: the classes use different words, which a few steps tell apart."""
    changes = {"rounds": 25, "batch_size": RECORDS, "device_rate": 0.1, "server_rate": 0.1}
    system = with_top("split-concat", "transformer", tmp_path, **changes)
    # Random scales of normalisation layers would hide the difference between the texts.
    stored = load_file(tmp_path / "model.safetensors")
    ones = {name: torch.ones_like(v) for name, v in stored.items() if name.endswith("LayerNorm.weight")}
    save_file(stored | ones, tmp_path / "model.safetensors")
    before, after = losses(system)
    assert after < 0.6 * before


def losses(system: System) -> tuple[float, float]:
    """The loss on the training records before and after the training."""
    engine = system.train([0])
    before = float(engine.evaluate().loss)
    engine.run(Wire())
    return before, float(engine.evaluate().loss)


def test_the_embedding_width_of_a_split_network_needs_no_setting(tmp_path: Path) -> None:
    system = with_top("split-concat", "resnet18", tmp_path)
    raw = system.settings.model_dump(exclude_unset=True, exclude={"embedding"})
    settings = type(system.settings).model_validate(raw)
    assert System(**{**vars(system), "settings": settings}).train([0]).embedding == 2 * 32 * 16


def test_tiles_are_joined_to_the_image_that_they_were_cut_from() -> None:
    whole = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    cuts = {
        (1, 1): [whole],
        (2, 1): [whole[:, :, :4], whole[:, :, 4:]],
        (2, 2): [whole[:, :, :4, :4], whole[:, :, :4, 4:], whole[:, :, 4:, :4], whole[:, :, 4:, 4:]],
    }
    for grid, tiles in cuts.items():
        blocks = tuple(tile.contiguous() for tile in tiles)
        data = VerticalData(
            name="x",
            classes=2,
            blocks=blocks,
            labels=torch.tensor([0, 1, 0, 1, 0]),
            test_blocks=blocks,
            test_labels=torch.tensor([0, 1, 0, 1, 0]),
            grid=grid,
        )
        width = 2 * 64 // len(blocks)
        parts = {"bottom": "resnet18-stem", "top": "resnet18", "hidden": (2,), "embedding": width, "top_hidden": ()}
        engine = make_system("split-concat", data=data, batch_size=4, **parts).train([0])
        maps = [tile.flatten(1).unflatten(1, (3, *tile.shape[2:]))[:, :2].flatten(1) for tile in blocks]
        joined = torch.cat(maps, dim=1)
        seen = []
        handle = engine.top.module.trunk.register_forward_pre_hook(lambda _, x, seen=seen: seen.append(x[0]))
        with torch.no_grad():
            torch.func.functional_call(
                engine.top.module, {n: v[0] for n, v in engine.top_parameters.items()}, (joined,)
            )
        handle.remove()
        assert torch.equal(seen[0], whole[:, :2])


IMAGE = {"bottom": "resnet18-stem", "top": "resnet18", "hidden": (2,), "top_hidden": (), "embedding": 1024}


@pytest.mark.parametrize(
    ("variant", "data", "changes", "line"),
    [
        ("split-concat", texts, {}, "bottom = 'mlp': expected one of lstm, transformer, transformer-embedding"),
        ("vimadmm-j", texts, {}, "bottom = 'mlp': expected one of lstm"),
        ("linear-admm", texts, {}, "bottom = 'mlp': expected one of lstm"),
        ("dpzv-joint", texts, {"bottom": "cnn2"}, "bottom = 'cnn2': expected one of lstm"),
        ("split-concat", toy_data, {"bottom": "lstm"}, "bottom = 'lstm': expected another one, since no features of"),
        ("vimadmm-j", toy_data, {"bottom": "cnn2"}, "bottom = 'cnn2': expected another one, or blocks of (H, W)"),
        ("split-concat", toy_data, {"bottom": "cnn2"}, "bottom = 'cnn2': expected another one, or blocks of (H, W)"),
        ("split-concat", pictures, {"bottom": "cnn2", "hidden": (1, 2, 3)}, "hidden = (1, 2, 3): expected 2 widths"),
        ("split-concat", pictures, {"top": "resnet18"}, "top = 'resnet18': expected mlp, or bottom = resnet18-stem"),
        ("cascaded", texts, {"bottom": "lstm", "top": "transformer"}, "top = 'transformer': expected mlp, or bottom ="),
        ("vafl-weighted", pictures, IMAGE, "top = 'resnet18': expected mlp, since aggregation = weighted"),
        (
            "split-sum",
            pictures,
            IMAGE | {"top": "mlp"},
            "bottom = 'resnet18-stem': expected another one, since devices",
        ),
        ("split-concat", pictures, IMAGE | {"top_hidden": (4,)}, "top_hidden = (4,): expected none for top = resnet18"),
        ("split-concat", toy_data, {"top": "linear"}, "top_hidden = (6,): expected none for top = linear"),
        ("split-concat", pictures, IMAGE | {"embedding": 7}, "embedding = 7: expected 1024, or nothing, for bottom ="),
        (
            "split-concat",
            lambda: pictures(3),
            IMAGE,
            "bottom = 'resnet18-stem': expected another one, or blocks of one",
        ),
        ("cascaded", texts, {"bottom": "transformer-embedding"}, "encoder = None: expected a folder with config.json"),
        ("cascaded", texts, {"bottom": "transformer", "encoder": "nowhere"}, "encoder = 'nowhere/config.json': expec"),
    ],
)
def test_an_error_about_models_names_the_setting_before_and_at_training(variant, data, changes, line):
    with pytest.raises(InputError) as caught:
        make_system(variant, data=data(), **changes).train([0])
    assert str(caught.value).startswith(line)
    system = make_system(variant, data=data(), **changes)
    with pytest.raises(InputError) as checked:
        system.engine.check(system.settings, system.data)
    assert str(checked.value).startswith(line), "the check before training must give the same error"


def test_the_vocabulary_of_the_data_must_be_that_of_the_encoder(tmp_path: Path) -> None:
    checkpoint(tmp_path, positions=TOKENS)
    system = make_system(
        "split-concat", data=texts(vocabulary=99), bottom="transformer", encoder=str(tmp_path), embedding=4
    )
    with pytest.raises(InputError, match="it knows 20 token ids, and the data has 99"):
        system.train([0])


def test_the_resnet_top_needs_tiles_of_one_image() -> None:
    flat = VerticalData(**{**vars(pictures()), "grid": None})
    with pytest.raises(InputError, match="top = 'resnet18': expected mlp, or blocks that are tiles of one image"):
        make_system("split-concat", data=flat, **IMAGE).train([0])


def test_an_error_in_a_configuration_names_its_section(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[engine]\nname = "cascaded"\nrounds = 4\nbatch_size = 8\ntop = "resnet18"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"^system\.cascaded\.engine\.top = 'resnet18': expected mlp, or bottom"):
        build_system(load_config(path), 0, toy_data())
