"""Timing, always of several calls in comparison.

A time alone depends on the machine and on what else runs there. So the compared calls run
interleaved, A B C A B C …, and each round gives a ratio: a slow second slows all calls of its
round, and the median of the ratios hardly changes.
"""

import gc
import reprlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from attnlab.core.integers import check_integer

MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Timing:
    """One of the compared calls. Quartiles are (lower, upper); ratios are to the baseline."""

    name: str
    seconds: tuple[float, ...]
    median: float
    quartiles: tuple[float, float]
    ratio: float
    ratio_quartiles: tuple[float, float]


def compare(
    functions: Mapping[str, Callable[[], object]],
    *,
    baseline: str | None = None,
    repeats: int = 20,
    warmup: int = 3,
    threads: int | None = 2,
) -> list[Timing]:
    """Time every function once per round, for `repeats` rounds after `warmup` unmeasured ones.

    Ratios are own time / time of `baseline` (the first one, unless named) of the same round; their
    median is not the ratio of the medians. `threads` is PyTorch's, set back afterwards; None keeps
    what is set.
    """
    names = _names(functions)
    baseline = _baseline(names, baseline)
    repeats = _rounds("repeats", repeats, at_least=1)
    warmup = _rounds("warmup", warmup, at_least=0)
    with thread_count(threads), _no_collection():
        for _ in range(warmup):
            for function in functions.values():
                seconds_of(function)
        rounds = [[seconds_of(function) for function in functions.values()] for _ in range(repeats)]
    columns = dict(zip(names, map(tuple, zip(*rounds, strict=True)), strict=True))
    return [_timing(name, columns[name], columns[baseline]) for name in names]


def _names(functions: object) -> list[str]:
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        raise TypeError(
            "compare needs a dict from names to functions without arguments, such as "
            f'{{"fused": lambda: fused(q, k, v)}}; got {reprlib.repr(functions)}'
        )
    return list(functions)


def _rounds(name: str, value: object, *, at_least: int) -> int:
    rounds = check_integer(name, value, at_least=at_least)
    if rounds > MOST_ROUNDS:
        raise ValueError(f"{name} should be at most {MOST_ROUNDS:,}, got {rounds:,}")
    return rounds


def _baseline(names: list[str], baseline: str | None) -> str:
    if not names:
        raise ValueError("compare needs at least one function; got none.")
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline must be one of {', '.join(names)}; got {baseline!r}.")
    return baseline or names[0]


def _timing(name: str, own: tuple[float, ...], base: tuple[float, ...]) -> Timing:
    ratios = [time / base_time for time, base_time in zip(own, base, strict=True)]
    return Timing(
        name,
        own,
        statistics.median(own),
        quartiles(own),
        statistics.median(ratios),
        quartiles(ratios),
    )


def quartiles(values: tuple[float, ...] | list[float]) -> tuple[float, float]:
    """The lower and upper quartile, by linear interpolation; of one value, that value twice."""
    if not values:
        raise ValueError("quartiles need at least one value; got none.")
    if len(values) == 1:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def seconds_of(function: Callable[[], object]) -> float:
    """The seconds of one call, its work on a GPU included; compared calls belong to `compare`."""
    _synchronize()
    start = time.perf_counter()
    result = function()
    _synchronize()
    elapsed = time.perf_counter() - start
    del result  # freeing the result is not part of the call
    return elapsed


def _synchronize() -> None:
    """Wait for the GPU, where one is in use: its kernels run on after the call has returned."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


@contextmanager
def thread_count(threads: int | None) -> Iterator[None]:
    """PyTorch's number of threads within the block; set back at its end, whatever happens."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(check_integer("threads", threads, at_least=1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_collection() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
