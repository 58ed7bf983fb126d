r"""Sparse Transformer: two thin patterns whose product is the whole past.

Of the n²/2 pairs of causal attention most weigh next to nothing. Child et al. let each position see
a subset $S_i$ of its past, made of two factors of about $\sqrt n$ keys each, chosen so that what
position i does not see itself, somebody whom it sees has seen:

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{S_i}^\top}{\sqrt d}\right) V_{S_i},\qquad S_i \subseteq
\{j : j \le i\}$$

With the stride s (near $\sqrt n$) the factors are

**strided**, for images and sound, where s is the length of a line: $A^1_i$ = the last s positions
and i itself; $A^2_i = \{j : (i - j) \bmod s = 0\}$, the column above i.

**fixed**, for text, which has no lines: $A^1_i$ = the block of s positions that i stands in;
$A^2_i$ = the last c positions of every block, which sum up for all who come later.

Heads use them in three ways (section 5.1). *Merged*: every head sees $A^1_i \cup A^2_i$ (the
default). *Interleaved*: layer r sees one factor, $A^{1 + r \bmod 2}$ (``layer=r``). *Separate*:
head a sees one, $A^{1 + a \bmod 2}$ (``separate=True``). Heads that all look at the same summaries
learn less than heads that share a block out: with ``distinct=True`` the a-th of them reads the a-th
last c positions of a block, in turn.

Time: with $s \approx \sqrt n$, $O(n \sqrt n)$; c summary columns cost c times the second factor.

``naive``    the equation under the dense mask.
``blocked``  only the pairs. In natural order a stride touches every block; the layout takes the
             positions by their residue, where it is local (``attnlab.core.sparse``).

``SparseTransformerAttention.step`` decodes. Fixed needs its own block and the summaries of the
past; strided needs all of it, but compares the few keys it sees.

The papers' letters: $l$ (stride) is our s; $p$ is always 2 here; $A^{(m)}$ as above; $W_p$ is the
output projection of ``attnlab.core.heads``.

Readings. The formula for the strided window has l + 1 positions, the text "the previous l", the
released code l: ``window="paper"`` takes the formula, ``window="code"`` the code; both reach the
whole past in two layers. The fixed columns run to residue l in the formula, which does not occur:
we take the c columns l − c … l − 1, as the released kernels do and the paper's own example says.
Copies differ: one takes residue 0 as well (c + 1 columns), one c + 1 columns that straddle blocks.

The traps. The causal intersection stands in section 4.2 and is left out of the formulas of 4.3. The
second fixed factor alone has empty rows (no summary has come yet): they give zeros here, where a
reference that adds −10⁹ gives them the uniform mean of everything, future included. The fixed
factors one after the other do not reach the near past; merged heads, or the residual path, do.
A stride that is no shorter than the sequence is no error: one block, dense causal attention.

Departures. A row with nothing to see gives zeros. No dropout on the weights. The two-dimensional
position embeddings, the initialisation and the recomputation of section 5 belong to a model.

Child, Gray, Radford, Sutskever. Generating Long Sequences with Sparse Transformers. 2019,
arXiv:1904.10509, sections 4.2, 4.3 and 5.1.
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
from attnlab.core.sparse import decoding
from attnlab.core.sparse.blocked import blocked as over_blocks
from attnlab.core.suggest import choose

KINDS = ("strided", "fixed")
WINDOWS = {"paper": 1, "code": 0}  # positions seen besides the stride's number of them

# ---- who may see whom


def factors(
    stride: int, kind: str = "strided", columns: int = 1, window: str = "paper", turn: int = 0
) -> tuple[Pattern, Pattern]:
    """The paper's A¹ and A²; ``turn`` says which c summary columns, counted from a block's end."""
    if kind == "strided":
        column = patterns.strided(stride)
        near: Pattern = patterns.local(stride - 1 + WINDOWS[window])
        return near.causal(), column.causal()
    summaries = patterns.summaries(stride, columns)  # refuses sizes that do not fit
    if turn:
        summaries = patterns.summaries(stride, columns, turn % (stride // columns) * columns)
    return patterns.block_diagonal(stride).causal(), summaries.causal()


def roles(
    heads: int, layer: int | None, separate: bool, distinct: bool
) -> list[tuple[int | None, int]]:
    """For each head: which factor it sees (0, 1, None for both), and its turn at the summaries."""
    factor = None if layer is None else layer % 2
    return [
        (a % 2 if separate else factor, (a // 2 if separate else a) if distinct else 0)
        for a in range(heads)
    ]


def pattern(
    *,
    stride: int = 128,
    kind: str = "strided",
    columns: int = 1,
    window: str = "paper",
    layer: int | None = None,
    separate: bool = False,
    distinct: bool = False,
    heads: int | None = None,
) -> Pattern:
    """Who may see whom; one pattern ``per_head`` where heads differ (separate or distinct).

    ``stride`` and ``columns`` are the paper's l and c.
    """
    _refuse(stride, kind, columns, window, layer, separate, distinct, heads)

    def seen(factor: int | None, turn: int) -> Pattern:
        near, far = factors(stride, kind, columns, window, turn)
        return near | far if factor is None else (near, far)[factor]

    alike = not (separate or distinct)
    of_heads = [
        seen(*role) for role in roles(1 if alike else heads or 1, layer, separate, distinct)
    ]
    return of_heads[0] if alike else patterns.per_head(*of_heads)


def _refuse(
    stride: int,
    kind: str,
    columns: int,
    window: str,
    layer: int | None,
    separate: bool,
    distinct: bool,
    heads: int | None,
) -> None:
    choose("kind of sparse transformer", kind, dict.fromkeys(KINDS))
    choose("window of the sparse transformer", window, WINDOWS)
    if kind == "strided" and (columns != 1 or distinct):
        raise ValueError('the strided kind has no summary columns: columns are for kind="fixed"')
    if kind == "fixed" and window != "paper":
        raise ValueError('the fixed kind has blocks, no window: window is for kind="strided"')
    if layer is not None and separate:
        raise ValueError(
            "layer=… interleaves the factors layer by layer, separate=True head by head: choose one"
        )
    if layer is not None and layer < 0:
        raise ValueError(f"layers are counted from 0, got layer={layer}")
    if distinct and 2 * columns > stride:
        raise ValueError(
            f"a block of {stride} holds one set of {columns} summary columns only, so heads cannot "
            "read distinct ones: choose columns ≤ stride / 2"
        )
    if (separate or distinct) and heads is None:
        raise ValueError("heads differ (separate or distinct): say how many with heads=…")
    if separate and heads == 1:
        raise ValueError(
            "separate=True gives each head one of two factors: it needs 2 heads, got 1"
        )


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    stride: int = 128,
    kind: str = "strided",
    columns: int = 1,
    window: str = "paper",
    layer: int | None = None,
    separate: bool = False,
    distinct: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """The equation under the dense mask; the queries are the last n of m positions."""
    seen = pattern(
        stride=stride,
        kind=kind,
        columns=columns,
        window=window,
        layer=layer,
        separate=separate,
        distinct=distinct,
        heads=q.shape[1],
    )
    return _dense(q, k, v, patterns.both(seen, patterns.padding(padding)))


def _dense(q: Tensor, k: Tensor, v: Tensor, seen: Pattern) -> Tensor:
    allowed = patterns.as_mask(seen, q.shape[-2], k.shape[-2], q.device, len(q))
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


# ---- blocked


@checked
def blocked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    stride: int = 128,
    kind: str = "strided",
    columns: int = 1,
    window: str = "paper",
    layer: int | None = None,
    separate: bool = False,
    distinct: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """The same at the cost of the pairs that are seen. First derivatives only."""
    seen = pattern(
        stride=stride,
        kind=kind,
        columns=columns,
        window=window,
        layer=layer,
        separate=separate,
        distinct=distinct,
        heads=q.shape[1],
    )
    return _over_blocks(q, k, v, patterns.both(seen, patterns.padding(padding)))


def _over_blocks(q: Tensor, k: Tensor, v: Tensor, seen: Pattern) -> Tensor:
    return over_blocks(
        q, k, v, seen, allow_fully_masked=True
    )  # before the first summary there is none to see


FORMS = {"naive": naive, "blocked": blocked}
UNDER: dict[str, Callable[..., Tensor]] = {  # the same, when the pattern is at hand
    "naive": _dense,
    "blocked": _over_blocks,
}

# ---- module


class SparseTransformerAttention(nn.Module):
    """Multi-head attention over the factors of the past: (b, n, dim) → (b, n, dim). Always causal.

    ``step`` decodes: it takes the next tokens and the state of all before them, and gives what the
    parallel form gives at those positions.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = True,
        form: str = "blocked",
        stride: int = 128,
        kind: str = "strided",
        columns: int = 1,
        window: str = "paper",
        layer: int | None = None,
        separate: bool = False,
        distinct: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if not causal:
            raise ValueError("the Sparse Transformer is always causal: its factors are of the past")
        self.heads = Heads(dim, heads, bias=bias)
        self.form = form
        self.attend = choose("form of the sparse transformer", form, UNDER)
        self.pattern = pattern(
            stride=stride,
            kind=kind,
            columns=columns,
            window=window,
            layer=layer,
            separate=separate,
            distinct=distinct,
            heads=heads,
        )

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        mask = note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        return self.heads.merge(self.attend(q, k, v, mask))

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: decoding.DecodingState | None = None
    ) -> tuple[Float[Tensor, "b t dim"], decoding.DecodingState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        out, state = decoding.step(*self.heads.project(x), self.pattern, state)
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"form={self.form!r}, {self.pattern}"


# ---- card

b, h, n, m, d, e, s, c = letters("b h n m d e s c")


def pairs(
    *,
    kind: str = "strided",
    window: str = "paper",
    layer: int | None = None,
    separate: bool = False,
    distinct: bool = False,
    heads: int = 1,
) -> sympy.Expr:
    """How many pairs are seen, over all heads where they differ; else by each head."""
    alike = not (separate or distinct)
    of_heads = roles(1 if alike else heads, layer, separate, distinct)
    return sympy.Add(*(_pairs(kind, window, factor, turn) for factor, turn in of_heads))


def _pairs(kind: str, window: str, factor: int | None, turn: int) -> sympy.Expr:
    """Of factor 0, 1, or (None) their union: the sum of both without what both see."""
    blocks = sympy.floor(n / s)
    rest = n - blocks * s
    if kind == "strided":
        seen = s + WINDOWS[window]
        first = sympy.Min(n, seen)
        near = first * (first + 1) / 2 + (n - first) * seen
        far = s * blocks * (blocks + 1) / 2 + rest * (blocks + 1)
        common = n + sympy.Max(0, n - s) * WINDOWS[window]
    else:
        start = s - c * (sympy.Mod(turn, sympy.floor(s / c)) + 1)  # of the summaries in a block
        begun = sympy.Min(sympy.Max(rest - start, 0), c)  # those of the last, unfinished block
        ends = begun * (rest - start) - begun * (begun - 1) / 2
        near = blocks * s * (s + 1) / 2 + rest * (rest + 1) / 2
        common = blocks * (c * (s - start) - c * (c - 1) / 2) + ends
        far = c * blocks * (n - start) - s * c * blocks * (blocks - 1) / 2
        far = far - blocks * c * (c - 1) / 2 + ends
    return {0: near, 1: far, None: near + far - common}[factor]


order = n * s / 2 + c * n**2 / (2 * s)  # of the fixed pairs; strided: n·s + n²/2s

CARD = Card(
    name="sparse_transformer",
    title="Sparse Transformer",
    family="fixed",
    role="attend",
    paper=Paper(
        "Child, Gray, Radford, Sutskever",
        "Generating Long Sequences with Sparse Transformers",
        "arXiv",
        2019,
        "1904.10509",
    ),
    forms=FORMS,
    causal="always",
    time={"naive": 2 * h * n * m * (d + e), "blocked": 2 * h * (d + e) * order},
    memory={"naive": h * n * m, "blocked": order},
    notes={"naive": ("scores", "weights"), "blocked": ("log_sum_exp",)},
    departures=(
        "the strided window is the formula's l + 1 positions; the code's l is an option",
        "the fixed columns are l − c … l − 1 (residue l of the formula does not occur)",
        "a row with nothing to see gives zeros",
        "no dropout on the weights",
    ),
    variants=(
        {"kind": "fixed", "stride": 24},
        {"kind": "strided", "stride": 5},
        {"kind": "strided", "stride": 3, "window": "code", "separate": True},
        {"kind": "strided", "stride": 4, "layer": 1},
        {"kind": "fixed", "stride": 5, "columns": 2, "distinct": True},
        {"kind": "fixed", "stride": 7, "columns": 2, "separate": True, "distinct": True},
    ),
    options={"s": "stride", "c": "columns"},
    pattern=pattern,
    pairs=pairs,
    build=SparseTransformerAttention,
)
