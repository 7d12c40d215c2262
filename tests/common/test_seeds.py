"""Secret keys: what is drawn under one, how it is kept for a training that is resumed, and that it shows nowhere."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from scipy import stats

from vflpriv.common.seeds import SecretKey
from vflpriv.errors import InputError

PURPOSE = bytes(range(32))


def drawn(key: SecretKey) -> list[float]:
    return [float(number) for number in key.numbers(4, 1)]


def test_words_are_those_of_chacha20():
    """RFC 8439, 2.3.2: the key 00 01 … 1f, the counter 1 and the nonce 00 00 00 09 00 00 00 4a 00 00 00 00."""
    key = SecretKey(bytes(range(32)))
    path = (int.from_bytes(b"\0\0\0\x09", "little"), int.from_bytes(b"\0\0\0\x4a", "little"), 0)
    assert key.words(2, *path, first=8).tobytes().hex() == "10f1e7e4d13b5915500fdd1fa32071c4"


def test_a_later_place_is_the_tail_of_the_sequence_and_other_paths_and_names_are_other_sequences():
    key = SecretKey.fresh()
    whole = key.words(100, 3, 1)
    for first in (0, 3, 8, 11):
        assert (key.words(100 - first, 3, 1, first=first) == whole[first:]).all()
    others = [key.words(4), key.words(4, 1), key.words(4, 0, 1), key.derived("a").words(4), key.derived("b").words(4)]
    assert len({other.tobytes() for other in others}) == len(others)


def test_numbers_and_the_generator_are_uniform_and_a_wrong_scale_is_noticed():
    """Margin: the key is fixed, so that the p-values are always the same."""
    key = SecretKey(PURPOSE)
    numbers = key.numbers(20_000, 1)
    assert numbers.min() > 0
    assert numbers.max() <= 1
    generator = key.generator("batches")
    for values in (numbers, generator.random(20_000), generator.permutation(20_000) / 20_000):
        assert stats.kstest(values, "uniform").pvalue > 1e-4
        assert stats.kstest(1.05 * values, "uniform").pvalue < 1e-9
    assert stats.kstest(generator.standard_normal(20_000), "norm").pvalue > 1e-4
    counts = np.bincount(generator.integers(0, 10, 20_000))
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_key_is_kept_for_its_owner_and_its_purpose_alone(tmp_path: Path):
    path = tmp_path / "runs" / "secret.key"
    key = SecretKey.kept(path, PURPOSE)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert drawn(SecretKey.kept(path, PURPOSE)) == drawn(key)
    assert drawn(SecretKey.kept(path, PURPOSE[::-1])) != drawn(key)


def test_a_file_that_others_can_read_and_what_is_no_file_are_refused(tmp_path: Path):
    path = tmp_path / "secret.key"
    SecretKey.kept(path, PURPOSE)
    path.chmod(0o640)
    with pytest.raises(InputError, match="640"):
        SecretKey.kept(path, PURPOSE)
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo, 0o600)
    link.symlink_to(tmp_path / "elsewhere")
    for odd in (fifo, link):
        with pytest.raises(InputError):
            SecretKey.kept(odd, PURPOSE)


def test_a_key_is_neither_shown_nor_carried_elsewhere():
    key = SecretKey(PURPOSE)
    for shown in (repr(key), str(key), f"{key}"):
        assert shown == "SecretKey()"
    carried = cloudpickle.dumps(key)
    assert PURPOSE not in carried
    for other in (cloudpickle.loads(carried), copy.deepcopy(key)):
        assert drawn(other) != drawn(key)
