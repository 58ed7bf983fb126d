"""Low rank: Linformer beside its peer, beside SDPA, and beside the savings its paper published."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor, nn

from attnlab.measure import peers
from attnlab.measure.comparison import Keys, all_keys, ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.memory import available
from attnlab.measure.report import Row
from attnlab.measure.timing import compare
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.lowrank.linformer import Linformer, LinformerOptions, Projection, fused

DIM, HEADS, K = 256, 4, 128

# Wang et al. 2020, arXiv:2006.04768, Table 3: times saved and memory saved at inference, Linformer
# with layerwise sharing against the standard Transformer, whole models on one V100 of 16 GB.
# Memory is the ratio of the largest batches that fit. {n: {k: (time, memory)}}.
PUBLISHED: Mapping[int, Mapping[int, tuple[float, float]]] = {
    512: {128: (1.5, 1.7), 256: (1.3, 1.5)},
    1024: {128: (1.7, 3.0), 256: (1.6, 2.9), 512: (1.3, 1.8)},
    2048: {128: (2.6, 6.1), 256: (2.4, 5.6), 512: (2.1, 3.6), 1024: (1.3, 2.0)},
    4096: {128: (3.4, 14), 256: (3.2, 13), 512: (2.8, 8.3), 1024: (2.2, 4.3), 2048: (1.3, 2.3)},
    8192: {128: (5.5, 28), 256: (5.0, 26), 512: (4.4, 17), 1024: (3.5, 8.5), 2048: (2.1, 4.5)},
    16384: {128: (8.6, 56), 256: (7.8, 48), 512: (7.0, 32), 1024: (5.6, 16), 2048: (3.3, 8)},
    32768: {128: (13, 56), 256: (12, 48), 512: (11, 36), 1024: (8.8, 18), 2048: (5.0, 16)},
    65536: {128: (20, 60), 256: (18, 52), 512: (16, 40), 1024: (14, 20), 2048: (7.9, 18)},
}


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """fp32, batch 1, dim 256, 4 heads; modules, projections of the width included."""
    n = 512 if quick else 16384
    yield from _beside_peer(n, 2 if quick else 11, threads)
    yield from _growth((256, 512) if quick else (2048, 4096, 8192, 16384), quick, threads)
    grid = (64, 128) if quick else (128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 16384)
    yield from _crossover(grid, 2 if quick else 15, threads)
    yield from _memory_beside_sdpa(n)
    yield from _table(512 if quick else 8192, 1 if quick else 3, threads)
    yield from _longest_naive(n, 1 if quick else 3, threads)


# ---- the two orders and the peer


def _linformer(n: int, k: int = K, *, early: bool = True) -> Linformer:
    return Linformer(DIM, HEADS, options=LinformerOptions(k=min(k, n), max_len=n, early=early))


def _full(form: Literal["naive", "fused"] = "fused", device: str = "cpu") -> FullAttention:
    with torch.device(device):
        return FullAttention(DIM, HEADS, form=form)


def _sequence(n: int, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(0) if device == "cpu" else None
    return torch.randn(1, n, DIM, generator=generator, device=device, requires_grad=True)


def _train(module: nn.Module, x: Tensor) -> object:
    return torch.autograd.grad(module(x).sum(), [x, *module.parameters()])


@torch.no_grad()
def _infer(module: nn.Module, x: Tensor) -> object:
    return module(x)


def _beside_peer(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """The package shares E and F headwise and adds a bias to its output; ours has none.

    Its attention cannot be called without its projections, so our form alone stands beside the
    whole layer. What bounds the late order, which is the default: four fifths of the package's time
    are matrix products (a profile, one thread), and the late order has the same ones. Without all
    that is left it would be 1.2 times as fast. The early order has only k keys and values to make.
    """
    if not find_spec("linformer"):
        note = "linformer is not installed: pip install 'attnlab[peers]'"
        yield Row(f"package linformer, n = {n:,}", None, note=note)
        return
    x = _sequence(n)
    ours = {"early": _linformer(n), "late": _linformer(n, early=False)}
    peer, _ = peers.linformer(n, DIM, HEADS, k=K)
    calls: dict[str, Callable[[], object]] = {"package": partial(_train, peer, x)}
    calls |= {name: partial(_train, module, x) for name, module in ours.items()}
    calls["form alone"] = _form(ours["late"], n)
    theirs, *own = compare(calls, repeats=repeats, threads=threads)
    for timing in own:
        figure = f"package linformer's time / Linformer's ({timing.name}), both passes, n = {n:,}"
        target = 1.2 if timing.name == "early" and n >= 16384 else None
        yield ratio(figure, theirs, timing, work=_places(n), at_least=target)


def _form(module: Linformer, n: int) -> Callable[[], object]:
    """Forward and backward of the form, queries, keys and values given."""
    q, k, v = torch.randn(3, 1, HEADS, n, DIM // HEADS).requires_grad_().unbind()
    e, f = (projection.weight for projection in (module.e, module.f))
    assert e is not None
    assert f is not None
    leaves = (q, k, v, e, f)
    return lambda: torch.autograd.grad(fused(*leaves).sum(), leaves)


def _places(n: int, k: int = K) -> Keys:
    """Every query sees all keys, in the k sums with which it is compared."""
    return Keys(n, min(k, n))


# ---- growth


def _growth(lengths: Sequence[int], quick: bool, threads: int) -> Iterator[Row]:
    """Exponents in n, forward and backward: interleaved times, and counted largest tensors.

    1.0 ± 0.1 is two bounds: a row for each.
    """
    modules = {n: _linformer(n) for n in lengths}
    calls = {str(n): partial(_train, module, _sequence(n)) for n, module in modules.items()}
    timings = compare(calls, repeats=2 if quick else 11, threads=threads)
    best = [min(timing.seconds) for timing in timings]
    largest = [
        count(module, _sequence(n), backward=True).largest_tensor for n, module in modules.items()
    ]
    span = f"n = {lengths[0]:,} … {lengths[-1]:,}"
    found: dict[str, Sequence[float]] = {
        "time": best,
        "largest tensor": [tensor.elements for tensor in largest],
    }
    for what, values in found.items():
        slope = exponent(lengths, values).slope
        held = not quick or what == "largest tensor"
        figure = f"exponent in n, {what}, {span}"
        yield Row(figure, slope, at_most=1.1 if held else None)
        yield Row(f"{figure}, from below", slope, at_least=0.9 if held else None)


# ---- against SDPA


def _crossover(lengths: Sequence[int], repeats: int, threads: int) -> Iterator[Row]:
    """The curve, and the first length of the grid from which on Linformer stays faster."""
    passes: dict[str, Callable[[nn.Module, Tensor], object]] = {
        "forward": _infer,
        "both passes": _train,
    }
    for which, run in passes.items():
        faster = {}
        for n in lengths:
            x = _sequence(n)
            calls = {"SDPA": partial(run, _full(), x), "Linformer": partial(run, _linformer(n), x)}
            few = min(repeats, max(3, 40960 // n))  # long ones scatter less and take long
            base, ours = compare(calls, repeats=few, warmup=1, threads=threads)
            figure = f"SDPA's time / Linformer's, k = {min(K, n)}, {which}, n = {n:,}"
            yield ratio(figure, base, ours, work=(all_keys(n), _places(n)))
            faster[n] = ours.ratio < 1
        yield _first(faster, which)


def _first(faster: Mapping[int, bool], which: str) -> Row:
    figure = f"crossover with SDPA, {which}: Linformer is faster from n ="
    slower = [n for n, ahead in faster.items() if not ahead]
    after = [n for n in faster if n > max(slower, default=0)]
    note = f"grid: {', '.join(f'{n:,}' for n in faster)}"
    return Row(figure, float(after[0]) if after else None, "tokens", note=note)


def _memory_beside_sdpa(n: int) -> Iterator[Row]:
    """Counted with the real kernels: on the meta device SDPA would form its n × n weights."""
    for which, backward in (("forward", False), ("both passes", True)):
        with torch.set_grad_enabled(backward):
            sdpa, ours = (
                count(module, _sequence(n), backward=backward).peak_bytes
                for module in (_full(), _linformer(n))
            )
        figure = f"SDPA's peak memory / Linformer's, {which}, n = {n:,}, k = {K}"
        note = f"{ours / 2**20:,.1f} MiB beside {sdpa / 2**20:,.1f} MiB"
        yield Row(figure, sdpa / ours, "×", note=note)


# ---- the published table


def _table(longest: int, repeats: int, threads: int) -> Iterator[Row]:
    """Inference, naive attention / Linformer (layerwise sharing, as in the paper), cell by cell.

    Times up to ``longest``, of the fast forms. Memory is the counted peak beyond the input, at
    every length, of both naive forms: each holds its weights, n × n and n × k.
    """
    for n, cells in PUBLISHED.items():
        timed = _table_times(n, list(cells), repeats, threads) if n <= longest else {}
        naive = _peak(_full("naive", "meta"), n)
        for k, (published_time, published_memory) in cells.items():
            cell = f"n = {n:,}, k = {k:,}"
            peak = _peak(_layerwise(n, k, form="naive", device="meta"), n)
            note = f"published: {published_time:g}×; "
            if k in timed:
                note += f"SDPA / Linformer: {timed[k][1]:.2f}×"
                yield Row(f"time saved, {cell}", timed[k][0], "×", note=note)
            else:
                note += f"not timed: naive would hold {naive / 1e9:.1f} GB"
                yield Row(f"time saved, {cell}", None, note=note)
            target = published_memory if (n, k) == (16384, 128) else None
            note = f"published: {published_memory:g}×"
            yield Row(f"memory saved, {cell}", naive / peak, "×", at_least=target, note=note)


def _layerwise(n: int, k: int, *, form: str = "fused", device: str = "cpu") -> Linformer:
    with torch.device(device):
        shared = Projection(k, n)
        return Linformer(
            DIM,
            HEADS,
            form="naive" if form == "naive" else "fused",
            options=LinformerOptions(sharing="layerwise", projection=shared, early=True),
        )


def _peak(module: nn.Module, n: int) -> int:
    """On the meta device: the same operations and storages, without the arithmetic."""
    return count(partial(_infer, module), _sequence(n, "meta")).peak_bytes


def _table_times(
    n: int, sizes: Sequence[int], repeats: int, threads: int
) -> dict[int, tuple[float, float]]:
    """k → how many times as long naive and SDPA take."""
    modules: dict[str, nn.Module] = {"naive": _full("naive"), "sdpa": _full()}
    modules |= {str(k): _layerwise(n, k) for k in sizes}
    x = _sequence(n)
    calls = {name: partial(_infer, module, x) for name, module in modules.items()}
    warmup = 1 if n >= 4096 else 3
    _, sdpa, *ours = compare(calls, repeats=repeats, warmup=warmup, threads=threads)
    return {int(timing.name): (1 / timing.ratio, sdpa.ratio / timing.ratio) for timing in ours}


def _longest_naive(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """The published 8.6× of n = 16,384, k = 128, where the memory for naive is there."""
    figure = f"time saved against naive, inference, n = {n:,}, k = {K}"
    needed = 1.25 * _peak(_full("naive", "meta"), n)
    if needed > (free := available()):
        note = f"naive would need {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
        yield Row(figure, None, note=note)
        return
    x, ours, naive = _sequence(n), _layerwise(n, K), _full("naive")
    calls = {"naive": partial(_infer, naive, x), "Linformer": partial(_infer, ours, x)}
    timed = compare(calls, repeats=repeats, warmup=1, threads=threads)
    target = PUBLISHED[n][K][0] if n == 16384 else None
    yield ratio(figure, *timed, work=(all_keys(n), _places(n)), at_least=target)
