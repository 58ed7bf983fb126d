"""α-entmax beside the package `entmax`: time forward and backward, and memory.

A whole map of 16,384 × 16,384 for four heads takes 4 GiB, several times over with its gradients; so
maps are of 4 heads with 2,048 queries and keys, and of 16,384 queries with 2,048 keys.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from attnlab.measure.comparison import all_keys, ratio
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.learned.entmax.implicit import entmax

Rule = Callable[[Tensor], Tensor]


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    m = 64 if quick else 2048
    shapes = [(4, m, m), (1, 256 if quick else 16_384, m)]
    repeats = 1 if quick else 5
    for shape in shapes:
        size = " × ".join(f"{side:,}" for side in shape)
        for name, ours, peer in _pairs():
            figure = f"package entmax / ours, {name}, {size}"
            if peer is None:
                yield Row(figure, None, "×", at_least=1, note="entmax is not installed")
                continue
            yield _times(figure, shape, ours, peer, repeats, threads)
            if shape == shapes[0]:
                yield _memory(f"memory: ours / package entmax, {name}, {size}", shape, ours, peer)


def _pairs() -> Iterator[tuple[str, Rule, Rule | None]]:
    """(name, ours, the package's rule or None)."""
    peers: Any = import_module("entmax") if find_spec("entmax") is not None else None
    learned = torch.tensor(1.5)
    given: list[tuple[str, float | Tensor, str]] = [
        ("1.5-entmax", 1.5, "entmax15"),
        ("sparsemax", 2.0, "sparsemax"),
        ("α = 1.3", 1.3, "entmax_bisect"),
        ("α as a tensor", learned, "entmax_bisect"),
    ]
    for name, alpha, peer in given:
        theirs = getattr(peers, peer, None)
        if theirs is not None and peer == "entmax_bisect":
            theirs = _with_alpha(theirs, alpha)
        yield name, _with_alpha(entmax, alpha), theirs


def _with_alpha(rule: Callable[..., Tensor], alpha: float | Tensor) -> Rule:
    return lambda scores: rule(scores, alpha)


def _scores(shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator).requires_grad_()


def _trained(rule: Rule, scores: Tensor, arriving: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(rule(scores), scores, arriving)


def _times(
    figure: str, shape: tuple[int, ...], ours: Rule, peer: Rule, repeats: int, threads: int
) -> Row:
    scores = _scores(shape)
    arriving = torch.randn_like(scores)
    calls = {"package": _trained(peer, scores, arriving), "ours": _trained(ours, scores, arriving)}
    timed = compare(calls, repeats=repeats, warmup=1, threads=threads)
    return ratio(figure, *timed, work=all_keys(shape[-1]), at_least=1)


def _memory(figure: str, shape: tuple[int, ...], ours: Rule, peer: Rule) -> Row:
    """The most bytes alive at once, counted, forward and backward."""
    held = [count(rule, _scores(shape), backward=True).peak_bytes for rule in (ours, peer)]
    note = f"{held[0] / 2**20:,.0f} MiB beside {held[1] / 2**20:,.0f} MiB at most"
    return Row(figure, held[0] / held[1], "×", at_most=1, note=note)
