"""Sparse Sinkhorn attention: the package beside it, and its memory."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.measure import peers
from attnlab.measure.comparison import Keys, ratio
from attnlab.measure.count import count
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.learned.sinkhorn import CARD, SinkhornAttention, SinkhornOptions, blocked

DIM, HEADS, BLOCK, ITERATIONS = 256, 4, 64, 5


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, blocks of 64, 5 iterations, forward and backward."""
    n = 512 if quick else 16384
    yield from _memory(n)
    yield from _beside_the_package(n, 1 if quick else 7, None if quick else 1.0, threads)


def _layer(n: int) -> SinkhornAttention:
    options = SinkhornOptions(block=BLOCK, max_len=n, iterations=ITERATIONS)
    return SinkhornAttention(DIM, HEADS, options=options)


def _train(module: nn.Module, x: Tensor) -> object:
    leaves = [x, *module.parameters()]
    return torch.autograd.grad(module(x).sum(), leaves, allow_unused=True)


def _pass(form: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> object:
    return torch.autograd.grad(form(q, k, v).sum(), (q, k, v))


def _memory(n: int) -> Iterator[Row]:
    counted = count(_layer(n), torch.randn(1, n, DIM)).largest_tensor
    claim = CARD.cost("memory", "blocked")
    width = DIM // HEADS
    values = {"h": HEADS, "n": n, "B": BLOCK, "d": width, "e": width}
    claimed = float(claim.subs({x: values[x.name] for x in claim.free_symbols}))
    note = f"{counted.elements:,} elements, claimed at most {claimed:,.0f}"
    figure = f"largest tensor / its claim, n = {n:,}"
    yield Row(figure, counted.elements / claimed, at_most=1.0, note=note)


def _beside_the_package(n: int, repeats: int, target: float | None, threads: int) -> Iterator[Row]:
    """Equal work: the same projections, blocks, iterations and noise, and one softmax over the
    sorted and the own block. The package scores blocks by products of their means, without a
    network, and adds a bias to its output. Its form alone sorts; ours is given the matrix."""
    figure = f"package sinkhorn-transformer's time / ours, both passes, n = {n:,}"
    try:
        theirs, _ = peers.sinkhorn(n, DIM, HEADS, block=BLOCK, iterations=ITERATIONS)
    except ImportError:
        yield Row(figure, None, note="sinkhorn-transformer cannot be imported")
        return
    x, ours = torch.randn(1, n, DIM, requires_grad=True), _layer(n)
    sort = ours.permutation(x).detach()
    forms: tuple[Any, Any] = (
        theirs.sinkhorn_attention, partial(blocked, permutation=sort, options=ours.options)
    )  # fmt: skip
    q, k, v = torch.randn(3, 1, HEADS, n, DIM // HEADS).requires_grad_().unbind()
    pairs = {
        "layer": [partial(_train, each, x) for each in (theirs, ours)],
        "form": [partial(_pass, each, q, k, v) for each in forms],
    }
    keys = Keys(2 * BLOCK, 2 * BLOCK)
    for name, (package, own) in pairs.items():
        timed = compare(
            {"package": package, "ours": own}, repeats=repeats, warmup=1, threads=threads
        )
        held = target if name == "layer" else None
        yield ratio(f"{figure}, {name}", *timed, work=keys, at_least=held)
    peaks = [count(module, x, backward=True).peak_bytes for module in (theirs, ours)]
    note = f"{peaks[1] / 2**20:,.0f} MiB beside {peaks[0] / 2**20:,.0f} MiB"
    figure = f"package sinkhorn-transformer's peak memory / ours, both passes, n = {n:,}"
    yield Row(figure, peaks[0] / peaks[1], "×", note=note)
