"""Routing Transformer: its growth with k = w = √n, its memory, and the package beside it."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.measure.comparison import Keys, ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.learned.routing_transformer import (
    CARD,
    RoutingAttention,
    RoutingOptions,
    gathered,
)

DIM, HEADS = 256, 4


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads, √n clusters of √n tokens, forward and backward."""
    yield from _growth((256, 1024) if quick else (4096, 16384, 65536), quick, threads)
    n = 256 if quick else 16384
    yield from _memory(n)
    yield from _beside_the_package(n, 1 if quick else 5, threads)


def _layer(n: int) -> RoutingAttention:
    return RoutingAttention(DIM, HEADS, options=RoutingOptions(clusters=math.isqrt(n)))


def _train(module: nn.Module, x: Tensor) -> object:
    out = module(x)
    out = out[0] + out[1] if isinstance(out, tuple) else out  # the package adds a loss
    leaves = [x, *(p for p in module.parameters() if p.requires_grad)]
    return torch.autograd.grad(out.sum(), leaves, allow_unused=True)


def _pass(form: Callable[..., tuple[Tensor, Tensor]], *given: Tensor) -> object:
    out, loss = form(*given)
    return torch.autograd.grad(out.sum() + loss.sum(), given)


def _form(n: int) -> Callable[[], object]:
    """Both passes of the mechanism alone: the projections around it are linear in n."""
    q, k, v = torch.randn(3, 1, HEADS, n, DIM // HEADS).requires_grad_().unbind()
    centroids = F.normalize(torch.randn(HEADS, math.isqrt(n), DIM // HEADS), dim=-1)

    def run() -> object:
        return torch.autograd.grad(gathered(q, v, centroids, k=k).sum(), (q, k, v))

    return run


def _growth(lengths: tuple[int, ...], quick: bool, threads: int) -> Iterator[Row]:
    """1.5 ± 0.15 is two bounds: a row for each."""
    calls = {str(n): _form(n) for n in lengths}
    timings = compare(calls, repeats=1 if quick else 5, threads=threads)
    flops = [count(call).flops for call in calls.values()]
    span = f"n = {lengths[0]:,} … {lengths[-1]:,}, clusters = √n"
    found: dict[str, Sequence[float]] = {
        "time": [min(each.seconds) for each in timings],
        "FLOPs": flops,
    }
    for what, values in found.items():
        slope, held = exponent(lengths, values).slope, not quick or what == "FLOPs"
        yield Row(f"exponent in n, {what}, {span}", slope, at_most=1.65 if held else None)
        figure = f"exponent in n, {what}, {span}, from below"
        yield Row(figure, slope, at_least=1.35 if held else None)


def _memory(n: int) -> Iterator[Row]:
    counted = count(_layer(n).eval(), torch.randn(1, n, DIM)).largest_tensor
    claim = CARD.cost("memory", "gathered")
    width = DIM // HEADS
    values = {"h": HEADS, "n": n, "k": math.isqrt(n), "d": width, "e": width}
    claimed = float(claim.subs({x: values[x.name] for x in claim.free_symbols}))
    note = f"{counted.elements:,} elements, claimed at most {claimed:,.0f}"
    figure = f"largest tensor / its claim, n = {n:,}"
    yield Row(figure, counted.elements / claimed, at_most=1.0, note=note)


def _beside_the_package(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Equal work: the same projections, √n clusters with √n queries and keys each, and centroids
    that move. The package compares its vectors with the centroids once, as we do; we compare them
    a second time when the centroids move, and it computes a loss. A query is in one cluster on
    average; in the form alone the package's centroids move, and ours do not."""
    figure = f"package routing-transformer's time / ours, both passes, n = {n:,}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from routing_transformer.routing_transformer import SelfAttention
    except ImportError:
        yield Row(figure, None, note="routing-transformer cannot be imported")
        return
    size = math.isqrt(n)
    theirs = SelfAttention(DIM, 1, n, HEADS, 0, size)
    x = torch.randn(1, n, DIM, requires_grad=True)
    q, k, v = torch.randn(3, 1, HEADS, n, DIM // HEADS).requires_grad_().unbind()
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "layer": (partial(_train, theirs, x), partial(_train, _layer(n), x)),
        "form": (partial(_pass, theirs.global_attn, q, k, v), _form(n)),
    }
    keys = Keys(size, size)
    for name, (package, ours) in pairs.items():
        timed = compare(
            {"package": package, "ours": ours}, repeats=repeats, warmup=1, threads=threads
        )
        yield ratio(f"{figure}, {name}", *timed, work=keys)
    peaks = [count(module, x, backward=True).peak_bytes for module in (theirs, _layer(n))]
    note = f"{peaks[1] / 2**20:,.0f} MiB beside {peaks[0] / 2**20:,.0f} MiB"
    figure = f"package routing-transformer's peak memory / ours, both passes, n = {n:,}"
    yield Row(figure, peaks[0] / peaks[1], "×", note=note)
