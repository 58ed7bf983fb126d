r"""Axial attention: along a line, then along a column; together everybody.

The cells of a grid of H × W form a sequence of n = H·W, line by line. Axial attention looks along
one axis at a time: a cell at (r, c) sees its line, or its column, and nothing else.

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{S_i}^\top}{\sqrt d}\right) V_{S_i},\qquad
S_i = \{j : \lfloor j / W \rfloor = \lfloor i / W \rfloor\} \ \text{or}\
\{j : j \equiv i \bmod W\}$$

A line and then a column reach every cell in two layers: (r, c) hears of (r', c') through (r', c),
whose line it is.

Cost: n·W pairs along lines and n·H along columns, $n (H + W)$ for both: $O(n \sqrt n)$ for a
square, against n².

``naive``    the equation under the dense mask.
``blocked``  only the pairs. In natural order a column touches every block; the layout takes the
             cells by their column, where it is local (``attnlab.core.sparse``).

``axis`` is numpy's: 1 lets it run along lines, 0 along columns. ``split=True`` gives half of
the heads to each axis (heads 0, 2, … take ``axis``, the others the other one); layers may also take
turns (a list of options in a model), or stand in one module, ``LinesAndColumns``.

**Causal**, in raster order: along a line what stands to the left, along a column what stands above,
itself included. But a masked line and a masked column *do not reach the whole past*: what stands
above to the right is never heard of. The paper's generator therefore lets lines that are finished
see all of themselves, and moves the result down by one line before it is used:

$$y = \mathrm{line}_{\le}(x) + \downarrow\!\mathrm{column}_{\le}(\mathrm{line}(x))$$

Line r of the second term knows all of the lines above r and nothing of r itself, so the sum is
causal and knows the whole past. ``LinesAndColumns(causal=True)`` is this sum. The shift moves whole
outputs, queries included: it is not the mask "strictly above".

Any length works: the last line may be unfinished.

Departures. The paper generates channel by channel and puts gated residual blocks around each
attention; its outer and inner stacks are several layers deep, here they are one each. Its inner
stack also shifts by one cell, so that a cell does not see itself; that is the model's task here.

Ho, Kalchbrenner, Weissenborn, Salimans. Axial Attention in Multidimensional Transformers. 2019,
arXiv:1912.12180, section 3.
"""

import functools
from typing import NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse.blocked import blocked as over_blocks
from attnlab.core.sparse.decoding import DecodingState
from attnlab.core.sparse.decoding import step as step_under
from attnlab.core.suggest import choose

# ---- who sees whom


def pattern(
    *,
    causal: bool = False,
    width: int = 32,
    axis: int = 1,
    split: bool = False,
    heads: int | None = None,
) -> Pattern:
    """Along lines of ``width`` cells (axis=1), along columns (axis=0), or half of the heads each.

    ``split`` wants to know how many ``heads`` there are.
    """
    if width < 1:
        raise ValueError(f"a line has at least one cell, got width={width}")
    if axis not in (0, 1):
        raise ValueError(f"axis is 0 (along columns) or 1 (along lines), got {axis}")
    along = (patterns.strided(width), patterns.block_diagonal(width))
    chosen = tuple(seen.causal() if causal else seen for seen in along)
    if not split:
        return chosen[axis]
    if heads is None or heads < 2:
        raise ValueError(f"split=True gives half of the heads to each axis: got heads={heads}")
    return patterns.per_head(*(chosen[(axis + head) % 2] for head in range(heads)))


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    width: int = 32,
    axis: int = 1,
    split: bool = False,
) -> Float[Tensor, "b h n e"]:
    """The equation under the dense mask."""
    seen = pattern(causal=causal, width=width, axis=axis, split=split, heads=q.shape[1])
    seen = patterns.both(seen, patterns.padding(padding))
    mask = patterns.as_mask(seen, q.shape[-2], k.shape[-2], q.device, len(q))
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, mask))
    return weights @ v


# ---- blocked


@checked
def blocked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    width: int = 32,
    axis: int = 1,
    split: bool = False,
) -> Float[Tensor, "b h n e"]:
    """Only the pairs that are seen; columns in their own order."""
    seen = pattern(causal=causal, width=width, axis=axis, split=split, heads=q.shape[1])
    return over_blocks(q, k, v, patterns.both(seen, patterns.padding(padding)))


FORMS = {"naive": naive, "blocked": blocked}

# ---- modules


class AxialAttention(nn.Module):
    """Multi-head attention along one axis, or half of the heads along each: (b, n, dim) → same.

    ``step`` decodes; along lines its state is what has come of the line, along columns all.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        width: int = 32,
        axis: int = 1,
        split: bool = False,
        form: str = "blocked",
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads)
        self.causal, self.form = causal, form
        self.pattern = pattern(causal=causal, width=width, axis=axis, split=split, heads=heads)
        attend = choose("form of axial attention", form, FORMS)
        self.attend = functools.partial(attend, causal=causal, width=width, axis=axis, split=split)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        return self.heads.merge(self.attend(q, k, v, padding=padding))

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: DecodingState | None = None
    ) -> tuple[Float[Tensor, "b t dim"], DecodingState]:
        """The next t cells given the state of all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        q, k, v = self.heads.project(x)
        out, state = step_under(q, k, v, self.pattern, state)
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"{self.pattern}, form={self.form!r}"


