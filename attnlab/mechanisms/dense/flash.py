r"""FlashAttention: full attention tile by tile, without storing the matrix of scores.

The output of full attention (``dense.full``) is n × e, but its n × m scores fill the memory, and a
GPU spends most of its time on reading and writing them. FlashAttention computes the same output
from tiles of queries and keys. The softmax of a row needs the maximum and the sum over all its
keys; so each row keeps a running maximum $\mu$, a running sum $\ell$ and a running output, and
rescales them when a larger score comes (the online softmax). For a tile T of keys with scores
$s_j$:

$$\mu' = \max(\mu, \max_{j \in T} s_j),\qquad
\ell' = e^{\mu - \mu'} \ell + \sum_{j \in T} e^{s_j - \mu'},\qquad
o' = e^{\mu - \mu'} o + \sum_{j \in T} e^{s_j - \mu'} v_j,$$

and after the last tile the output is $o / \ell$. The backward pass keeps only the log-sum-exp
$L = \mu + \log \ell$ of each row and computes the weights $e^{s_j - L}$ again, tile by tile.

Cost: the $2 h n m (d + e)$ FLOPs of full attention (the backward pass has 5 products in place of
4), and memory linear in n. On a GPU it saves time by reading and writing less. ``tiled``, in
PyTorch, saves memory only; for speed take ``full``'s ``fused`` form, whose kernel is this
algorithm.

``naive``   full attention, dense.
``tiled``   the algorithm, forward and backward.
``triton``  the same as one kernel forward and two backward; it needs a GPU
            (``attnlab.core.kernels``).

The papers' letters: the blocks $B_r \times B_c$ are ``tile`` × ``tile``, $m_i$, $\ell_i$ are
``largest``, ``total``; ``lse`` is the $L$ of FlashAttention-2.

Departures.
- a query without allowed keys gives zeros. Tiles in which nothing is allowed are skipped.
- causal masks are aligned at the bottom right when there are fewer queries than keys
- ``tiled`` is in PyTorch, not in one kernel: it saves memory, not time

Gives up. Nothing; the weights are not stored, and the gradients compute them again.

Dao, Fu, Ermon, Rudra, Ré. FlashAttention: Fast and Memory-Efficient Exact Attention with
IO-Awareness. NeurIPS 2022, arXiv:2205.14135, algorithms 1, 2 and 4. Dao. FlashAttention-2: Faster
Attention with Better Parallelism and Work Partitioning. ICLR 2024, arXiv:2307.08691. The online
softmax: Milakov, Gimelshein. Online normalizer calculation for softmax. 2018, arXiv:1805.02867.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from attnlab.core import kernels, patterns
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.forms import form
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask, Pattern
from attnlab.core.positions import Rotation
from attnlab.core.precision import no_autocast, upcast_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked
from attnlab.core.softmax import masked_softmax


@dataclass(frozen=True, kw_only=True)
class FlashOptions(Options):
    """The size of the tiles.

    ``tile``  how many queries are compared with as many keys at a time.
    """

    tile: Size = 512


# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, *, mask: Mask = None, scale: float | None = None
) -> Outputs:
    """Full attention, dense; ``tiled`` must equal it. ``scale`` is 1/√d unless given."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    allowed = patterns.dense_of(mask, q, k)
    scores = note("scores", q @ k.mT * scale)
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


# ---- tiled


@checked
def tiled(
    q: Queries, k: Keys, v: Values, *,
    mask: Mask = None, scale: float | None = None, options: FlashOptions = FlashOptions(),
) -> Outputs:  # fmt: skip
    """tile × tile scores at a time, forward and backward; no n × m tensor.

    Tiles where a ``Pattern`` allows nothing are skipped. First derivatives only.
    """
    if isinstance(mask, Pattern):
        mask.refuse_misfit(k.shape[-2], *q.shape[:2])
        mask = mask.sized(k.shape[-2])
    tiles = Tiles(q.shape[-2], k.shape[-2], options.tile, mask)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, lse = _Tiled.apply(q, k, v, tiles, scale)
    note("log_sum_exp", lse)
    return out


