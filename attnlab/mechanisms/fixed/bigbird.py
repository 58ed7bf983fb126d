r"""BigBird: a window, a few blocks that everybody sees, and a few drawn at random.

The sequence is cut into blocks of B positions, and blocks see blocks. Block i sees its window, i −
(w−1)/2 … i + (w−1)/2; the G global blocks, half of them at either end, see all and are seen by all;
and every other block sees r more, drawn at random. As a graph, this has the short paths of a random
graph, the clusters of a lattice, and a star in its middle: any two positions are two steps apart.

$$o_i = \sum_{j \in S_i} \mathrm{softmax}_{j \in S_i}\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)
v_j,\qquad S_i = \mathrm{window} \cup \mathrm{global} \cup \mathrm{random}$$

S is a set: a key that is in the window *and* drawn counts once. One softmax runs over all of it.

Two ways to be global (section 2 and appendix D):

ITC  (internal) existing blocks become global: ``global_blocks=2``, the first and the last.
ETC  (extended) the first t positions are extra tokens that see all and are seen by all, and blocks
     are counted from behind them: ``global_blocks=0, global_tokens=t, random=0``.

Rows as in the official code: nothing wraps around the ends, so a block near an end has a smaller
window (block 1 sees 0, 1, 2, the last, and r more); blocks are drawn from those that are neither
global nor in the window; and block 1 never draws the last but one, nor that one block 1. With nb =
64 blocks and r = 3 that makes 2·nb + 2 (4 + r) + (nb − 4)(5 + r) = 622 of 4096 blocks.

Cost: $2h\,(d + e)$ FLOPs a pair, and about n (B (w + 2G + r) + 2t) pairs, linear in n; the exact
number is on the card.

``naive``    dense: the masked softmax over n × n scores.
``blocked``  attends only where something is allowed (``attnlab.core.sparse``); memory is linear.

The paper's letters: $b$ is our B; $g$, $w$, $r$ are counted there in positions (g = 2b, w = 3b, r =
3b), here in blocks; its base models have b = 64 (ITC), or b = 84, g = 256, r = 0 (ETC).

The trap: implementations that gather the keys of window, globals and draws side by side count a
block twice if it is in two of them. Hugging Face's does so in eval mode, where all draws are block
0: its output there is not the masked softmax (in train mode it is).

Readings and departures. Not causal: the global blocks at the end are the future of everybody. Where
the last block is not global (ETC; ``global_blocks`` below 2) it is never drawn, since it may be
short. Any length: the last block may be short (the official code wants multiples), and where there
are few blocks what cannot be drawn is not (the official code falls back to full attention). The
draw depends on the length and the seed alone, and is the same in each head unless ``per_head``.

Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang, Ahmed. Big Bird:
Transformers for Longer Sequences. NeurIPS 2020, arXiv:2007.14062, section 2 and appendix D.
"""

from collections.abc import Callable

import sympy
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import blocked as sparse
from attnlab.core.suggest import choose

# ---- helpers


def pattern(
    *,
    block: int = 64,
    window: int = 3,
    random: int = 3,
    global_blocks: int = 2,
    global_tokens: int = 0,
    seed: int = 0,
    heads: int | None = None,
) -> Pattern:
    """Who sees whom; ``window`` (odd), ``random`` and ``global_blocks`` are numbers of blocks.

    ``heads`` gives each head draws of its own. Drawn when the length is known, from the seed.
    """
    _validate(block, window, random, global_blocks, global_tokens)
    drawn = range(1) if heads is None else range(heads)
    each = [
        _blocks(window, random, global_blocks, seed * len(drawn) + head)
        .blocks(block)
        .shifted(global_tokens)
        for head in drawn
    ]
    inner = each[0] if heads is None else patterns.per_head(*each)
    return _everywhere(global_tokens) | inner if global_tokens else inner


