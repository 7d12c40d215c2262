"""Computations whose results do not depend on how many threads a computer has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

__all__ = ["single_threaded"]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run every operation of torch, numpy and scipy on one thread; also a decorator of a function.

    A sum that several threads share is rounded differently for each number of them. One thread per operation gives the
    same seed the same bytes on every computer of a kind.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
