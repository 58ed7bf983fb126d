"""Kernelized attention: the cost of causality, growth in n, and the length where it beats SDPA."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from io import StringIO
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab import catalog
from attnlab.measure import peers
from attnlab.measure.comparison import all_keys, ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.kernelized import linear, performer

HEADS, WIDTH = 4, 64
DIM = HEADS * WIDTH


@dataclass(frozen=True)
class Contender:
    """A mechanism in its fast form and, if it has one, token by token; both take ``causal``."""

    name: str
    form: Callable[..., Tensor]
    loop: Callable[..., Tensor] | None = None
    module: Callable[..., torch.nn.Module] | None = None
    causal_at_most: float | None = None


@cache
def _projection(device: torch.device) -> Tensor:
    """Rows of the lengths and number that Performer takes by default; drawn once."""
    generator = torch.Generator().manual_seed(0)
    features = performer.default_features(WIDTH)
    rows = [performer.orthogonal_rows(features, WIDTH, generator) for _ in range(HEADS)]
    return torch.stack(rows).float().to(device)


def _projected(form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The form with its projection given, the features' arithmetic included."""

    def run(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
        return form(q, k, v, _projection(q.device), causal=causal)

    return run


CONTENDERS = [
    Contender("linear", linear.chunked, linear.recurrent, linear.LinearAttention, 1.5),
    Contender(
        "performer",
        _projected(performer.chunked),
        _projected(performer.recurrent),
        performer.Performer,
    ),
]


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    long = 128 if quick else 16_384
    grid = (32, 64, 128) if quick else (128, 256, 512, 1024, 2048, 4096, 16_384)
    for one in CONTENDERS:
        yield from _causal_beside_whole(one, long, 1 if quick else 21, threads)
        yield from _beside_a_loop(one, long, 1 if quick else 3, threads)
        for causal in (False, True):
            yield from _growth(one, causal, long, 1 if quick else 11, threads)
        for causal in (False, True):
            yield from _beside_sdpa(one, causal, grid, 1 if quick else 11, threads)
    yield from _performer_beside_its_peer(long, quick, threads)
    yield from _linear_beside_its_peer(long, quick, threads)


def _performer_beside_its_peer(n: int, quick: bool, threads: int) -> Iterator[Row]:
    """PyPI's performer-pytorch: its attention function with the same rows and number of features,
    then its layer, whose output has a bias. Causally it holds n × r × e sums (some 10 GB at the
    long length), so it runs once or twice only, and at a shorter length as well."""
    for causal, length, at_least in ((False, n, 2), (True, n // 4, None), (True, n, 5)):
        figure = f"performer-pytorch / performer{_kind(causal)}, n = {length:,}"
        peer = _peer(causal)
        if peer is None:
            yield Row(
                figure, None, "×", at_least=at_least, note="performer-pytorch cannot be imported"
            )
            continue
        inputs = _inputs(length)
        ours = partial(_projected(performer.chunked), causal=causal)
        repeats = 1 if quick else 3 if causal else 21
        calls = {"package": _trained(peer, inputs), "ours": _trained(ours, inputs)}
        yield _ratio(figure, calls, repeats, threads, work=_work(causal), at_least=at_least)
        if not causal:
            made = peers.performer(n, DIM, HEADS)
            yield _layers("performer", made, n, repeats, threads, work=_work(causal))


def _linear_beside_its_peer(n: int, quick: bool, threads: int) -> Iterator[Row]:
    """linear-attention-transformer: softmax over the width of queries and over the length of keys
    where ours has ELU + 1. Causally it holds n × d × e sums, so it runs at a quarter of n."""
    try:
        from linear_attention_transformer import linear_attention_transformer as package
    except ImportError:
        note = "linear-attention-transformer cannot be imported"
        yield Row(f"linear-attention-transformer / linear, n = {n:,}", None, "×", note=note)
        return
    repeats = 1 if quick else 11
    one_by_one = partial(package.causal_linear_attn, bucket_size=1)
    for causal, length, peer in ((False, n, package.linear_attn), (True, n // 4, one_by_one)):
        inputs = _inputs(length)
        calls = {
            "package": _trained(peer, inputs),
            "ours": _trained(partial(linear.chunked, causal=causal), inputs),
        }
        figure = f"linear-attention-transformer / linear{_kind(causal)}, n = {length:,}"
        yield _ratio(figure, calls, repeats, threads, work=_work(causal))
    made = peers.linear_attention(n, DIM, HEADS)
    yield _layers("linear", made, n, repeats, threads, work=_work(False))


def _layers(
    mechanism: str, made: peers.Made, n: int, repeats: int, threads: int, *, work: str
) -> Row:
    """Whole layers, projections included."""
    x = torch.randn(1, n, DIM, requires_grad=True)
    ours = catalog.build(mechanism, dim=DIM, heads=HEADS)
    module, layer = made
    calls = {
        "package": _trained(layer, (x,), *module.parameters()),
        "ours": _trained(ours, (x,), *ours.parameters()),
    }
    figure = f"the package's layer / ours, {mechanism}, n = {n:,}"
    return _ratio(figure, calls, repeats, threads, work=work)


def _work(causal: bool) -> str:
    whose = "keys up to its own" if causal else "keys"
    return f"a query sees all {whose} in both; it is multiplied with sums over them, not with keys"


def _peer(causal: bool) -> Callable[..., Tensor] | None:
    try:
        with warnings.catch_warnings():  # it compares versions by distutils, gone from Python 3.12
            warnings.simplefilter("ignore", DeprecationWarning)
            from performer_pytorch import FastAttention
    except ImportError:
        return None
    with redirect_stdout(StringIO()):  # it prints that it has no CUDA extension for causal use
        peer: Callable[..., Tensor] = FastAttention(WIDTH, causal=causal)
    return peer


def _causal_beside_whole(one: Contender, n: int, repeats: int, threads: int) -> Iterator[Row]:
    """The causal pass beside the one without a mask, as a bare form and in its module."""
    work = "all keys seen without a mask, half of them causally; sums computed in both"
    calls = {
        name: _trained(partial(one.form, causal=causal), _inputs(n))
        for name, causal in (("causal", True), ("not causal", False))
    }
    figure = f"{one.name}, causal / not, form, n = {n:,}"
    yield _ratio(figure, calls, repeats, threads, work=work, at_most=one.causal_at_most)
    if one.module is None:
        return
    x = torch.randn(1, n, DIM, requires_grad=True)
    modules = {
        "causal": one.module(DIM, HEADS, causal=True), "not causal": one.module(DIM, HEADS)
    }  # fmt: skip
    calls = {c: _trained(module, (x,), *module.parameters()) for c, module in modules.items()}
    figure = f"{one.name}, causal / not, module, n = {n:,}"
    yield _ratio(figure, calls, repeats, threads, work=work, at_most=one.causal_at_most)


def _beside_a_loop(one: Contender, n: int, repeats: int, threads: int) -> Iterator[Row]:
    if one.loop is None:
        return
    inputs = _inputs(n)
    ways = {"token by token": one.loop, "by chunks": one.form}
    calls = {name: _trained(partial(way, causal=True), inputs) for name, way in ways.items()}
    figure = f"{one.name}, causal: token by token / by chunks, n = {n:,}"
    yield _ratio(figure, calls, repeats, threads, work=_work(True), at_least=5)


def _growth(
    one: Contender, causal: bool, longest: int, repeats: int, threads: int
) -> Iterator[Row]:
    """Exponents of time and of the largest tensor, forward and backward. The latter is counted, so
    that it is never too slow; it may be below 1, for features are made in pieces."""
    form = partial(one.form, causal=causal)
    lengths = _up_to(longest)
    calls = {str(n): _trained(form, _inputs(n)) for n in lengths}
    seconds = [timing.median for timing in compare(calls, repeats=repeats, threads=threads)]
    yield _exponent(f"{one.name}{_kind(causal)}: |exponent of time − 1|", lengths, seconds)
    lengths = _up_to(max(longest, 4096))
    counts = [count(form, *_inputs(n, "meta"), backward=True) for n in lengths]
    elements = [counted.largest_tensor.elements for counted in counts]
    figure = f"{one.name}{_kind(causal)}: exponent of largest tensor"
    yield Row(figure, exponent(lengths, elements).slope, at_most=1.1, note=_span(lengths))


def _up_to(longest: int) -> list[int]:
    return [longest // 8, longest // 4, longest // 2, longest]


def _exponent(figure: str, lengths: Sequence[int], values: Sequence[float]) -> Row:
    slope, error = exponent(lengths, values)
    note = f"exponent {slope:.3f} ± {error:.3f}, {_span(lengths)}"
    return Row(figure, abs(slope - 1), at_most=0.1, note=note)


def _span(lengths: Sequence[int]) -> str:
    return f"n = {lengths[0]:,} to {lengths[-1]:,}"


def _beside_sdpa(
    one: Contender, causal: bool, lengths: Sequence[int], repeats: int, threads: int
) -> Iterator[Row]:
    """Ratios to SDPA on a grid of lengths, and the length at which they pass through one."""
    ratios = []
    for n in lengths:
        inputs = _inputs(n)
        calls = {
            one.name: _trained(partial(one.form, causal=causal), inputs),
            "SDPA": _trained(partial(F.scaled_dot_product_attention, is_causal=causal), inputs),
        }
        keys = all_keys(n, causal)
        work = f"keys of a query: {keys.seen:,.0f} seen in both; {keys.computed:,.0f} by SDPA"
        figure = f"{one.name} / SDPA{_kind(causal)}, n = {n:,}"
        row = _ratio(figure, calls, repeats if n <= 4096 else 3, threads, work=work)
        ratios.append(row.measured or math.nan)
        yield row
    length = crossover(lengths, ratios)
    figure = f"{one.name}{_kind(causal)}: overtakes SDPA at"
    note = "" if length is not None else f"not between n = {lengths[0]:,} and {lengths[-1]:,}"
    yield Row(figure, length, "tokens", note=note)


def crossover(lengths: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Where a falling ratio last passes through one, on a straight line between logarithms; None
    if it does not."""
    if len(lengths) != len(ratios):
        raise ValueError(f"one ratio for each length, got {len(ratios)} for {len(lengths)}")
    pairs = list(zip(lengths, ratios, strict=True))
    for (short, above), (long, below) in reversed(list(pairwise(pairs))):
        if above >= 1 > below:
            part = math.log(above) / math.log(above / below)
            return math.exp(math.log(short) + part * math.log(long / short))
    return None


def _kind(causal: bool) -> str:
    return ", causal" if causal else ""


def _inputs(n: int, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0) if device == "cpu" else None
    q, k, v = torch.randn(3, 1, HEADS, n, WIDTH, generator=generator, device=device)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def _trained(
    call: Callable[..., Tensor], inputs: Sequence[Tensor], *more: Tensor
) -> Callable[[], object]:
    """Forward and backward, with a gradient for every output."""
    with torch.no_grad():
        arriving = torch.randn(inputs[-1].shape, device=inputs[-1].device)
    return lambda: torch.autograd.grad(call(*inputs), (*inputs, *more), arriving)


def _ratio(
    figure: str,
    calls: Mapping[str, Callable[[], object]],
    repeats: int,
    threads: int,
    *,
    work: str,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    """The first call's time in the second one's; a causal peer is too dear for two warm-ups."""
    timed = compare(calls, repeats=repeats, warmup=1, threads=threads)
    return ratio(figure, *timed, work=work, at_most=at_most, at_least=at_least)
