r"""Full attention: every position asks every other, and mixes what the answers are worth.

A query $q_i$ is compared with each key $k_j$ by a dot product; a softmax turns the scores of one
row into weights that sum to one; the output is the weighted mean of the values:

$$O = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt d}\right) V$$

The scale keeps scores of unit variance: for independent entries of variance one, $q \cdot k$ has
variance d, and without the $1/\sqrt d$ the softmax of wide heads saturates. Several heads run side
by side, each with its own projections (``attnlab.core.heads``), and are put together by one more.

Cost: $2 h n m (d + e)$ FLOPs. The naive form holds the n × m scores; the tiled one never does.

Three forms of the same function:

``naive``   the equation.
``tiled``   FlashAttention's algorithm, in PyTorch: tiles of keys pass by while each row keeps its
            running maximum and its running sum, so that no n × m tensor exists; the backward pass
            computes the weights again, tile by tile, from the saved log-sum-exp. Memory is linear
            in n.
``fused``   PyTorch's ``scaled_dot_product_attention``. Its kernels want e = d; with other value
            widths it holds n × m weights after all.

The papers' letters: $N$ (length) is our n and m; $d_k$, $d_v$ are d and e; FlashAttention's blocks
$B_r \times B_c$ are ``tile`` × ``tile``, its $m_i$, $\ell_i$ are ``largest``, ``total``; ``lse``
is the $L$ of FlashAttention-2 (arXiv:2307.08691).

Departures. A row with nothing to see gives zeros (the paper has no such rows). Causal masks are
aligned at the bottom right when n < m, so that decoding with a cache is right; PyTorch's
``is_causal`` is aligned at the top left. There is no dropout on the weights (the paper's text drops
residuals and embeddings only).

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin. Attention Is All You Need.
NeurIPS 2017, arXiv:1706.03762, section 3.2. Tiling: Dao, Fu, Ermon, Rudra, Ré. FlashAttention: Fast
and Memory-Efficient Exact Attention with IO-Awareness. NeurIPS 2022, arXiv:2205.14135, algorithms
1, 2 and 4; the online softmax is due to Milakov and Gimelshein, 2018, arXiv:1805.02867.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, Paper, letters
from attnlab.core.derivatives import refuse_second
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.core.precision import unrounded, wide_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.suggest import choose

# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    mask: Bool[Tensor, "#b #h #n #m"] | Bool[Tensor, "#n #m"] | Pattern | None = None,
    scale: float | None = None,
) -> Float[Tensor, "b h n e"]:
    """The equation, dense (Vaswani et al., eq. 1). ``scale`` is 1/√d unless given."""
    allowed = patterns.as_mask(mask, q.shape[-2], k.shape[-2], q.device, len(q), q.shape[1])
    scores = note("scores", q @ k.mT * _scale(q, scale))
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


def _scale(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


# ---- tiled


@checked
def tiled(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    mask: Bool[Tensor, "#b #h #n #m"] | Bool[Tensor, "#n #m"] | Pattern | None = None,
    scale: float | None = None,
    tile: int = 512,
) -> Float[Tensor, "b h n e"]:
    """FlashAttention's algorithm: tile × tile scores at a time, forward and backward; no n × m
    tensor.

    A ``Pattern`` is asked tile by tile, and tiles where nobody may see anything are skipped. First
    derivatives only.
    """
    if tile < 1:
        raise ValueError(f"tile must be at least 1, got {tile}")
    if isinstance(mask, Pattern):
        mask.refuse_misfit(k.shape[-2], len(q), q.shape[1])
        mask = mask.sized(k.shape[-2])
    tiles = Tiles(q.shape[-2], k.shape[-2], tile, mask)
    out, lse = _Tiled.apply(q, k, v, tiles, _scale(q, scale))
    note("log_sum_exp", lse)
    return out


@dataclass(frozen=True)
class Tiles:
    """The tiles of an n × m score matrix that somebody may see, each with its part of the mask."""

    n: int
    m: int
    tile: int
    mask: Tensor | Pattern | None

    def rows(self) -> Iterator[slice]:
        return (slice(i, min(i + self.tile, self.n)) for i in range(0, self.n, self.tile))

    def seen(self, rows: slice, device: torch.device) -> Iterator[tuple[slice, Tensor | None]]:
        """The column tiles that ``rows`` see; the mask is None where they see all of it."""
        for j in range(0, self.m, self.tile):
            columns = slice(j, min(j + self.tile, self.m))
            cover, allowed = self._look(rows, columns, device)
            if cover is not False:
                yield columns, allowed

    def _look(self, rows: slice, columns: slice, device: torch.device) -> tuple[Any, Tensor | None]:
        if self.mask is None:
            return True, None
        if isinstance(self.mask, Tensor):
            whole = self.mask.expand(*self.mask.shape[:-2], self.n, self.m)
            return None, whole[..., rows, columns]
        past = self.m - self.n  # the queries are the last n of m positions
        i, j = range(rows.start + past, rows.stop + past), range(columns.start, columns.stop)
        cover = self.mask.cover(i, j)
        return cover, self.mask.block(i, j, device) if cover is None else None


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, tiles: Tiles, scale: float
    ) -> tuple[Tensor, Tensor]:
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        lse = q.new_empty(q.shape[:-1], dtype=wide_dtype(q))
        with unrounded(q.device):
            for rows in tiles.rows():
                out[..., rows, :], lse[..., rows] = _attend_rows(q, k, v, tiles, rows, scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.tiles, ctx.scale = tiles, scale
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second("tiled")
        q, k, v, out, lse = ctx.saved_tensors  # once: a checkpoint hands them out no second time
        wide = wide_dtype(q)
        dq, dk, dv = (torch.zeros_like(x, dtype=wide) for x in (q, k, v))
        with unrounded(q.device):
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
    """The online softmax: output and log-sum-exp of ``rows`` (+inf for a row that sees nothing)."""
    wide = wide_dtype(q)
    qi = q[..., rows, :].to(wide)
    out = qi.new_zeros(*qi.shape[:-1], v.shape[-1])
    largest = qi.new_full((*qi.shape[:-1], 1), -torch.inf)
    total = qi.new_zeros((*qi.shape[:-1], 1))
    for columns, allowed in tiles.seen(rows, q.device):
        scores = _scores(qi, k[..., columns, :].to(wide), allowed, scale)
        raised = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        shift = raised.masked_fill(raised == -torch.inf, 0)
        fade = torch.exp(largest - shift)  # what the sums so far are worth under the new maximum
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


# ---- fused


@checked
def fused(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    mask: Bool[Tensor, "#b #h #n #m"] | Bool[Tensor, "#n #m"] | Pattern | None = None,
    scale: float | None = None,
) -> Float[Tensor, "b h n e"]:
    """PyTorch's ``scaled_dot_product_attention``, the mask said in the cheapest way it knows."""
    n, m = q.shape[-2], k.shape[-2]
    if patterns.is_causal(mask) and n == m:  # PyTorch aligns is_causal at the top left
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    allowed = patterns.as_mask(mask, n, m, q.device, len(q), q.shape[1])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)