@dataclass(frozen=True)
class Tiles:
    """The tiles of an n × m score matrix with any allowed pair, each with its part of the mask."""

    n: int
    m: int
    tile: int
    mask: Tensor | Pattern | None

    def rows(self) -> Iterator[slice]:
        return (slice(i, min(i + self.tile, self.n)) for i in range(0, self.n, self.tile))

    def seen(self, rows: slice, device: torch.device) -> Iterator[tuple[slice, Tensor | None]]:
        """The column tiles with pairs allowed for ``rows``, and their mask (None: all allowed)."""
        for j in range(0, self.m, self.tile):
            columns = slice(j, min(j + self.tile, self.m))
            cover, allowed = self._part(rows, columns, device)
            if cover is not False:
                yield columns, allowed

    def _part(self, rows: slice, columns: slice, device: torch.device) -> tuple[Any, Tensor | None]:
        if self.mask is None:
            return True, None
        if isinstance(self.mask, Tensor):
            whole = self.mask.expand(*self.mask.shape[:-2], self.n, self.m)
            return None, whole[..., rows, columns]
        past = self.m - self.n  # the queries are the last n of m positions
        i, j = range(rows.start + past, rows.stop + past), range(columns.start, columns.stop)
        # Whether a tile is full or empty depends on values, which a compiler does not know.
        cover = None if torch.compiler.is_compiling() else self.mask.cover(i, j)
        return cover, self.mask.block(i, j, device) if cover is None else None


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, tiles: Tiles, scale: float
    ) -> tuple[Tensor, Tensor]:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = q.new_empty(q.shape[:-1], dtype=upcast_dtype(q))
        with no_autocast(q.device):
            for rows in tiles.rows():
                out[..., rows, :], lse[..., rows] = _attend_rows(q, k, v, tiles, rows, scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.tiles, ctx.scale = tiles, scale
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("tiled")
        q, k, v, out, lse = ctx.saved_tensors  # read once: a checkpoint gives them only once
        wide = upcast_dtype(q)
        dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (q, k, v))
        with no_autocast(q.device):
            for rows in ctx.tiles.rows():
                qi, do = q[..., rows, :].to(wide), d_out[..., rows, :].to(wide)
                # Softmax backward needs sum_j w_ij dw_ij: that is do_i · o_i (section 3.1).
                delta = (do * out[..., rows, :]).sum(dim=-1, keepdim=True)
                for columns, allowed in ctx.tiles.seen(rows, q.device):
                    kj, vj = k[..., columns, :].to(wide), v[..., columns, :].to(wide)
                    scores = _scores(qi, kj, allowed, ctx.scale)
                    weights = torch.exp(scores - lse[..., rows, None])
                    d_scores = weights * (do @ vj.mT - delta) * ctx.scale
                    dv[..., columns, :] += weights.mT @ do
                    dk[..., columns, :] += d_scores.mT @ qi
                    dq[..., rows, :] += d_scores @ kj
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None


def _attend_rows(
    q: Tensor, k: Tensor, v: Tensor, tiles: Tiles, rows: slice, scale: float
) -> tuple[Tensor, Tensor]:
    """The online softmax: output and log-sum-exp of ``rows`` (+inf without allowed keys)."""
    wide = upcast_dtype(q)
    qi = q[..., rows, :].to(wide)
    out = qi.new_zeros(*qi.shape[:-1], v.shape[-1])
    largest = qi.new_full((*qi.shape[:-1], 1), -torch.inf)
    total = qi.new_zeros((*qi.shape[:-1], 1))
    for columns, allowed in tiles.seen(rows, q.device):
        scores = _scores(qi, k[..., columns, :].to(wide), allowed, scale)
        raised = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        shift = raised.masked_fill(raised == -torch.inf, 0)
        fade = torch.exp(largest - shift)  # the factor that rescales the sums to the new maximum
        powers = torch.exp(scores - shift)
        total = total * fade + powers.sum(dim=-1, keepdim=True)
        out = out * fade + powers @ v[..., columns, :].to(wide)
        largest = raised
    empty = total == 0
    lse = (largest + torch.log(total)).masked_fill(empty, torch.inf)
    return (out / (total + empty)).to(q.dtype), lse.squeeze(-1)


def _scores(qi: Tensor, kj: Tensor, allowed: Tensor | None, scale: float) -> Tensor:
    scores = qi @ kj.mT * scale
    return scores if allowed is None else scores.masked_fill_(~allowed, -torch.inf)


# ---- triton


@checked
def triton(
    q: Queries, k: Keys, v: Values, *, mask: Mask = None, scale: float | None = None
) -> Outputs:
    """``tiled`` by kernels, in tiles of 64 × 64. Raises ValueError where Triton cannot run."""
    attend = kernels.kernel("tiles", "attend", q, k, v)
    out, lse = attend(q, k, v, mask, q.shape[-1] ** -0.5 if scale is None else scale)
    note("log_sum_exp", lse)
    return out


FORMS = {"naive": naive, "tiled": tiled}
KERNELS = {"triton": triton}

# ---- module


class FlashAttention(DenseAttention):
    """Multi-head attention by tiles: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "tiled", "triton"] = "tiled",
        options: FlashOptions = FlashOptions(),
        bias: bool = False, positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        tiles = functools.partial(tiled, options=options)
        by: dict[str, Callable[..., Tensor]] = {**FORMS, **KERNELS, "tiled": tiles}
        super().__init__(dim, heads, by[form], causal=causal, bias=bias, positions=positions)
        self.form, self.options = form, options


# ---- card

h, n, m, d, e, t = letters("h n m d e t")

CARD = Card(
    __doc__,
    name="flash",
    family="dense",
    role="attend",
    forms=FORMS,
    kernels=KERNELS,
    causal="optional",
    options=FlashOptions,
    letters={"t": "tile"},
    time=2 * h * n * m * (d + e),
    launches={"tiled": n * m / t**2},
    memory={"naive": h * n * m, "tiled": h * n * e + h * t**2, "triton": h * n * (d + e)},
    notes={"naive": ("scores", "weights"), **dict.fromkeys(("tiled", "triton"), ("log_sum_exp",))},
    variants=({"tile": 32}, {"tile": 3}),
    build=FlashAttention,
    aliases=("flash_attention",),
)
