r"""Longformer: a sliding window, and a few global tokens with full attention.

Most of the context that a word needs is near it, and several layers reach further: with a window
of w, L layers reach L·w positions. Tokens that need the whole sequence at once (the token
that is classified, a question) are *global*: they attend to all, and all attend to them. With the
global tokens G

$$S_i = \{j : |i - j| \le w/2\} \cup G \;(i \notin G),\qquad S_i = \text{all} \;(i \in G)$$

A *dilated* window has gaps: $|i - j| = k D,\ k \le w/2$. It reaches D times as far at the same
cost, and D may differ from head to head (``dilation=(1, 1, 2, 4)``) and from layer to layer. Global
tokens have projections of their own, $Q_g, K_g, V_g$, which start equal to the local ones:

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{S_i}^\top}{\sqrt d}\right) V_{S_i} \;(i \notin G),
\qquad o_i = \mathrm{softmax}\!\left(\frac{q^g_i {K^g}^\top}{\sqrt d}\right) V^g \;(i \in G)$$

Time: $O(n w)$, and $O(n)$ for each global token: its row and its column. ``EncoderDecoder`` is a
layer of LED: Longformer encodes the source, full attention decodes.

The paper's letters: $w$, $d$ (dilation, our D) and $Q_s, K_s, V_s$ (our local projections).

Readings. The paper does not say which projections an ordinary token uses for a global key.
The released code uses the local ones, so $Q_g, K_g, V_g$ are for the rows of global tokens only, as
here. A global key inside the window is counted once.

Common mistakes. ``window`` is the paper's w, the total: w/2 to each side, and w + 1 keys with the
position itself. In the authors' code that name is the one-sided width; in Hugging Face's it is the
total, and even. Their chunks need a length that is a multiple of w and support neither dilation nor
causality; here any length works. One benchmark's version has w/2 keys to the right and w/2 − 1 to
the left; the variant without overlapping chunks is a different pattern.

A causal Longformer has no global tokens, as in the paper's language model: a token that attends to
all and that all attend to would pass information from the future to all others. A pattern with the
causal pairs of a global token can be composed: ``(local(r) | global_([0])).causal()``.

Departures.
- the global projections are for the rows of global tokens only, as in the released code
- a causal Longformer refuses global tokens
- global positions are the same for all sequences of a batch. They count from the start.

Gives up. A token does not attend to tokens farther away than half the window.

Beltagy, Peters, Cohan. Longformer: The Long-Document Transformer. 2020, arXiv:2004.05150, sections
3 and 7.
"""

import copy
from dataclasses import dataclass

import sympy
from torch import Tensor

from attnlab.core import patterns
from attnlab.core.card import letters
from attnlab.core.forms import form
from attnlab.core.heads import zero_nonfinite_padding
from attnlab.core.options import Size
from attnlab.core.patterns import Pattern
from attnlab.core.positions import Rotation, positions_of
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Keys,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import attention as patterned
from attnlab.core.sparse.attention import (
    Form,
    PatternAttention,
    PatternOptions,
    dense_mask,
    pattern_card,
    scaled_scores,
)
from attnlab.mechanisms.fixed.longformer.led import EncoderDecoder as EncoderDecoder
from attnlab.mechanisms.fixed.longformer.rows import GlobalRows as GlobalRows
from attnlab.mechanisms.fixed.longformer.rows import with_rows

# ---- the pattern


@dataclass(frozen=True, kw_only=True)
class LongformerOptions(PatternOptions):
    """A window, dilated or not, and global positions.

    ``window``            the paper's w, half of it to each side; even.
    ``dilation``          the step between keys of the window; a tuple has one for each head.
    ``global_positions``  the global positions.
    """

    window: int = 512
    dilation: Size | tuple[Size, ...] = 1
    global_positions: tuple[int, ...] = ()

    def allowed(self, heads: int) -> Pattern:
        if isinstance(self.dilation, int):
            seen = self._dilated(self.dilation)
        elif len(self.dilation) == heads:
            seen = patterns.per_head(*map(self._dilated, self.dilation))
        else:
            raise ValueError(
                f"dilation gives a step to {len(self.dilation)} heads, but there are {heads}"
            )
        return seen | patterns.global_(self.global_positions) if self.global_positions else seen

    def _dilated(self, step: int) -> Pattern:
        radius = self.window // 2
        return patterns.local(radius) if step == 1 else patterns.dilated(radius, step)

    @checked
    def pattern(self, *, causal: bool | None = None, heads: Size = 1) -> Pattern:
        if causal and self.global_positions:
            raise ValueError(
                "a causal Longformer has no global tokens: they attend to all positions, so they "
                "would pass information from the future on to all others; leave global_positions "
                "out, or compose a pattern: (local(r) | global_([0])).causal()"
            )
        return super().pattern(causal=causal, heads=heads)

    def check(self) -> None:
        if self.window < 2 or self.window % 2:
            raise ValueError(
                "window is the paper's total w, half of it to each side of a position, so it is "
                f"even and at least 2, got {self.window}"
            )
        if any(position < 0 for position in self.global_positions):
            raise ValueError(
                "global positions count from the start (padded sequences of a batch have no common "
                f"end), got {list(self.global_positions)}"
            )
        if len(set(self.global_positions)) < len(self.global_positions):
            raise ValueError(f"a global position is named twice: {list(self.global_positions)}")