FORMS = {"naive": naive, "tiled": tiled, "fused": fused}

# ---- module


class FullAttention(nn.Module):
    """Multi-head attention: (b, n, dim) → (b, n, dim), by any of the forms.

    Called with a ``context`` (b, m, dim) it is cross-attention. ``step`` decodes: it takes the next
    tokens and the state of all before them, and gives what the parallel form gives at those
    positions.
    """

    def __init__(
        self, dim: int, heads: int, *, causal: bool = False, form: str = "fused", bias: bool = False
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.causal, self.form = causal, form
        self.attend = choose("form of full attention", form, FORMS)

    @checked
    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        context: Float[Tensor, "b m dim"] | None = None,
        context_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x, context)
        mask = note("mask", patterns.visible(self.causal, padding, context, context_padding))
        return self.heads.merge(self.attend(q, k, v, mask=mask))

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: KeyValueCache | None = None
    ) -> tuple[Float[Tensor, "b t dim"], KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        q, k, v = self.heads.project(x)
        state = KeyValueCache.extended(state, k, v)
        keys, values = note("keys", state.keys), note("values", state.values)  # all, old and new
        out = self.attend(q, keys, values, mask=note("mask", patterns.causal()))
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"causal={self.causal}, form={self.form!r}"


# ---- card

b, h, n, m, d, e = letters("b h n m d e")

CARD = Card(
    name="full",
    title="Full attention",
    family="dense",
    role="attend",
    paper=Paper(
        "Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin",
        "Attention Is All You Need",
        "NeurIPS",
        2017,
        "1706.03762",
    ),
    forms=FORMS,
    causal="optional",
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * m, "tiled": h * n * e, "fused": h * n * e},
    notes={"naive": ("scores", "weights"), "tiled": ("log_sum_exp",)},
    departures=(
        "a row with nothing to see gives zeros",
        "causal masks are aligned at the bottom right when there are fewer queries than keys",
        "no dropout on the weights",
    ),
    variants=({"tile": 32}, {"tile": 3}),
    build=FullAttention,
)
