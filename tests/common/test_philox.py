"""The generator gives the published outputs and the same bits in C, in tensor operations and in one fused kernel."""

from __future__ import annotations

import shutil
import threading
import warnings

import numpy as np
import pytest
import torch

from tests.launches import Launches, NoCopies
from vflpriv.common import philox
from vflpriv.training.memory import LiveBytes

NOT_BUILT = "vflpriv was installed where there was no C compiler; tensor operations draw its random numbers."

# Known-answer vectors of Random123 for philox4x32-10: counter, key, output.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
PATHS = [
    (),
    (5,),
    (7, 2**32 - 1),
    (2**31, 3, 11),
    (torch.tensor([4, 5, 6]), torch.tensor([1, 0, 2**32 - 1])),
    (8, 9, torch.tensor([3, 1])),
    (torch.tensor([2]), torch.arange(0, 10, 2), 6),
    (torch.tensor([1, 2], dtype=torch.int32),),
    (torch.tensor([-1, 2**40 + 3]),),
]
SHAPES = [(1, 1), (3, 1), (200, 1), (2, 7), (5, 130), (2, 1000)]
# Drawn by tensor operations before there was an extension.
STORED_WORDS = [
    [[47768561, 255577994], [3546141382, 1873250705]],
    [[3550037259, 3411622926], [2959349483, 2335620857]],
    [[1031259000, 4150891152], [2059316411, 3471422397]],
    [[2189372609, 4074999253], [2285478953, 2691821498]],
]
STORED_UNIFORMS = [
    [0.01112198457121849, 0.826557457447052, 0.2401086986064911, 0.5097530484199524],
    [0.8256503939628601, 0.6890272498130798, 0.47947195172309875, 0.5321295261383057],
]
STORED_NORMALS = [
    [1.4608659744262695, -0.9888371825218201, -3.399845838546753, -1.5706708431243896],
    [-0.7495367527008057, -1.5194059610366821, 0.19733385741710663, 1.1483083963394165],
]


@pytest.fixture(params=["C", "tensors"])
def way(request, monkeypatch):
    if request.param == "tensors":
        monkeypatch.setattr(philox, "extension", None)
    elif not philox.compiled():
        pytest.skip(NOT_BUILT)
    return request.param


@pytest.fixture
def by_tensors(monkeypatch):
    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(philox, "extension", None)
            return function(*arguments)

    return call


def keys_of(replicas):
    return torch.from_numpy(np.random.default_rng(replicas).integers(0, 2**32, (replicas, 2)))


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_the_published_outputs(way, counter, key, expected):
    drawn = philox.words(torch.tensor([key]), counter[1:], 1, counter[0])
    assert tuple(int(word) for word in drawn) == expected
    numbers = [torch.tensor([number]) for number in counter[1:]]
    assert tuple(int(word) for word in philox.words(torch.tensor([key]), numbers, 1, counter[0])) == expected


@pytest.mark.skipif(not philox.compiled(), reason=NOT_BUILT)
@pytest.mark.parametrize(("replicas", "blocks"), SHAPES)
@pytest.mark.parametrize("path", PATHS, ids=str)
def test_c_and_tensor_operations_give_the_same_bits(by_tensors, replicas, blocks, path):
    for first in (0, 1, 12345, 2**32 - blocks):
        arguments = keys_of(replicas), path, blocks, first
        for ours, theirs in zip(philox.words(*arguments), by_tensors(philox.words, *arguments), strict=True):
            assert torch.equal(ours, theirs)
        for function in (philox.uniforms, philox.normals):
            ours, theirs = function(*arguments), by_tensors(function, *arguments)
            assert ours.dtype == torch.float32
            assert torch.equal(ours, theirs)


def test_the_numbers_of_earlier_versions(way):
    """Stored values: a seed draws what it drew when reports were first written with it."""
    keys = torch.tensor([[0x2DD9CDB5, 0x4A8B1D5E], [7, 2**32 - 1]])
    drawn = [word.tolist() for word in philox.words(keys, (5, 1), 2)]
    assert drawn == STORED_WORDS
    assert philox.uniforms(keys, (5, 1), 1).tolist() == STORED_UNIFORMS
    # The last bits of a logarithm or cosine are those of the processor.
    torch.testing.assert_close(philox.normals(keys, (5, 1), 1, 3), torch.tensor(STORED_NORMALS), rtol=1e-5, atol=1e-6)


