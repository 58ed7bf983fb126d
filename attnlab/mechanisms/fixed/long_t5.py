r"""LongT5's transient global attention: a window, and a summary of every block of the sequence.

A window of radius r is cheap and blind to what is far. ETC (Ainslie et al. 2020) adds global tokens
with inputs of their own; LongT5 makes them on the fly, in every layer, and throws them away
afterwards. The sequence is cut into G blocks of c tokens, and the global token of block g is

$$x_g = \mathrm{RMSNorm}\Bigl(\sum_{j \in \text{block } g} x_j\Bigr)$$

with a learned gain. Its key and its value come from the same projections as everybody's. A query
has one softmax over the tokens within r of it *and* all G global tokens:

$$s_{ij} = q_i \cdot k_j + \beta_{j - i}\quad(|i - j| \le r),\qquad
s_{ig} = q_i \cdot k_g + \gamma_{g - \text{block}(i)}$$

β and γ are T5's relative biases, a number per head and bucket of distances (in tokens, in blocks).
As in T5 there is no $1/\sqrt d$.

Nobody asks for the global tokens: they are seen, and do not see. A layer has one more table and one
more gain than a local one.

Time: $2 h n (2r + 1 + G)(d + e)$ with $G = \lfloor n / c \rfloor$: $O(n (r + n/c))$.

``naive``    the equations, dense: n × (n + G) scores.
``blocked``  the sequence in pieces of r + 1 queries: each is compared with its own piece, the one
             before and the one after, and with the globals. No n × n tensor.

The paper's letters: its $k$ (block size, 16) is c, ``block``; $r$ (127) is ``radius``.

Tokens after the last full block join that block: they are summed into its global token, and their
block distance counts from it. A sequence shorter than a block has no global token. Both go by the
length of the sequence without its padding (its last real token), so a padded sequence gives
what it gives alone; tokens that are padding are not summed.

Never causal: the sum of a block holds tokens that come after some of its queries.

Known elsewhere: without a mask, Hugging Face's layer lets the first and the last piece look at the
zeros that stand beyond the ends; with a mask of ones it equals ours. Departures: the two tables
belong to this layer (T5 shares those of the first layer with all others: tie them to have that).
No dropout on the weights.

Guo, Ainslie, Uthus, Ontañón, Ni, Sung, Yang. LongT5: Efficient Text-To-Text Transformer for Long
Sequences. Findings of NAACL 2022, arXiv:2112.07916, section 3.1. Buckets: Raffel et al. Exploring
the Limits of Transfer Learning with a Unified Text-to-Text Transformer. JMLR 2020,
arXiv:1910.10683, section 2.1.
"""

import functools
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.precision import wide
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.suggest import choose

# ---- distances and blocks


def buckets_of(
    distance: Int[Tensor, "..."], buckets: int, farthest: int = 128
) -> Int[Tensor, "..."]:
    """T5's buckets of distances j − i: half of them for each direction.

    Of one direction's, the first half hold one distance each, the rest grow with its logarithm up
    to ``farthest``; whatever is farther falls into the last.
    """
    half = buckets // 2
    exact = half // 2
    far = distance.abs()
    grown = torch.log(far.clamp(min=1).float() / exact) / math.log(farthest / exact)
    grown = (exact + (grown * (half - exact)).long()).clamp(max=half - 1)
    return half * (distance > 0) + torch.where(far < exact, far, grown)


def lengths(padding: Tensor | None, n: int, device: torch.device) -> Int[Tensor, "b"]:
    """Up to the last real token; (1,) where nothing is padded."""
    if padding is None:
        return torch.full((1,), n, device=device)
    return (torch.arange(1, n + 1, device=device) * padding).amax(dim=-1)


