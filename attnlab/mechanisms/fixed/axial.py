r"""Axial attention: along a line, then along a column; two layers connect the whole grid.

The cells of a grid of H × W form a sequence of n = H·W, line by line. Axial attention runs
along one axis at a time: a cell at (r, c) attends to the cells of its line, or of its column.

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{S_i}^\top}{\sqrt d}\right) V_{S_i},\qquad
S_i = \{j : \lfloor j / W \rfloor = \lfloor i / W \rfloor\} \ \text{or}\
\{j : j \equiv i \bmod W\}$$

A layer along lines and then one along columns connect all cells: (r', c') reaches (r, c) through
(r', c), which is in the line of the first and in the column of the second.

Cost: n·W pairs along lines and n·H along columns, $n (H + W)$ for both: $O(n \sqrt n)$ for a
square, against n².

``axis`` counts as in NumPy: 1 runs along lines, 0 along columns. ``split=True`` gives each axis
half of the heads (heads 0, 2, … attend along ``axis``, heads 1, 3, … along the other one). Layers
may also alternate (a list of options in a model); ``LinesAndColumns`` is both layers in one module.

The forms and the layer are those of every fixed pattern (``attnlab.core.sparse.attention``). In
natural order a column has cells in every block of keys, so ``blocked`` orders the cells by column.

**Causal**, in raster order: along a line the cells to the left, along a column those above, the
cell itself included. But a masked line and a masked column *do not reach the whole past*: cells
above and to the right are missing. In the paper's generator, lines above the current one therefore
attend within the whole line, and the result is shifted down by one line before it is used:

$$y = \mathrm{line}_{\le}(x) + \downarrow\!\mathrm{column}_{\le}(\mathrm{line}(x))$$

Line r of the second term depends on all of the lines above r and not on r itself, so the sum is
causal and reaches the whole past. ``LinesAndColumns(causal=True)`` is this sum. What line r
receives was computed with the queries of line r − 1: this is not the attention of the queries of
line r to the cells strictly above them.

Departures.
- the last line may be incomplete
- one layer of each kind instead of stacks with gated residual blocks. The paper generates channel
  by channel; its outer and inner stacks are several layers deep.
- a causal cell attends to itself: the shift by one cell is left to the model. The paper's inner
  stack makes this shift, so that a cell does not attend to itself.

Gives up. A token reaches tokens of other rows and columns only through a second layer.

Ho, Kalchbrenner, Weissenborn, Salimans. Axial Attention in Multidimensional Transformers. 2019,
arXiv:1912.12180, section 3.
"""

from dataclasses import dataclass
from typing import NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.card import letters
from attnlab.core.heads import Heads
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Pattern
from attnlab.core.shapes import NewTokens, TokenPadding, Tokens, checked
from attnlab.core.sparse.attention import Form, PatternAttention, PatternOptions, pattern_card
from attnlab.core.sparse.decoding import DecodingState
from attnlab.core.sparse.flex import BLOCK

# ---- the pattern


@dataclass(frozen=True, kw_only=True)
class AxialOptions(PatternOptions):
    """Which axis of the grid a layer attends along.

    ``width``  how many cells a line of the grid has.
    ``axis``   1 attends along lines, 0 along columns.
    ``split``  gives half of the heads to each axis.
    """

    width: Size = 32
    axis: Count = 1
    split: bool = False

    def allowed(self, heads: int) -> Pattern:
        along = (patterns.strided(self.width), patterns.block_diagonal(self.width))
        if not self.split:
            return along[self.axis]
        if heads < 2:
            raise ValueError(f"split=True gives half of the heads to each axis: got heads={heads}")
        return patterns.per_head(*(along[(self.axis + head) % 2] for head in range(heads)))

    def check(self) -> None:
        if self.axis > 1:
            raise ValueError(f"axis is 0 (along columns) or 1 (along lines), got {self.axis}")


# ---- both axes in one module


class GeneratorState(NamedTuple):
    """The decoding state of a causal ``LinesAndColumns``.

    ``inner``    the state of the masked line.
    ``line``     the cells of the current, incomplete line.
    ``columns``  the state of the columns, over complete lines.
    ``context``  the output of the column layer at the line above, which is added to this line.
    """

    inner: DecodingState | None
    line: Float[Tensor, "b t dim"]
    columns: DecodingState | None
    context: Float[Tensor, "b w dim"]


class LinesAndColumns(nn.Module):
    """Along lines and then along columns: every cell reaches every cell in one module.

    With ``causal=True`` it is the paper's generator: full lines, then causal columns, shifted down
    by one line, plus a causal line.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, width: Size = 32, form: Form = "auto",
    ) -> None:  # fmt: skip
        super().__init__()
        lines, columns = AxialOptions(width=width), AxialOptions(width=width, axis=0)
        self.causal, self.width = causal, width
        self.lines = PatternAttention(dim, heads, lines, form=form)
        self.columns = PatternAttention(dim, heads, columns, causal=causal, form=form)
        if causal:
            self.inner = PatternAttention(dim, heads, lines, causal=True, form=form)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        out = self.columns(self.lines(x, padding), padding)
        if not self.causal:
            return out
        return self.inner(x, padding) + down(out, self.width)

    @checked
    def step(
        self, x: NewTokens, state: GeneratorState | None = None
    ) -> tuple[NewTokens, GeneratorState]:
        """The next t cells. The outer layers compute a line as soon as it is complete."""
        Heads.refuse_step(self.causal)
        if state is None:
            nothing = x.new_zeros(len(x), self.width, x.shape[-1])
            state = GeneratorState(None, x[:, :0], None, nothing)
        outs = []
        while x.shape[1]:
            done = state.line.shape[1]
            piece, x = x[:, : self.width - done], x[:, self.width - done :]
            out, inner = self.inner.step(piece, state.inner)
            outs.append(out + state.context[:, done : done + piece.shape[1]])
            line = torch.cat((state.line, piece), dim=1)
            state = state._replace(inner=inner, line=line)
            if line.shape[1] == self.width:
                context, columns = self.columns.step(self.lines(line), state.columns)
                state = GeneratorState(inner, line[:, :0], columns, context)
        return torch.cat(outs, dim=1), state


def down(x: Tokens, width: int) -> Tokens:
    """Shifted down by one line: zeros in the first line, the last line is dropped."""
    return F.pad(x, (0, 0, width, 0))[:, : x.shape[1]]


# ---- card

n, w = letters("n w")


def pairs(chosen: AxialOptions) -> sympy.Expr:
    """n cells have w keys each along lines, n/w along columns; with ``split`` the mean of both."""
    along = (n**2 / w, n * w)
    return sum(along) / 2 if chosen.split else along[chosen.axis]


def kernel_pairs(chosen: AxialOptions) -> sympy.Expr:
    """Along columns a key of each line is allowed: with lines of up to 128 cells, some in each
    block of 128 × 128."""
    along = (n**2, n * w)
    if chosen.width > BLOCK:
        return pairs(chosen)
    return sum(along) / 2 if chosen.split else along[chosen.axis]


CARD = pattern_card(
    __doc__,
    name="axial",
    options=AxialOptions,
    pairs=pairs,
    kernel_pairs=kernel_pairs,
    launches=sympy.sqrt(n),
    letters={"w": "width"},
    variants=(
        {"width": 32},
        {"width": 5},
        {"width": 3, "axis": 0},
        {"width": 6, "axis": 0},
        {"width": 3, "split": True},
    ),
    small_options={"width": 6, "split": True},
)
