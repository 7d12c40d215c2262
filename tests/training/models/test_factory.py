"""Every bottom and top model equals its plain module, replica by replica, and runs on the meta device."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from tests.training.models.builders import bottom, resnet_top, transformer_top
from tests.training.models.encoders import TOKENS, WIDTH, WORDS, checkpoint, numbers
from vflpriv.common.random import Stream
from vflpriv.data.tokens import VOCABULARY
from vflpriv.errors import InputError
from vflpriv.training.models.base import Mlp, Model, initialise, size_of
from vflpriv.training.models.heads import DropoutMlp, Linear, Sum, mask_name
from vflpriv.training.models.modules import ModuleModel
from vflpriv.training.settings import BottomKind, TopKind

CPU, META = torch.device("cpu"), torch.device("meta")
Case = tuple[Model, Tensor]


def cases() -> dict[str, Callable[[Path], Case]]:
    def ids(vocabulary: int) -> Tensor:
        texts = torch.randint(1, vocabulary, (5, TOKENS), generator=torch.Generator().manual_seed(1))
        texts[0, 3:], texts[1] = 0, 0  # a short text, and an empty one
        return texts

    def encoder(kind: str, embedding: int, **more: Any) -> Callable[[Path], Case]:
        def make(folder: Path) -> Case:
            checkpoint(folder)
            return bottom(kind, (TOKENS,), embedding, encoder=str(folder), **more), ids(WORDS)

        return make

    def encoder_top(folder: Path) -> Case:
        checkpoint(folder)
        return transformer_top(3, folder), numbers(5, TOKENS * WIDTH)

    return {
        "mlp": lambda _: (bottom("mlp", (4, 5), 3, hidden=(6,)), numbers(5, 20)),
        "linear": lambda _: (bottom("linear", (20,), 3, activate=False), numbers(5, 20)),
        "cnn2-band": lambda _: (bottom("cnn2", (4, 28), 7, hidden=(3, 4)), numbers(5, 112)),
        "cnn2-row": lambda _: (bottom("cnn2", (1, 28), 7, hidden=(3, 4)), numbers(5, 28)),
        "cnn4-patch": lambda _: (bottom("cnn4", (3, 11, 10), 7, hidden=(3, 4, 4, 5)), numbers(5, 330)),
        "resnet18-small": lambda _: (bottom("resnet18", (3, 9, 8), 7, hidden=(4,)), numbers(5, 216)),
        "resnet18-large": lambda _: (bottom("resnet18", (64, 64), 7, hidden=(2,), activate=False), numbers(2, 4096)),
        "resnet18-stem": lambda _: (bottom("resnet18-stem", (3, 8, 4), 128, hidden=(4,)), numbers(5, 96)),
        "resnet20": lambda _: (bottom("resnet20", (3, 8, 4), 7, hidden=(2,)), numbers(5, 96)),
        "lstm": lambda _: (bottom("lstm", (TOKENS,), 7, hidden=(4, 5), vocabulary=WORDS), ids(WORDS)),
        "transformer-0": encoder("transformer", 7),
        "transformer-2": encoder("transformer", 7, encoder_layers=2),
        "transformer-frozen": encoder("transformer", 7, encoder_layers=1, encoder_frozen=True),
        "transformer-embedding": encoder("transformer-embedding", TOKENS * WIDTH),
        "head-dropout": lambda _: (DropoutMlp([20, 6, 4, 3]), numbers(5, 20)),
        "top-linear": lambda _: (Linear(20, 3), numbers(5, 20)),
        "top-mlp": lambda _: (Mlp([20, 6, 4, 3], activate=False), numbers(5, 20)),
        "top-resnet18": lambda _: (resnet_top([(8, 4), (8, 4)], 3, maps=4), numbers(5, 4 * 64)),
        "top-transformer": encoder_top,
    }


CASES = cases()


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return CASES[request.param](tmp_path)


def replicas(count: int, device: torch.device = CPU) -> Stream:
    return Stream.of(3, "init", range(count), device)


@pytest.mark.parametrize(("kind", "shape"), [("cnn2", (4, 28)), ("cnn4", (3, 16, 16)), ("resnet18", (3, 16, 16))])
def test_records_are_not_alike_to_a_network_at_its_start(kind: str, shape: tuple[int, ...]) -> None:
    """Light and dark images have outputs that differ by at least a twentieth of their size."""
    draws = torch.Generator().manual_seed(0)
    images = torch.rand(64, 1, generator=draws) * torch.rand(64, math.prod(shape), generator=draws)
    model = bottom(kind, shape, 16)
    outputs = model.apply(initialise(model, replicas(3), 0), images)
    assert bool((outputs.std(1).mean(1) > 0.05 * outputs.abs().mean((1, 2))).all())


def test_every_kind_of_the_settings_is_tried() -> None:
    assert all(any(name.startswith(kind) for name in CASES) for kind in get_args(BottomKind))
    assert {f"top-{kind}" for kind in get_args(TopKind)} <= set(CASES)


def test_each_replica_equals_its_plain_module(case: Case) -> None:
    """With inputs that all replicas share, and with different inputs for each replica."""
    model, records = case
    parameters = {n: v + 0.1 * numbers(*v.shape, seed=9) for n, v in initialise(model, replicas(3), 0).items()}
    different = torch.stack([records, records.flip(0), records.roll(1, 0)])
    shared, separate = model.apply(parameters, records), model.apply(parameters, different)
    assert shared.shape[:2] == (3, len(records))
    for r in range(3):
        weights = {name: value[r] for name, value in parameters.items()}
        torch.testing.assert_close(shared[r], plain(model, weights, records), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(separate[r], plain(model, weights, different[r]), atol=1e-5, rtol=1e-4)
    assert float((shared[0] - shared[1]).abs().max()) > 1e-4  # replicas differ, so the comparison can fail


def plain(model: Model, weights: dict[str, Tensor], records: Tensor) -> Tensor:
    """The model of one replica without `vmap` or batched products."""
    if isinstance(model, ModuleModel):
        fixed = model._frozen_on(CPU)
        return torch.func.functional_call(model.module, {**fixed, **weights}, (records,))
    if isinstance(model, Linear):
        return records @ weights["weight0"]
    assert isinstance(model, Mlp)
    layers = len(model.widths) - 1
    for i in range(layers):
        records = records @ weights[f"weight{i}"] + weights[f"bias{i}"]
        records = torch.relu(records) if i + 1 < layers or model.activate else records
    return records


def test_a_replica_is_the_same_alone_and_among_others(case: Case) -> None:
    model, records = case
    many, alone = initialise(model, replicas(3), 1), initialise(model, Stream.of(3, "init", [2], CPU), 1)
    torch.testing.assert_close(model.apply(many, records)[2], model.apply(alone, records)[0], atol=1e-5, rtol=1e-4)


def test_the_gradient_of_the_summed_losses_is_that_of_each_replica(case: Case) -> None:
    model, records = case
    parameters = {name: value.requires_grad_() for name, value in initialise(model, replicas(2), 0).items()}
    outputs = model.apply(parameters, records)
    together = torch.autograd.grad(outputs.square().sum(), list(parameters.values()))
    for r in range(2):
        weights = {name: value.detach()[r].requires_grad_() for name, value in parameters.items()}
        alone = torch.autograd.grad(
            plain(model, weights, records).square().sum(), list(weights.values()), allow_unused=True
        )
        for name, ours, theirs in zip(parameters, together, alone, strict=True):
            expected = torch.zeros_like(ours[r]) if theirs is None else theirs
            torch.testing.assert_close(ours[r], expected, atol=1e-4, rtol=1e-3, msg=lambda m, name=name: f"{name}: {m}")
    assert all(bool(torch.isfinite(gradient).all()) for gradient in together)
    assert sum(float(gradient.abs().sum()) for gradient in together) > 0


def test_models_run_on_the_meta_device_and_keep_no_state(case: Case) -> None:
    model, records = case
    before = model.apply(initialise(model, replicas(2), 0), records)
    on_meta = initialise(model, replicas(2, META), 0)
    assert {value.device.type for value in on_meta.values()} == {"meta"}
    assert {name: tuple(value.shape[1:]) for name, value in on_meta.items()} == dict(model.shapes)
    assert model.apply(on_meta, records.to(META)).shape == before.shape
    torch.testing.assert_close(model.apply(initialise(model, replicas(2), 0), records), before)


def test_nothing_draws_from_the_global_generator(tmp_path: Path) -> None:
    for name, make in CASES.items():
        (tmp_path / name).mkdir()
        state = torch.get_rng_state()
        model, records = make(tmp_path / name)
        model.apply(initialise(model, replicas(2), 0), records)
        assert torch.equal(torch.get_rng_state(), state), name


def test_normalisation_starts_at_one_and_zero() -> None:
    model = bottom("resnet18", (3, 8, 8), 5, hidden=(4,))
    parameters = initialise(model, replicas(2), 0)
    assert isinstance(model, ModuleModel)
    norms = [name for name, part in model.module.named_modules() if isinstance(part, nn.GroupNorm)]
    assert len(norms) == 20  # after the first convolution, two per block, three shortcuts
    for norm in norms:
        assert bool((parameters[f"{norm}.weight"] == 1).all())
        assert bool((parameters[f"{norm}.bias"] == 0).all())
    drawn = parameters["stem.weight"]
    assert 0.9 / math.sqrt(27) < float(drawn.abs().max()) <= 1 / math.sqrt(27)


def test_resnet18_has_as_many_parameters_as_the_original() -> None:
    """He et al. 2016: 11 689 512 with 1000 classes; group normalisation has as many as batch normalisation."""
    assert size_of(bottom("resnet18", (3, 224, 224), 1000)) == 11_689_512
    stem = bottom("resnet18-stem", (3, 32, 16), 64 * 512)
    rest = resnet_top([(32, 16), (32, 16)], 10, maps=64)
    assert size_of(stem) + size_of(rest) == size_of(bottom("resnet18", (3, 32, 32), 10))


def test_resnet20_has_as_many_parameters_as_the_original() -> None:
    """He et al. 2016, Table 6: 0.27 million with 10 classes; convolutions as shortcuts add to the 269 722."""
    assert size_of(bottom("resnet20", (3, 32, 16), 10)) == 269_722 + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64


def test_the_split_resnet_equals_the_whole_one() -> None:
    """With equal first convolutions only the border between tiles differs, where a device pads its tile with zeros."""
    whole = bottom("resnet18", (3, 8, 8), 10, hidden=(4,), activate=False)
    parameters = initialise(whole, replicas(1), 0)
    image = numbers(2, 3, 8, 8)
    image[..., 3:5] = 0  # nothing at the border between the tiles
    stem = bottom("resnet18-stem", (3, 8, 4), 4 * 32, hidden=(4,))
    halves = [
        stem.apply({"convolution.weight": parameters["stem.weight"]}, half.flatten(1)) for half in image.split(4, dim=3)
    ]
    rest = resnet_top([(8, 4), (8, 4)], 10, maps=4)
    split = rest.apply({name: parameters[name] for name in rest.shapes}, torch.cat(halves, dim=-1))
    torch.testing.assert_close(split, whole.apply(parameters, image.flatten(1)), atol=1e-5, rtol=1e-4)


def test_the_lstm_equals_that_of_torch() -> None:
    model = bottom("lstm", (TOKENS,), 7, hidden=(4, 5), vocabulary=WORDS, activate=False)
    parameters = {name: value[0] for name, value in initialise(model, replicas(1), 0).items()}
    lstm = nn.LSTM(4, 5, batch_first=True)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(parameters["inputs.weight"])
        lstm.weight_hh_l0.copy_(parameters["states.weight"])
        lstm.bias_ih_l0.copy_(parameters["inputs.bias"])
        lstm.bias_hh_l0.zero_()
    ids = torch.randint(1, WORDS, (5, TOKENS), generator=torch.Generator().manual_seed(2))
    for length in (TOKENS, 2):
        _, (state, _) = lstm(parameters["words.weight"][ids[:, :length]])
        expected = state[0] @ parameters["head.0.weight"].T + parameters["head.0.bias"]
        padded = torch.where(torch.arange(TOKENS) < length, ids, 0)
        ours = model.apply({name: value.unsqueeze(0) for name, value in parameters.items()}, padded)[0]
        torch.testing.assert_close(ours, expected)
        between = torch.cat([padded[:, :1], torch.zeros(5, 1, dtype=torch.int64), padded[:, 1:-1]], dim=1)
        if length < TOKENS:  # padding is skipped wherever it is
            again = model.apply({name: value.unsqueeze(0) for name, value in parameters.items()}, between)[0]
            torch.testing.assert_close(again, expected)


def test_convolutional_bottoms_equal_the_layers_written_out() -> None:
    """Convolution, ReLU, 2x2 mean pooling while two pixels are left; then flattened (cnn2) or averaged (cnn4)."""
    for kind, shape, pools in (
        ("cnn2", (4, 28), [(2, 2), (2, 2)]),
        ("cnn2", (2, 28), [(2, 2), (1, 2)]),
        ("cnn4", (3, 11, 10), [(2, 2), (2, 2), (2, 2), (1, 1)]),
        ("cnn4", (3, 32, 34), [(2, 2)] * 4),
    ):
        model = bottom(kind, shape, 7)
        parameters = {name: value[0] for name, value in initialise(model, replicas(1), 0).items()}
        maps = records = numbers(5, *shape)
        maps = maps.unsqueeze(1) if len(shape) == 2 else maps
        for i, pool in enumerate(pools):
            weight, bias = (parameters[f"body.{3 * i}.{part}"] for part in ("weight", "bias"))
            maps = nn.functional.avg_pool2d(torch.relu(nn.functional.conv2d(maps, weight, bias, padding=1)), pool)
        flat = maps.flatten(1) if kind == "cnn2" else maps.mean((2, 3))
        expected = torch.relu(flat @ parameters["head.0.weight"].T + parameters["head.0.bias"])
        ours = model.apply({name: value.unsqueeze(0) for name, value in parameters.items()}, records.flatten(1))[0]
        torch.testing.assert_close(ours, expected)


def test_dropout_uses_the_masks_it_is_given_and_none_otherwise() -> None:
    model, plain_mlp = DropoutMlp([20, 6, 4, 3]), Mlp([20, 6, 4, 3], activate=False)
    parameters, inputs = initialise(model, replicas(2), 0), numbers(2, 5, 20)
    without = plain_mlp.apply(parameters, inputs)
    torch.testing.assert_close(model.apply(parameters, inputs), without)
    masks = [(numbers(2, 5, width, seed=width) > 0) * 2.0 for width in (6, 4)]
    hidden = inputs
    for i, mask in enumerate(masks):
        hidden = torch.relu(hidden @ parameters[f"weight{i}"] + parameters[f"bias{i}"].unsqueeze(1)) * mask
    expected = hidden @ parameters["weight2"] + parameters["bias2"].unsqueeze(1)
    named = {mask_name(i): mask for i, mask in enumerate(masks)}
    torch.testing.assert_close(model.apply({**parameters, **named}, inputs), expected)
    assert float((expected - without).abs().max()) > 1e-3


def test_sum_adds_the_devices_logits() -> None:
    logits = numbers(2, 5, 4, 3)
    model = Sum(12, 3)
    assert model.shapes == {}
    torch.testing.assert_close(model.apply({}, logits.flatten(2)), logits.sum(2))
    with pytest.raises(ValueError, match="inputs=8 to be a multiple of classes=3"):
        Sum(8, 3)


def test_models_with_equal_shapes_and_different_functions_have_different_keys() -> None:
    """A tile of 11x10 pixels and one of 10x11 have the same parameters, but neighbouring pixels differ."""
    tall, wide = bottom("cnn4", (3, 11, 10), 7), bottom("cnn4", (3, 10, 11), 7)
    assert isinstance(tall, ModuleModel)
    assert isinstance(wide, ModuleModel)
    assert tall.shapes == wide.shapes
    assert tall.key != wide.key
    assert tall.key == bottom("cnn4", (3, 11, 10), 7).key


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bottom("linear", (8,), 7, hidden=(3,)), "hidden = (3,): expected none for a linear model"),
        (lambda: bottom("cnn2", (8,), 7), "(H, W) or (C, H, W) for cnn2"),
        (lambda: bottom("cnn2", (0, 8), 7), "(H, W) or (C, H, W) for cnn2"),
        (lambda: bottom("cnn4", (3, 8, 8), 7, hidden=(3,)), "4 widths, one per convolution"),
        (lambda: bottom("resnet18-stem", (3, 8, 4), 7, hidden=(2,)), "embedding = 7: expected 64"),
        (lambda: bottom("resnet18", (3, 8, 4), 7, hidden=(2, 3)), "one width"),
        (lambda: bottom("resnet20", (3, 8, 4), 7, hidden=(2, 3)), "one width"),
        (lambda: bottom("lstm", (3, 4), 7), "blocks of (tokens,)"),
        (lambda: bottom("lstm", (3,), 7, hidden=(4,)), "two widths"),
        (lambda: bottom("transformer", (3,), 7), "a folder with config.json and model.safetensors"),
    ],
)
def test_an_error_names_the_setting_that_does_not_fit(make: Callable[[], Model], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


def test_records_of_another_width_are_refused() -> None:
    model = bottom("cnn2", (4, 28), 7)
    parameters = initialise(model, replicas(1), 0)
    for wrong in (torch.zeros(5, 111), torch.zeros(5, 4, 28), torch.zeros(112)):
        with pytest.raises(ValueError, match="Expected records of 112 values"):
            model.apply(parameters, wrong)


def test_lstm_covers_the_hashed_vocabulary() -> None:
    assert bottom("lstm", (4,), 3, vocabulary=VOCABULARY).shapes["words.weight"] == (VOCABULARY, 32)