def blocks_of(
    n: int, block: int, globals_: int, length: Int[Tensor, "b"]
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b k"]]:
    """Which block each token is of, and which global tokens there are, for each sequence."""
    there = (length // block).clamp(max=globals_)[:, None]
    of = torch.arange(n, device=length.device) // block
    return of.minimum((there - 1).clamp(min=0)), torch.arange(
        globals_, device=length.device
    ) < there


def _refuse(radius: int, block: int, buckets: int, farthest: int) -> None:
    if radius < 0:
        raise ValueError(f"radius should be at least 0, got {radius}")
    if block < 1:
        raise ValueError(f"a block has at least one token, got block={block}")
    if buckets < 4:
        raise ValueError(f"distances fall into at least 4 buckets, got {buckets}")
    if farthest <= buckets // 4:
        raise ValueError(
            f"farthest={farthest} should be beyond the {buckets // 4} distances that have a bucket "
            "each"
        )


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n e"],
    global_k: Float[Tensor, "b h k d"],
    global_v: Float[Tensor, "b h k e"],
    local_table: Float[Tensor, "h r"],
    global_table: Float[Tensor, "h r"],
    *,
    padding: Bool[Tensor, "b n"] | None = None,
    radius: int = 127,
    block: int = 16,
    farthest: int = 128,
) -> Float[Tensor, "b h n e"]:
    """The equations (Guo et al., section 3.1), one row of n + G scores per query.

    Of the global keys and values the first ⌊length / block⌋ are there; tables are (heads, buckets).
    """
    n, buckets = q.shape[2], local_table.shape[1]
    _refuse(radius, block, buckets, farthest)
    i = torch.arange(n, device=q.device)
    distance = i - i[:, None]
    scores = q @ k.mT + local_table[:, buckets_of(distance, buckets, farthest)]
    near = (distance.abs() <= radius).expand(1, 1, n, n)
    if padding is not None:
        near = near & padding[:, None, None, :]
    above, there = _above(q, global_k, global_table, padding, block, farthest)
    near, there = (x.expand(len(q), 1, n, -1) for x in (near, there))
    scores = note("scores", torch.cat([scores, above], dim=-1))
    weights = note("weights", masked_softmax(scores, torch.cat([near, there], dim=-1)))
    return weights @ torch.cat([v, global_v], dim=2)


def _above(
    q: Tensor,
    global_k: Tensor,
    table: Tensor,
    padding: Tensor | None,
    block: int,
    farthest: int,
) -> tuple[Tensor, Tensor]:
    """Scores (b, h, n, k) of the global tokens, and which of them are there (b, 1, 1, k)."""
    n, count = q.shape[2], global_k.shape[2]
    of, there = blocks_of(n, block, count, lengths(padding, n, q.device))
    distance = torch.arange(count, device=q.device) - of[..., None]
    bias = table[:, buckets_of(distance, table.shape[1], farthest)]  # (h, b, n, k)
    return q @ global_k.mT + bias.transpose(0, 1), there[:, None, None]


# ---- blocked


@checked
def blocked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n e"],
    global_k: Float[Tensor, "b h k d"],
    global_v: Float[Tensor, "b h k e"],
    local_table: Float[Tensor, "h r"],
    global_table: Float[Tensor, "h r"],
    *,
    padding: Bool[Tensor, "b n"] | None = None,
    radius: int = 127,
    block: int = 16,
    farthest: int = 128,
) -> Float[Tensor, "b h n e"]:
    """Pieces of radius + 1 queries against three pieces of keys, and against the globals.

    One softmax over both; half precisions are summed in float32.
    """
    b, _, n, _ = q.shape
    _refuse(radius, block, local_table.shape[1], farthest)
    dtype, piece = q.dtype, min(radius + 1, n)
    q, k, v, global_k, global_v, local_table, global_table = (
        wide(x) for x in (q, k, v, global_k, global_v, local_table, global_table)
    )
    queries = F.pad(q, (0, 0, 0, -n % piece)).unflatten(2, (-1, piece))
    near = queries @ _around(k, piece) + _bias(local_table, piece, farthest)
    seen = _seen(n, piece, radius, padding, q.device)
    above, there = _above(q, global_k, global_table, padding, block, farthest)
    above = F.pad(above, (0, 0, 0, -n % piece)).unflatten(2, (-1, piece))
    seen, there = (x.expand(b, 1, queries.shape[2], piece, -1) for x in (seen, there[..., None, :]))
    weights = masked_softmax(torch.cat([near, above], -1), torch.cat([seen, there], -1))
    local, far = weights.split([3 * piece, global_k.shape[2]], dim=-1)
    out = local @ _around(v, piece).mT + far @ global_v[:, :, None]
    return out.flatten(2, 3)[:, :, :n].to(dtype)


def _around(x: Tensor, piece: int) -> Tensor:
    """(b, h, n, d) → (b, h, pieces, d, 3 · piece): each piece, the one before, the one after."""
    n = x.shape[2]
    return F.pad(x, (0, 0, piece, piece + -n % piece)).unfold(2, 3 * piece, piece)


