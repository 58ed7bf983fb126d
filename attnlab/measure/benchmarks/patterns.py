"""Patterns: what sparse attention costs beside its peers, beside dense attention, and in n."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.core.patterns import Pattern, fixed, global_, local, random, strided
from attnlab.core.sparse.blocked import blocked
from attnlab.core.sparse.layout import forget, layout
from attnlab.measure.benchmarks.dense import HEADS, WIDTH, inputs
from attnlab.measure.comparison import Keys, all_keys, ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.memory import resident
from attnlab.measure.peers import Layer, Made, big_bird, local_attention, longformer
from attnlab.measure.report import Row
from attnlab.measure.timing import compare

WINDOW, BLOCK, STRIDE = 128, 64, 128


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, 4 heads of 64, forward and backward."""
    n = 1024 if quick else 16384
    repeats = 2 if quick else 9
    yield from _window(n, repeats, threads)
    yield from _bigbird(n, repeats, threads)
    yield from _sparse_transformer(n, repeats, threads)
    yield from _extra_memory(n)
    yield from _layouts(4096 if quick else 65536, threads)
    yield from _growth((512, 1024) if quick else (4096, 8192, 16384, 32768), quick, threads)
    yield from _crossover((256, 512) if quick else (256, 512, 1024, 2048, 4096), quick, threads)


