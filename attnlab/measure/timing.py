"""Timing, always of several calls in comparison.

A time alone depends on the machine and on what else runs there. So the compared calls run
interleaved, A B C A B C …, and each round gives a ratio: a slow second slows all calls of its
round, and the median of the ratios hardly changes.

Beside the clock stands what all threads of the process had of the processor: user time in the
program, system time in the operating system, most of it for fresh pages of memory.
"""

import gc
import os
import reprlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch

from attnlab.core.integers import check_integer

MOST_ROUNDS = 100_000


class Taken(NamedTuple):
    """Seconds that one call took: by the clock, and of the processor as user and as system time."""

    seconds: float
    user: float
    system: float


@dataclass(frozen=True)
class Timing:
    """One of the compared calls. Quartiles are (lower, upper); ratios are to the baseline.

    `user` and `system` are seconds of the processor, of all threads together, in the mean of the
    rounds: systems count them too coarsely for a median of short calls. `processor` is their sum in
    each round.
    """

    name: str
    seconds: tuple[float, ...]
    median: float
    quartiles: tuple[float, float]
    ratio: float
    ratio_quartiles: tuple[float, float]
    user: float
    system: float
    processor: tuple[float, ...]


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
                taken_by(function)
        rounds = [[taken_by(function) for function in functions.values()] for _ in range(repeats)]
    columns = dict(zip(names, map(tuple, zip(*rounds, strict=True)), strict=True))
    return [_timing(name, columns[name], columns[baseline]) for name in names]


def _names(functions: object) -> list[str]:
    if not isinstance(functions, Mapping) or not all(map(callable, functions.values())):
        raise TypeError(
            "compare needs a dict from names to functions without arguments, such as "
            f'{{"fused": lambda: fused(q, k, v)}}, got {reprlib.repr(functions)}'
        )
    return list(functions)


def _rounds(name: str, value: object, *, at_least: int) -> int:
    rounds = check_integer(name, value, at_least=at_least)
    if rounds > MOST_ROUNDS:
        raise ValueError(f"{name} should be at most {MOST_ROUNDS:,}, got {rounds:,}")
    return rounds


def _baseline(names: list[str], baseline: str | None) -> str:
    if not names:
        raise ValueError("compare needs at least one function, got none")
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline should be one of {', '.join(names)}, got {baseline!r}")
    return baseline or names[0]


def _timing(name: str, own: tuple[Taken, ...], base: tuple[Taken, ...]) -> Timing:
    seconds, user, system = zip(*own, strict=True)
    ratios = [one.seconds / other.seconds for one, other in zip(own, base, strict=True)]
    return Timing(
        name,
        seconds,
        statistics.median(seconds),
        quartiles(seconds),
        statistics.median(ratios),
        quartiles(ratios),
        statistics.fmean(user),
        statistics.fmean(system),
        tuple(map(sum, zip(user, system, strict=True))),
    )


def quartiles(values: tuple[float, ...] | list[float]) -> tuple[float, float]:
    """The lower and upper quartile, by linear interpolation; of one value, that value twice."""
    if not values:
        raise ValueError("quartiles need at least one value, got none")
    if len(values) == 1:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


def taken_by(function: Callable[[], object]) -> Taken:
    """What one call takes, its work on a GPU included; compared calls belong to `compare`."""
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    watch: _Events | _Clock = _Events() if on_gpu else _Clock()
    user, system = _processor()
    watch.start()
    result = function()
    seconds = watch.stop()
    later = _processor()
    del result  # freeing the result is not part of the call
    return Taken(seconds, later[0] - user, later[1] - system)


class _Clock:
    def start(self) -> None:
        self.began = time.perf_counter()

    def stop(self) -> float:
        return time.perf_counter() - self.began


class _Events:
    """Two events in the GPU's queue: its kernels run on after the call has returned."""

    def __init__(self) -> None:
        self.first, self.last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()

    def start(self) -> None:
        self.first.record()

    def stop(self) -> float:
        self.last.record()
        torch.cuda.synchronize()
        return self.first.elapsed_time(self.last) / 1e3


def _processor() -> tuple[float, float]:
    """User and system seconds of this process and all its threads so far."""
    if sys.platform == "win32":
        return os.times()[:2]
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


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
    gc.collect(1)  # not what has lived long: to look through all takes longer than most calls
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
