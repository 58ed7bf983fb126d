"""Dense attention: what fused, tiled and the module cost beside bare PyTorch and beside naive."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.core.patterns import causal
from attnlab.measure.comparison import all_keys, ratio
from attnlab.measure.count import count
from attnlab.measure.memory import resident
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare
from attnlab.mechanisms.dense.flash import naive, tiled
from attnlab.mechanisms.dense.full import FullAttention, fused

HEADS, WIDTH = 4, 64
PASSES = ("forward", "forward and backward")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    repeats = 3 if quick else 41
    for n in (128, 256) if quick else (128, 1024, 4096):
        yield from _fused_beside_bare(n, repeats, threads)
    for n in (64,) if quick else (256, 1024):
        yield from _module_beside_bare(n, repeats, threads)
    yield from _tiled_beside_naive(1024 if quick else 8192, threads)


def _fused_beside_bare(n: int, repeats: int, threads: int) -> Iterator[Row]:
    """The target holds for lengths at which arithmetic dominates; shorter ones are only shown."""
    q, k, v = inputs(n)
    pattern = causal()
    calls: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        "": (partial(F.scaled_dot_product_attention, q, k, v), partial(fused, q, k, v)),
        ", causal": (
            partial(F.scaled_dot_product_attention, q, k, v, is_causal=True),
            partial(fused, q, k, v, mask=pattern),
        ),
    }
    for kind, (bare, ours) in calls.items():
        for which in PASSES:
            timed = _timed(bare, ours, (q, k, v), which, repeats, threads)
            figure = f"fused / bare SDPA{kind}, {which}, n = {n}"
            work = all_keys(n, bool(kind))
            yield ratio(figure, *timed, work=work, at_most=1.05 if n >= 1024 else None)


def _module_beside_bare(n: int, repeats: int, threads: int) -> Iterator[Row]:
    dim = HEADS * WIDTH
    x = torch.randn(2, n, dim, requires_grad=True)
    for is_causal in (False, True):
        module = FullAttention(dim, HEADS, causal=is_causal)
        bare = _Bare(dim, HEADS, is_causal)
        for which in PASSES:
            leaves = (x, *module.parameters()), (x, *bare.parameters())
            calls = partial(bare, x), partial(module, x)
            timed = _timed(*calls, leaves[1], which, repeats, threads, ours_leaves=leaves[0])
            kind = ", causal" if is_causal else ""
            figure = f"FullAttention / bare torch{kind}, {which}, n = {n}"
            work = all_keys(n, is_causal)
            yield ratio(figure, *timed, work=work, at_most=1.10 if n >= 1024 else None)


class _Bare(nn.Module):
    """The plain PyTorch module: four linear layers around SDPA."""

    def __init__(self, dim: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )
        self.heads, self.is_causal = heads, is_causal

    def forward(self, x: Tensor) -> Tensor:
        b, n, dim = x.shape
        q, k, v = (
            linear(x).view(b, n, self.heads, -1).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        mixed: Tensor = self.output(out.transpose(1, 2).reshape(b, n, dim))
        return mixed


def inputs(n: int, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0) if device == "cpu" else None
    q, k, v = torch.randn(3, 1, HEADS, n, WIDTH, generator=generator, device=device)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def _timed(
    bare: Callable[[], Tensor],
    ours: Callable[[], Tensor],
    leaves: tuple[Tensor, ...],
    which: str,
    repeats: int,
    threads: int,
    *,
    ours_leaves: tuple[Tensor, ...] | None = None,
) -> list[Timing]:
    def run(call: Callable[[], Tensor], leaves: tuple[Tensor, ...]) -> object:
        if which == "forward":
            with torch.no_grad():
                return call()
        return torch.autograd.grad(call().sum(), leaves)

    both = {"ours": partial(run, ours, ours_leaves or leaves), "bare": partial(run, bare, leaves)}
    return compare(both, repeats=repeats, threads=threads)


def _tiled_beside_naive(n: int, threads: int) -> Iterator[Row]:
    """Extra memory, counted exactly, and as the operating system saw it in fresh processes."""
    bound = 10 if n >= 8192 else None  # the share falls with n: the target is for long sequences
    for which in PASSES:
        backward = which != "forward"
        small, large = (_counted(form, n, backward) for form in (tiled, naive))
        yield _share(f"tiled / naive, counted, {which}, n = {n}", small, large, at_most=bound)
        small, large = (_resident(form, n, backward, threads) for form in ("tiled", "naive"))
        yield _share(f"tiled / naive, process, {which}, n = {n}", small, large, at_most=None)


def _counted(form: Callable[..., Tensor], n: int, backward: bool) -> int:
    """On the meta device: the same operations and storages, without the arithmetic."""
    with torch.set_grad_enabled(backward):
        return count(form, *inputs(n, "meta"), backward=backward).peak_bytes


def _resident(form: str, n: int, backward: bool, threads: int) -> int:
    """The same call in a fresh process; a short one before it loads the kernels."""
    setup = f"""
import torch
from attnlab.mechanisms.dense.flash import {form} as form
from attnlab.measure.benchmarks.dense import inputs

def run(tensors):
    with torch.set_grad_enabled({backward}):
        out = form(*tensors)
        return torch.autograd.grad(out, tensors, torch.ones_like(out)) if {backward} else out

run(inputs(64))
tensors = inputs({n})
"""
    return resident("run(tensors)", setup=setup, threads=threads)


def _share(figure: str, small: int, large: int, *, at_most: float | None) -> Row:
    note = f"{small / 2**20:,.1f} MiB beside {large / 2**20:,.1f} MiB"
    return Row(figure, 100 * small / large, "%", at_most, note=note)