def _bias(table: Tensor, piece: int, farthest: int) -> Tensor:
    """(h, 1, piece, 3 · piece): the same for all pieces."""
    places = torch.arange(3 * piece, device=table.device)
    distance = places - places[piece : 2 * piece, None]
    return table[:, buckets_of(distance, table.shape[1], farthest)][:, None]


def _seen(n: int, piece: int, radius: int, padding: Tensor | None, device: torch.device) -> Tensor:
    """(b or 1, 1, pieces, piece, 3 · piece): near, within the sequence, and real."""
    places = torch.arange(3 * piece, device=device)
    near = (places - places[piece : 2 * piece, None]).abs() <= radius
    real = torch.ones(1, n, dtype=torch.bool, device=device) if padding is None else padding
    real = F.pad(real, (piece, piece + -n % piece)).unfold(1, 3 * piece, piece)
    return near & real[:, None, :, None, :]


FORMS = {"naive": naive, "blocked": blocked}

# ---- module


class LongT5Attention(nn.Module):
    """Multi-head transient global attention: (b, n, dim) → (b, n, dim). Never causal."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        radius: int = 127,
        block: int = 16,
        buckets: int = 32,
        farthest: int = 128,
        form: str = "blocked",
    ) -> None:
        super().__init__()
        if causal:
            raise ValueError(
                "LongT5's attention cannot be causal: a global token is the sum of a whole block, "
                "and holds tokens that come after some of the queries that look at it. Build it "
                "with causal=False (LongT5 decodes with full attention)"
            )
        _refuse(radius, block, buckets, farthest)
        self.heads = Heads(dim, heads)
        self.radius, self.block, self.form = radius, block, form
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.local_table = nn.Parameter(torch.zeros(heads, buckets))
        self.global_table = nn.Parameter(torch.zeros(heads, buckets))
        attend = choose("form of LongT5's attention", form, FORMS)
        self.attend = functools.partial(attend, radius=radius, block=block, farthest=farthest)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        n = x.shape[1]
        self.heads.fits(x, "x")
        summaries = self.norm(sums(x, self.block, padding))
        q, k, v = self.heads.project(x, torch.cat([x, summaries.to(x.dtype)], dim=1))
        tables = self.local_table, self.global_table
        out = self.attend(
            *(q, k[:, :, :n], v[:, :, :n], k[:, :, n:], v[:, :, n:]), *tables, padding=padding
        )
        return self.heads.merge(out)

    def extra_repr(self) -> str:
        return f"radius={self.radius}, block={self.block}, form={self.form!r}"


def sums(
    x: Float[Tensor, "b n dim"], block: int, padding: Bool[Tensor, "b n"] | None = None
) -> Float[Tensor, "b k dim"]:
    """What the real tokens of each block add up to; one place at least, if none is there."""
    b, n, _ = x.shape
    count = max(1, n // block)
    of, _ = blocks_of(n, block, count, lengths(padding, n, x.device))
    if padding is not None:
        x = x.masked_fill(~padding[..., None], 0)
    index = of.expand(b, n)[..., None].expand_as(x)
    return x.new_zeros(b, count, x.shape[-1]).scatter_add(1, index, x)


# ---- card

b, h, n, d, e, k, r = letters("b h n d e k r")

CARD = Card(
    name="long_t5",
    title="LongT5: transient global attention",
    family="fixed",
    role="attend",
    paper=Paper(
        "Guo, Ainslie, Uthus, Ontañón, Ni, Sung, Yang",
        "LongT5: Efficient Text-To-Text Transformer for Long Sequences",
        "Findings of NAACL",
        2022,
        "2112.07916",
    ),
    forms=FORMS,
    causal="never",
    time={
        "naive": 2 * h * n * (n + k) * (d + e),
        "blocked": 2 * h * n * (3 * (r + 1) + k) * (d + e),
    },
    memory={"naive": h * n * (n + k), "blocked": h * n * (3 * (r + 1) + k)},
    notes={"naive": ("scores", "weights")},
    departures=(
        "blocks and global tokens go by a sequence's length without its padding",
        "each layer has its own two tables of biases",
        "no dropout on the weights",
    ),
    variants=(
        {"radius": 5, "block": 3},
        {"radius": 2, "block": 7},
        {"radius": 1, "block": 1},
        {"radius": 0, "block": 5, "buckets": 8, "farthest": 11},
    ),
    build=LongT5Attention,
    options={"r": "radius"},
)