class Unfinished(NamedTuple):
    """The state of a generator of lines: what the inner layer remembers, the cells of the line
    that is being made, the outer columns' past, and what they say about this line."""

    inner: DecodingState | None
    line: Float[Tensor, "b t dim"]
    columns: DecodingState | None
    context: Float[Tensor, "b w dim"]


class LinesAndColumns(nn.Module):
    """Along lines and then along columns: every cell hears of every cell in one module.

    Causal, it is the paper's generator: finished lines see all of themselves, columns look up, the
    result moves down by one line, and a masked line is added.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        width: int = 32,
        form: str = "blocked",
    ) -> None:
        super().__init__()
        self.causal, self.width = causal, width
        self.lines = AxialAttention(dim, heads, width=width, axis=1, form=form)
        self.columns = AxialAttention(dim, heads, causal=causal, width=width, axis=0, form=form)
        if causal:
            self.inner = AxialAttention(dim, heads, causal=True, width=width, axis=1, form=form)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        out = self.columns(self.lines(x, padding), padding)
        if not self.causal:
            return out
        return self.inner(x, padding) + down(out, self.width)

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: Unfinished | None = None
    ) -> tuple[Float[Tensor, "b t dim"], Unfinished]:
        """The next t cells. A line goes through the outer layers when it is finished."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        if state is None:
            nothing = x.new_zeros(len(x), self.width, x.shape[-1])
            state = Unfinished(None, x[:, :0], None, nothing)
        outs = []
        while x.shape[1]:
            come = state.line.shape[1]
            piece, x = x[:, : self.width - come], x[:, self.width - come :]
            out, inner = self.inner.step(piece, state.inner)
            outs.append(out + state.context[:, come : come + piece.shape[1]])
            line = torch.cat((state.line, piece), dim=1)
            state = state._replace(inner=inner, line=line)
            if line.shape[1] == self.width:
                context, columns = self.columns.step(self.lines(line), state.columns)
                state = Unfinished(inner, line[:, :0], columns, context)
        return torch.cat(outs, dim=1), state


def down(x: Float[Tensor, "b n dim"], width: int) -> Float[Tensor, "b n dim"]:
    """Moved down by one line; zeros come in at the top, the last line falls out."""
    return F.pad(x, (0, 0, width, 0))[:, : x.shape[1]]


# ---- card

b, h, n, m, d, e, w = letters("b h n m d e w")
(a,) = letters("a")  # the axis
along = w**a * (n / w) ** (1 - a)  # the length of a line (a = 1), or of a column (a = 0)


def pairs(*, axis: int = 1, split: bool = False, **_: object) -> dict[str, sympy.Expr]:
    """Closed forms for any n; with ``split``, over all ``heads``."""
    lines, beyond = sympy.floor(n / w), sympy.Mod(n, w)

    def times(size: sympy.Expr, causal: bool) -> sympy.Expr:
        return size * (size + 1) / 2 if causal else size**2

    def one(axis: int, causal: bool) -> sympy.Expr:
        if axis == 1:
            return lines * times(w, causal) + times(beyond, causal)
        return beyond * times(lines + 1, causal) + (w - beyond) * times(lines, causal)

    kinds = {"full": False, "causal": True}
    if not split:
        return {kind: one(axis, causal) for kind, causal in kinds.items()}
    (heads,) = letters("heads")
    half = sympy.floor(heads / 2)
    return {
        kind: (heads - half) * one(axis, causal) + half * one(1 - axis, causal)
        for kind, causal in kinds.items()
    }


CARD = Card(
    name="axial",
    title="Axial attention",
    family="fixed",
    role="attend",
    paper=Paper(
        "Ho, Kalchbrenner, Weissenborn, Salimans",
        "Axial Attention in Multidimensional Transformers",
        "arXiv",
        2019,
        "1912.12180",
    ),
    forms=FORMS,
    causal="optional",
    time={"naive": 2 * h * n * m * (d + e), "blocked": 2 * h * n * along * (d + e)},
    memory={"naive": h * n * m, "blocked": h * n * (d + e)},
    notes={"naive": ("scores", "weights"), "blocked": ("log_sum_exp",)},
    departures=(
        "the last line may be unfinished",
        "one layer of each kind instead of stacks with gated residual blocks",
        "a causal cell sees itself: the shift by one cell is the model's task",
    ),
    variants=(
        {"width": 32},
        {"width": 5},
        {"width": 3, "axis": 0},
        {"width": 6, "axis": 0},
        {"width": 3, "split": True},
    ),
    build=AxialAttention,
    options={"w": "width", "a": "axis"},
    pattern=pattern,
    pairs=pairs,
)