def patterns(n: int) -> Mapping[str, Pattern]:
    """The measured patterns; s is the stride 128, or √n."""
    return {
        f"window {WINDOW}": local(WINDOW // 2),
        f"BigBird, blocks of {BLOCK}, 3 random": bigbird(),
        f"strided, s = {STRIDE}": (local(STRIDE) | strided(STRIDE)).causal(),
        f"fixed, s = {STRIDE}, c = 1": fixed(STRIDE, 1).causal(),
        f"fixed, s = {STRIDE}, c = 8": fixed(STRIDE, 8).causal(),
    }


def bigbird() -> Pattern:
    return (local(1) | random(3) | global_([0, -1])).blocks(BLOCK)


Pass = Callable[[], object]


def train(form: Callable[..., Tensor], leaves: Sequence[Tensor], *args: object) -> object:
    """Forward and backward."""
    return torch.autograd.grad(form(*leaves, *args).sum(), leaves)


def _run(pattern: Pattern, n: int) -> Pass:
    q, k, v = inputs(n)
    return partial(train, blocked, (q, k, v), pattern)


# ---- peers


def _keys(pattern: Pattern, n: int) -> Keys:
    """What ``blocked`` computes: its blocks hold pairs that the pattern does not allow."""
    return Keys(pattern.count(n, n) / n, layout(pattern, n, n).pairs / n)


def _window(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Each query sees half a window of keys on either side and itself, in all of them.

    local-attention computes blocks of half a window, each with its two neighbours; Longformer's
    chunks are of a window and overlap by half of it.
    """
    if find_spec("local_attention"):
        for window in (WINDOW, 2 * WINDOW):
            yield from _beside_local_attention(window, n, repeats, threads)
    else:
        yield _missing("local-attention", "local-attention")
    if not find_spec("transformers"):
        yield _missing("Hugging Face Longformer", "transformers")
        return
    pattern = local(WINDOW // 2)
    seen = _keys(pattern, n)
    ours = catalog.build("longformer", dim=HEADS * WIDTH, heads=HEADS, window=WINDOW)
    yield from _layers(
        "Hugging Face Longformer", longformer(n, HEADS * WIDTH, HEADS, window=WINDOW), ours,
        pattern, n, repeats, threads,
        work=(Keys(seen.seen, 2 * WINDOW), seen), of_form=4,
    )  # fmt: skip


def _beside_local_attention(window: int, n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Its attention alone beside ``blocked``; then its layer, which also rotates queries and
    keys."""
    from local_attention import LocalAttention

    half, pattern = window // 2, local(window // 2)
    peer = LocalAttention(half, look_backward=1, look_forward=1, exact_windowsize=True)
    own = _keys(pattern, n)
    work = Keys(own.seen, 3 * half), own
    calls: dict[str, Pass] = {
        "package": partial(train, peer, inputs(n)), "blocked": _run(pattern, n)
    }  # fmt: skip
    timed = compare(calls, repeats=repeats, threads=threads, warmup=1)
    figure = f"local-attention's time / blocked's, window {window}, n = {n:,}"
    yield ratio(figure, *timed, work=work, at_least=2 if n >= 16384 else None)
    dim = HEADS * WIDTH
    ours = catalog.build("longformer", dim=dim, heads=HEADS, window=window)
    made = local_attention(n, dim, HEADS, window=window)
    yield from _layers(
        f"local-attention, window {window},", made, ours, None, n, repeats, threads, work=work
    )


def _bigbird(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """Hugging Face's computes all keys for two blocks of queries, and eight blocks for the
    others."""
    if not find_spec("transformers"):
        yield _missing("Hugging Face BigBird", "transformers")
        return
    ours = catalog.build("bigbird", dim=HEADS * WIDTH, heads=HEADS, block=BLOCK, random=3)
    peer = big_bird(n, HEADS * WIDTH, HEADS, block=BLOCK, random=3)
    whole = 2 * BLOCK
    computed = (whole * n + (n - whole) * 8 * BLOCK) / n
    work = Keys(computed, computed), _keys(bigbird(), n)
    yield from _layers(
        "Hugging Face BigBird", peer, ours, bigbird(), n, repeats, threads, work=work, at_least=3
    )


def _layers(
    name: str,
    peer: Made,
    ours: nn.Module,
    pattern: Pattern | None,
    n: int,
    repeats: int,
    threads: int,
    *,
    work: tuple[Keys, Keys],
    at_least: float | None = None,
    of_form: float | None = None,
) -> Iterator[Row]:
    """The package's layer beside ours and, where its attention cannot be called alone, beside our
    form. Projections are included: those of Hugging Face have biases, and none of the output."""
    x = torch.randn(1, n, HEADS * WIDTH, requires_grad=True)
    calls: dict[str, Pass] = {
        "package": partial(_train_layer, peer[1], x, _used(peer[0])),
        "our layer": partial(_train_layer, ours, x, list(ours.parameters())),
    }
    if pattern is not None:
        calls["blocked"] = _run(pattern, n)
    theirs, *own = compare(calls, repeats=min(repeats, 5), threads=threads, warmup=1)
    long = n >= 16384
    for timing, target in zip(own, (at_least, of_form), strict=False):
        whose = "ours" if timing.name == "our layer" else "blocked's"
        figure = f"{name} layer's time / {whose}, n = {n:,}"
        yield ratio(figure, theirs, timing, work=work, at_least=target if long else None)


def _used(module: nn.Module) -> list[nn.Parameter]:
    """Without the projections of global tokens, of which there are none."""
    return [p for name, p in module.named_parameters() if "global" not in name]


def _train_layer(layer: Layer, x: Tensor, parameters: Sequence[Tensor]) -> object:
    return torch.autograd.grad(layer(x).sum(), [x, *parameters], allow_unused=True)


def _sparse_transformer(n: int, repeats: int, threads: int) -> Iterator[Row]:
    q, k, v = inputs(n)
    dense = partial(F.scaled_dot_product_attention, is_causal=True)
    calls: dict[str, Pass] = {"causal SDPA": partial(train, dense, (q, k, v))}
    kinds = {name: p for name, p in patterns(n).items() if name.startswith(("strided", "fixed"))}
    calls |= {name: _run(pattern, n) for name, pattern in kinds.items()}
    base, *own = compare(calls, repeats=min(repeats, 5), threads=threads, warmup=1)
    for timing in own:
        target = 8 if n >= 16384 and not timing.name.endswith("c = 8") else None
        figure = f"causal SDPA's time / blocked's, {timing.name}, n = {n:,}"
        work = all_keys(n, causal=True), _keys(kinds[timing.name], n)
        yield ratio(figure, base, timing, work=work, at_least=target)


def _missing(what: str, package: str) -> Row:
    return Row(what, None, note=f"{package} is not installed: pip install 'attnlab[peers]'")


# ---- memory and layouts


def _extra_memory(n: int) -> Iterator[Row]:
    """What both passes hold at most beside their inputs, output and gradients."""
    for name, pattern in patterns(n).items():
        q, k, v = inputs(n)
        laid = layout(pattern, n, n)  # remembered: it is not the call's
        peak = count(blocked, q, k, v, pattern, backward=True).peak_bytes
        extra = peak - 4 * q.numel() * q.element_size()  # the output and three gradients
        blocks = laid.pairs * HEADS * q.element_size()
        note = f"{extra / 2**20:.1f} MiB beside {blocks / 2**20:.1f} MiB"
        yield Row(f"extra memory / the pairs' blocks, {name}", extra / blocks, "×", 2, note=note)


_LAYOUT = """
import torch
from attnlab.measure.benchmarks.patterns import patterns
from attnlab.core.sparse.layout import forget, layout
layout(patterns(256)[{name!r}], 256, 256)
pattern = patterns({n})[{name!r}]
"""


def _layouts(n: int, threads: int) -> Iterator[Row]:
    """Fresh each time, in a fresh process for its memory."""
    long = n >= 65536
    for name, pattern in patterns(n).items():

        def lay_out(pattern: Pattern = pattern) -> object:
            forget()
            return layout(pattern, n, n)

        (timing,) = compare({name: lay_out}, repeats=3, warmup=1, threads=threads)
        yield Row(f"layout, {name}, n = {n:,}", timing.median, "s", 2 if long else None)
        setup = _LAYOUT.format(name=name, n=n)
        used = resident(f"layout(pattern, {n}, {n})", setup=setup, threads=threads) / 1e6
        yield Row(f"layout's memory, {name}, n = {n:,}", used, "MB", 200 if long else None)


# ---- growth


def _growth(window_lengths: Sequence[int], quick: bool, threads: int) -> Iterator[Row]:
    """Exponents in n, forward and backward: 1 for a window, 1.5 where the stride is √n."""
    kinds: dict[str, tuple[float, Callable[[int], Pattern]]] = {
        f"window {WINDOW}": (1, lambda n: local(WINDOW // 2)),
        "strided, s = √n": (1.5, lambda n: (local(isqrt(n)) | strided(isqrt(n))).causal()),
        "fixed, s = √n": (1.5, lambda n: fixed(isqrt(n), 1).causal()),
    }
    for name, (claim, pattern) in kinds.items():
        # Beside a short stride linear terms still count: 1.5 shows at greater lengths.
        longer = claim > 1 and not quick
        lengths = [2 * n for n in window_lengths[1:]] if longer else window_lengths
        calls: dict[str, Pass] = {str(n): _run(pattern(n), n) for n in lengths}
        timings = compare(calls, repeats=2 if quick else 7, threads=threads, warmup=1)
        flops = [count(blocked, *inputs(n), pattern(n), backward=True).flops for n in lengths]
        found: dict[str, Sequence[float]] = {
            "time": [min(t.seconds) for t in timings],
            "FLOPs": flops,
        }
        for what, values in found.items():
            slope = exponent(lengths, values).slope
            figure = f"exponent in n, {what}, {name}, n = {lengths[0]:,} … {lengths[-1]:,}"
            # Blocks wider than a short stride compute pairs that a long stride does not: FLOPs, as
            # computed, grow more slowly than the pairs; they are shown and not held to the claim.
            held = what == "time" and not quick
            bounds = (claim + 0.1, claim - 0.1) if held else (None, None)
            yield Row(figure, slope, at_most=bounds[0], note=f"claimed: {claim:g}")
            yield Row(f"{figure}, from below", slope, at_least=bounds[1])


def _crossover(lengths: Sequence[int], quick: bool, threads: int) -> Iterator[Row]:
    """Where dense attention still wins: blocked beside SDPA over short and middle lengths."""
    for n in lengths:
        dense = partial(train, F.scaled_dot_product_attention, inputs(n))
        calls: dict[str, Pass] = {"SDPA": dense, "blocked": _run(local(WINDOW // 2), n)}
        timed = compare(calls, repeats=2 if quick else 9, threads=threads)
        figure = f"SDPA's time / blocked's, window {WINDOW}, n = {n:,}"
        yield ratio(figure, *timed, work=(all_keys(n), _keys(local(WINDOW // 2), n)))