def _blocks(window: int, random: int, global_blocks: int, seed: int) -> Pattern:
    """The pattern among blocks."""
    first, last = (global_blocks + 1) // 2, global_blocks // 2
    seen = patterns.local(window // 2)
    if global_blocks:
        seen = seen | _everywhere(first, last)
    if not random:
        return seen
    # Block 1 and the last but one do not draw each other; a last block that may be short is never.
    rows, columns = patterns.edges(first + 1, of="row"), patterns.edges(first + 1, of="column")
    before = patterns.edges(0, last + 1, of="row"), patterns.edges(0, last + 1, of="column")
    apart = (rows & before[1]) | (columns & before[0]) if last else before[1]
    return seen | patterns.random(random, seed, among=~(seen | apart))


def _everywhere(first: int, last: int = 0) -> Pattern:
    """The first and last see all and are seen by all, as many of them as there are."""
    seen = patterns.edges(first, last, of="column")
    return seen | patterns.edges(first, last, of="row")


def _validate(block: int, window: int, random: int, global_blocks: int, global_tokens: int) -> None:
    for name, size, least in (
        ("block", block, 1),
        ("window", window, 1),
        ("random", random, 0),
        ("global_blocks", global_blocks, 0),
        ("global_tokens", global_tokens, 0),
    ):
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
    if window % 2 == 0:
        raise ValueError(
            f"the window has its own block in the middle, so window is odd: got {window}, "
            f"try {window + 1}"
        )
    if global_blocks and global_tokens:
        raise ValueError(
            f"either blocks are global or extra tokens are: got global_blocks={global_blocks} and "
            f"global_tokens={global_tokens}; for the latter give global_blocks=0"
        )


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n e"],
    *,
    padding: Bool[Tensor, "b n"] | None = None,
    block: int = 64,
    window: int = 3,
    random: int = 3,
    global_blocks: int = 2,
    global_tokens: int = 0,
    seed: int = 0,
    per_head: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The masked softmax, dense."""
    seen = pattern(
        block=block, window=window, random=random, global_blocks=global_blocks,
        global_tokens=global_tokens, seed=seed, heads=q.shape[1] if per_head else None,
    )  # fmt: skip
    return _dense(q, k, v, patterns.both(seen, patterns.padding(padding)))


def _dense(q: Tensor, k: Tensor, v: Tensor, seen: Pattern) -> Tensor:
    n = q.shape[-2]
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    allowed = patterns.as_mask(seen, n, n, q.device, len(q))
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


# ---- blocked


@checked
def blocked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n e"],
    *,
    padding: Bool[Tensor, "b n"] | None = None,
    block: int = 64,
    window: int = 3,
    random: int = 3,
    global_blocks: int = 2,
    global_tokens: int = 0,
    seed: int = 0,
    per_head: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The same at the cost of its pairs, forward and backward."""
    seen = pattern(
        block=block, window=window, random=random, global_blocks=global_blocks,
        global_tokens=global_tokens, seed=seed, heads=q.shape[1] if per_head else None,
    )  # fmt: skip
    return sparse.blocked(q, k, v, patterns.both(seen, patterns.padding(padding)))


FORMS = {"naive": naive, "blocked": blocked}
ATTEND: dict[str, Callable[..., Tensor]] = {
    "naive": _dense,
    "blocked": sparse.blocked,
}  # the same, the pattern being known

# ---- module


class BigBirdAttention(nn.Module):
    """Multi-head BigBird attention: (b, n, dim) → (b, n, dim).

    With ``global_tokens`` the first positions of x are the extra ones: put them there. Layers that
    should draw differently are given different seeds.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        form: str = "blocked",
        block: int = 64,
        window: int = 3,
        random: int = 3,
        global_blocks: int = 2,
        global_tokens: int = 0,
        seed: int = 0,
        per_head: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if causal:
            raise ValueError(
                "BigBird is not causal: its global positions see, and show to all, what comes "
                "later; build it with causal=False, or take a window of the past"
            )
        self.heads = Heads(dim, heads, bias=bias)
        self.form, self.attend = form, choose("form of BigBird attention", form, ATTEND)
        self.pattern = pattern(
            block=block, window=window, random=random, global_blocks=global_blocks,
            global_tokens=global_tokens, seed=seed, heads=heads if per_head else None,
        )  # fmt: skip

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        seen = note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        return self.heads.merge(self.attend(q, k, v, seen))

    def extra_repr(self) -> str:
        return f"{self.pattern}, form={self.form!r}"


# ---- card

n, h, d, e = letters("n h d e")
B, w = letters("B w")  # block and window; r, G and t may be 0
r, G, t = (sympy.Symbol(name, nonnegative=True, integer=True) for name in "rGt")


def _pairs() -> sympy.Expr:
    """The pairs of n positions, as a formula.

    The first t positions and the G global blocks are full rows and columns. Of the N inner blocks
    each sees its window, clipped at the ends, and draws min(r, what is left). The last block is
    short by s positions; ``last`` blocks see it, and it them.
    """
    inner = sympy.Max(0, n - t)
    blocks = sympy.ceiling(inner / B)
    s, N, half = blocks * B - inner, sympy.Max(0, blocks - G), (w - 1) / 2
    reach = sympy.Min(half, N - 1)
    window = N * (2 * reach + 1) - reach * (reach + 1)
    last = sympy.Piecewise((blocks, G >= 2), (sympy.Min(blocks, half + 1 + G), True))
    left = sympy.Max(0, N - 1 - half)  # of N blocks, what the window of the first one leaves
    corners = 2 * (sympy.Min(r, left) - sympy.Min(r, sympy.Max(0, left - 1)))
    among_all = _draws(N, half) - corners
    among_whole = _draws(sympy.Max(0, N - 1), half) + sympy.Min(r, left) * (1 - s / B)
    drawn = sympy.Piecewise((among_all, G >= 2), (among_whole, True))
    short = sympy.Piecewise((2 * B * s * last - s**2, inner > 0), (0, True))
    of_blocks = blocks**2 - N**2 + window + drawn
    return n**2 - inner**2 + B**2 * of_blocks - short


def _many() -> sympy.Expr:
    """What blocks allow of very many positions, the ends of the window apart."""
    return B * n * (2 * G + w + r) - B**2 * G * (G + w + r)


def _draws(N: sympy.Expr, half: sympy.Expr) -> sympy.Expr:
    """What N rows draw from N columns outside of the window: Σ min(r, left over)."""
    one_side = N - 1 - half  # of the first row; the second has one less there, …
    ends = 2 * (_ramp(one_side) - _ramp(one_side - half))
    return ends + sympy.Max(0, N - 2 * half) * sympy.Min(r, sympy.Max(0, one_side - half))


def _ramp(x: sympy.Expr) -> sympy.Expr:
    """min(r, 1) + min(r, 2) + … + min(r, x)."""
    x = sympy.Max(0, x)
    bent = sympy.Min(r, x)
    return bent * (bent + 1) / 2 + r * (x - bent)


CARD = Card(
    name="bigbird",
    title="BigBird",
    family="fixed",
    role="attend",
    paper=Paper(
        "Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang, Ahmed",
        "Big Bird: Transformers for Longer Sequences",
        "NeurIPS",
        2020,
        "2007.14062",
    ),
    forms=FORMS,
    causal="never",
    time={
        "naive": 2 * h * n**2 * (d + e),
        "blocked": 2 * h * (_many() + t * (2 * n - t)) * (d + e),
    },
    memory={"naive": h * n**2, "blocked": h * n * (d + e)},
    notes={"naive": ("scores", "weights"), "blocked": ("log_sum_exp",)},
    departures=(
        "any length: the last block may be short; few blocks are not turned into full attention",
        "a last block that is not global is never drawn",
        "a row with nothing to see gives zeros",
    ),
    variants=(
        {"block": 32, "window": 1, "random": 2},
        {"block": 4, "random": 1},
        {"block": 2, "random": 2, "seed": 3, "per_head": True},
        {"block": 3, "global_blocks": 0, "global_tokens": 2, "random": 0},
        {"block": 1, "window": 5, "global_blocks": 0, "global_tokens": 1, "random": 2},
        {"block": 3, "window": 1, "global_blocks": 1, "random": 2},
        {"block": 2, "window": 5, "global_blocks": 3},
    ),
    options={
        "B": "block",
        "w": "window",
        "r": "random",
        "G": "global_blocks",
        "t": "global_tokens",
    },
    pattern=pattern,
    pairs=_pairs(),
    by_length=True,
    build=BigBirdAttention,
)