# ---- forms


@form
def naive(
    q: Queries, k: Keys, v: Values, *,
    mask: Pattern | None = None, global_rows: GlobalRows | None = None,
) -> Outputs:  # fmt: skip
    """The equation under the dense mask; without ``global_rows`` all rows use q, k and v."""
    scores = scaled_scores(q, k)
    if global_rows:
        rows = global_rows.rows(q.shape[2], k.shape[2])
        of_rows = scaled_scores(global_rows.queries, global_rows.keys)
        scores = scores.index_copy(2, rows, of_rows)
    weights = note("weights", masked_softmax(note("scores", scores), dense_mask(mask, q, k)))
    out = weights @ v
    if global_rows:
        out = out.index_copy(2, rows, weights[:, :, rows] @ global_rows.values)
    return out


@checked
def blocked(
    q: Queries, k: Keys, v: Values, *,
    mask: Pattern | None = None, global_rows: GlobalRows | None = None,
) -> Outputs:  # fmt: skip
    """The windows and global columns block by block; then the rows of ``global_rows``, which attend
    to every valid key, replace those of the same positions. First derivatives only."""
    out = patterned.blocked(q, k, v, mask=mask)
    return with_rows(out, v, mask, global_rows) if global_rows else out


@checked
def flex(
    q: Queries, k: Keys, v: Values, *,
    mask: Pattern | None = None, global_rows: GlobalRows | None = None,
) -> Outputs:  # fmt: skip
    """FlexAttention computes windows and columns. Raises ValueError where it cannot run."""
    out = patterned.flex(q, k, v, mask=mask)
    return with_rows(out, v, mask, global_rows) if global_rows else out


@checked
def auto(
    q: Queries, k: Keys, v: Values, *,
    mask: Pattern | None = None, global_rows: GlobalRows | None = None,
) -> Outputs:  # fmt: skip
    """The form that is the fastest on this device computes windows and columns."""
    out = patterned.auto(q, k, v, mask=mask)
    return with_rows(out, v, mask, global_rows) if global_rows else out


FORMS = {"naive": naive, "blocked": blocked}
KERNELS = {"flex": flex}
BY_NAME = {**FORMS, **KERNELS, "auto": auto}

# ---- module


class LongformerAttention(PatternAttention):
    """Windowed multi-head attention with global tokens: (b, n, dim) → (b, n, dim).

    With ``global_positions`` it has a second query, key and value projection for their rows, equal
    to the first when it is built.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, options: LongformerOptions = LongformerOptions(), *,
        causal: bool = False, form: Form = "auto", bias: bool = False,
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, options, causal=causal, form=form, bias=bias, positions=positions
        )
        self.global_positions = options.global_positions
        if self.global_positions:
            local = (self.heads.query, self.heads.key, self.heads.value)
            self.query_global, self.key_global, self.value_global = map(copy.deepcopy, local)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        mask = note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        rows = self._global_rows(x, padding) if self.global_positions else None
        return self.heads.merge(BY_NAME[self.form](q, k, v, mask=mask, global_rows=rows))

    def _global_rows(self, x: Tensor, padding: Tensor | None) -> GlobalRows:
        positions, n = self.global_positions, x.shape[1]
        x = zero_nonfinite_padding(x, padding)
        if max(positions) >= n:
            raise ValueError(
                f"global position {max(positions)} is outside of a sequence of {n}: 0 … {n - 1}"
            )
        linears = (self.query_global, self.key_global, self.value_global)
        q, k, v = (
            linear(of).unflatten(-1, (self.heads.heads, -1)).transpose(1, 2)
            for linear, of in zip(linears, (x[:, list(positions)], x, x), strict=True)
        )
        if isinstance(scheme := self.heads.positions, Rotation):
            at = positions_of(n, x.device, padding=padding)
            q, k = scheme.queries(q, at[..., list(positions)]), scheme.keys(k, at)
        return GlobalRows(positions, q, k, v)


# ---- card

n, w = letters("n w")


def pairs(chosen: LongformerOptions) -> sympy.Expr:
    """w + 1 keys for each query, and a row and a column for each global position."""
    return n * (w + 1 + 2 * len(chosen.global_positions))


CARD = pattern_card(
    __doc__,
    name="longformer",
    options=LongformerOptions,
    pairs=pairs,
    letters={"w": "window"},
    variants=({"window": 36}, {"window": 4, "dilation": 3}, {"window": 6}),
    forms=FORMS,
    kernels=KERNELS,
    build=LongformerAttention,
    aliases=("led",),
    small_options={"window": 8},
)