def test_keys_need_not_be_contiguous(way):
    keys = keys_of(6)
    assert torch.equal(philox.normals(keys[::2], (1,), 3), philox.normals(keys, (1,), 3)[::2])


@pytest.mark.parametrize("path", [(1, 2), (torch.tensor([3, 4, 5]), 1)], ids=str)
def test_pieces_do_not_change_a_long_draw(way, monkeypatch, path):
    whole = philox.normals(keys_of(3), path, 251, 2)
    for size in (1, 64, 1000):
        monkeypatch.setattr(philox, "_CPU_PIECE", size)
        assert torch.equal(philox.normals(keys_of(3), path, 251, 2), whole)


def test_nothing_drawn_and_no_replicas(way):
    assert philox.normals(keys_of(2), (1,), 0).shape == (2, 0)
    assert philox.normals(keys_of(0), (1, torch.arange(3)), 5).shape == (0, 3, 20)
    assert philox.uniforms(keys_of(2), (torch.arange(0),), 5).shape == (2, 0, 20)


def test_the_default_type_of_floats_changes_nothing(way):
    expected = philox.normals(keys_of(2), (1,), 5)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(philox.normals(keys_of(2), (1,), 5), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_places_that_no_sequence_has_are_refused(way):
    keys = keys_of(2)
    with pytest.raises(ValueError, match="at most 3 numbers, got 4"):
        philox.normals(keys, (1, 2, 3, 4), 5)
    with pytest.raises(ValueError, match=r"number 1 of the path to lie in \[0, 4294967295\], got -1"):
        philox.uniforms(keys, (1, -1), 5)
    with pytest.raises(ValueError, match="first=4294967295 and first"):
        philox.words(keys, (), 2, 2**32 - 1)
    with pytest.raises((ValueError, RuntimeError)):
        philox.words(keys, (torch.arange(2), torch.arange(3)), 2)


def test_threads_draw_what_one_draws(way):
    keys, drawn = keys_of(4), {}
    threads = [
        threading.Thread(target=lambda n=n: drawn.update({n: philox.normals(keys, (n,), 5000)})) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        assert torch.equal(drawn[n], philox.normals(keys, (n,), 5000))


@pytest.mark.skipif(not philox.compiled(), reason=NOT_BUILT)
def test_the_extension_refuses_memory_that_does_not_fit():
    c, keys = philox.extension, np.zeros((2, 2), np.int64)
    target = np.zeros(8, np.float32)
    c.units(keys, 1, 2, 3, 0, 1, 0, target)
    for wrong in (
        (keys.astype(np.int32), 1, 2, 3, 0, 1, 0, target),
        (keys, 1, 2, 3, 0, 1, 0, target.astype(np.float64)),
        (keys, 1, 2, 3, 0, 1, 0, target.tolist()),
        (keys, np.zeros(2, np.float64), 2, 3, 0, 1, 0, target),
        (keys, 1, 2),
    ):
        with pytest.raises(TypeError):
            c.units(*wrong)
    fixed = target.copy()
    fixed.flags.writeable = False
    for wrong in (
        (keys, 1, 2, 3, 0, 1, 1, target),
        (keys, 1, 2, 3, 0, 1, -1, target),
        (keys, 1, 2, 3, 0, 1, 2**63 - 1, target),
        (keys, 1, 2, 3, -1, 1, 0, target),
        (keys, 1, 2, 3, 0, 0, 0, target),
        (keys, 1, 2, 3, 0, -1, 0, target),
        (keys, 1, 2, 3, 0, 1, 0, target[:7]),
        (keys, 1, 2, 3, 0, 1, 0, target[::2]),
        (keys, 1, 2, 3, 0, 1, 0, fixed),
        (keys.reshape(-1)[:3].copy(), 1, 2, 3, 0, 1, 0, target),
        (keys, np.zeros(3, np.int64), np.zeros(2, np.int64), 3, 0, 1, 0, target),
    ):
        with pytest.raises((ValueError, BufferError)):
            c.units(*wrong)
    with pytest.raises(ValueError, match="one length"):
        c.normals(target, target, target, target)
    with pytest.raises(ValueError, match="cells"):
        c.polar(keys, 1, 2, 3, 0, 2, 0, target, target[:4])


@pytest.mark.parametrize("numbers", [(3, 1), (torch.arange(4), 1, torch.arange(4))], ids=["one", "four"])
@pytest.mark.parametrize("draw", [philox.normals, philox.uniforms])
def test_without_values_sizes_and_memory_are_those_of_the_operations(monkeypatch, draw, numbers):
    keys, peaks, shapes = torch.empty(5, 2, dtype=torch.int64, device="meta"), [], []
    for ways in (philox._WAYS, {}):
        monkeypatch.setattr(philox, "_WAYS", ways)
        with LiveBytes() as tracker:
            shapes.append(draw(keys, numbers, 1000).shape)
        peaks.append(tracker.peak)
    assert shapes[0] == shapes[1]
    assert peaks[0] == pytest.approx(peaks[1], rel=1e-3)


@pytest.mark.parametrize("replicas", [1, 5])
def test_a_draw_for_resnet_18_on_an_accelerator_is_few_launches_and_no_copies(monkeypatch, replicas):
    """Ten rounds are 16 operations each; ResNet-18 has 11.7 million parameters."""
    monkeypatch.delitem(philox._WAYS, "meta")
    keys = torch.empty(replicas, 2, dtype=torch.int64, device="meta")
    with Launches() as launches, NoCopies():
        drawn = philox.normals(keys, (3, 1), 11_700_000 // 4)
    assert drawn.shape == (replicas, 11_700_000)
    assert 100 < launches.count <= 190


def test_sequences_drawn_together_are_no_more_launches(monkeypatch):
    monkeypatch.delitem(philox._WAYS, "meta")
    keys = torch.empty(2, 2, dtype=torch.int64, device="meta")
    numbers = torch.empty(32, dtype=torch.int64, device="meta")
    with Launches() as launches, NoCopies():
        assert philox.normals(keys, (numbers, numbers), 100).shape == (2, 32, 400)
    assert launches.count <= 190


def test_the_fused_kernel_is_handed_its_place_without_a_copy(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda *tensors: tensors)
    keys = torch.empty(2, 2, dtype=torch.int64, device="meta")
    with Launches() as launches, NoCopies():
        _, _, *numbers = philox.Fused()(torch.arange(5, device="meta"), keys, 1, 0, 2**32 - 1)
    assert {tuple(number.shape) for number in numbers} == {(1, 1)}
    assert launches.count <= 4


def test_without_torch_compile_the_numbers_are_the_same_and_it_is_said_once(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no Triton here\nand more")

    monkeypatch.setattr(torch, "compile", refuse)
    fused, arguments = philox.Fused(), (torch.arange(5), keys_of(3), 1, torch.tensor([[2], [3]]), 4)
    with pytest.warns(RuntimeWarning, match="torch.compile failed here: no Triton here. They"):
        drawn = fused(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = fused(*arguments)
    for parts in zip(drawn, again, philox.units(*arguments), strict=True):
        assert torch.equal(parts[0], parts[2])
        assert torch.equal(parts[1], parts[2])


def test_a_lack_of_memory_is_no_failure_of_torch_compile(monkeypatch):
    def exhaust(*_, **__):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(torch, "compile", exhaust)
    fused = philox.Fused()
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        fused(torch.arange(5), keys_of(3), 1, 2, 3)
    assert fused.works


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("c++"), reason="On a CPU, torch.compile needs a C++ compiler.")
@pytest.mark.filterwarnings("default")
def test_the_fused_kernel_gives_the_same_bits(by_tensors, monkeypatch):
    from torch._inductor import metrics

    metrics.reset()
    fused = philox.Fused()
    monkeypatch.setitem(philox._WAYS, "cpu", fused)
    for replicas, blocks, path, first in ((3, 10, (5, 2), 0), (4, 1000, (0, 1, 2**32 - 1), 2**32 - 1000)):
        arguments = keys_of(replicas), path, blocks, first
        for function in (philox.uniforms, philox.normals):
            ours = by_tensors(function, *arguments)
            monkeypatch.delitem(philox._WAYS, "cpu")
            theirs = by_tensors(function, *arguments)
            monkeypatch.setitem(philox._WAYS, "cpu", fused)
            assert torch.equal(ours, theirs)
    assert fused.works
    assert metrics.generated_kernel_count == 1, "one kernel, compiled once for all these shapes and places"
    sequences = torch.arange(5), keys_of(3), torch.tensor([[2], [3]]), 1, torch.tensor([[9]])
    for ours, theirs in zip(fused(*sequences), philox.units(*sequences), strict=True):
        assert torch.equal(ours, theirs)
    assert fused.works
