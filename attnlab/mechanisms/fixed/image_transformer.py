r"""Image Transformer: a block of pixels asks, and sees itself and a margin of what came before.

An image of 32 × 32 pixels in three colours is a sequence of 3072: full attention is out of reach of
the generator that this paper wants. It cuts the image into *query blocks* that do not overlap, and
gives all queries of a block the same *memory block*: the query block itself, and pixels around it.

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{M_i}^\top}{\sqrt d}\right) V_{M_i}$$

**1-D local**. The sequence is cut into blocks of $l_q$ positions; the memory is the block and the
$l_m$ positions before it: with $t_i = \lfloor i / l_q \rfloor l_q$, the first of i's block,

$$M_i = \{j : t_i - l_m \le j < t_i + l_q\}$$

**2-D local** (``width`` is given: the pixels in a line). The image is cut into rectangles of $h_q$
lines × $w_q$ columns; the memory is the rectangle extended by $h_m$ lines upwards and by $w_m$
columns to either side.

A generator makes one position after the other, and sees of $M_i$ only what it has made
(``causal=True``). In 1-D that is raster order. In 2-D it is block by block (in raster order), and
pixel by pixel inside a block (in raster order): **a sequence of 2-D pixels stands in this order**,
whether attention is causal or not, and ``generation_order`` gives it, so that causal means here
what it means everywhere, j ≤ i. The margin to the right, unmade, is then of no use; that of the
lines above is.

The trap: neighbours do not see alike. The first query of a block sees (causally) $l_m + 1$ keys,
its last $l_m + l_q$; a sliding window shows everybody as many. So the first pixels of each block
know the least, and blocks show in samples.

Time: $2 h n (l_q + l_m)(d + e)$; the number of pairs has a closed form for every n (``pairs``).

``naive``    the equation under the dense mask.
``blocked``  only the pairs: queries of a block share their keys, which lie side by side
             (``attnlab.core.sparse``).

The paper's letters: $l_q$ is ``block``, $l_m$ is ``memory``. In 2-D $w_q$ is ``block``, $w_m$ is
``memory``, $h_q$ is ``rows`` and $h_m$ is ``above``.

Departures. The paper fills the last block up with zeros; here it is short, so any length works, and
the last line of an image, or its last block, may be unfinished. The paper shifts the sequence by
one before attention; here that is the model's task, and a causal query sees itself. No dropout on
the weights. Colours, position embeddings and the two-dimensional output distributions belong to a
model.

Parmar, Vaswani, Uszkoreit, Kaiser, Shazeer, Ku, Tran. Image Transformer. ICML 2018,
arXiv:1802.05751, sections 3.2 and 3.3.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.patterns import Coverage, Pattern, Spans
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse.blocked import blocked as over_blocks
from attnlab.core.sparse.stepping import Remembered
from attnlab.core.sparse.stepping import step as step_under
from attnlab.core.words import choose

# ---- who sees whom


@patterns.readable
@dataclass(frozen=True, repr=False)
class Lines(Pattern):
    """1-D local: j is in i's block of ``length`` positions, or among the ``memory`` before it."""

    length: int
    memory: int

    def __post_init__(self) -> None:
        _at_least(1, block=self.length)
        _at_least(0, memory=self.memory)

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"each position sees its block of {self.length} and the {self.memory} before it"

    @property
    def code(self) -> str:  # type: ignore[override]
        return f"Lines({self.length}, {self.memory})"

    def _first(self, i: Tensor) -> Tensor:
        return i // self.length * self.length

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        first = self._first(i)
        return (j >= first - self.memory) & (j < first + self.length)

    def covers(self, rows: Spans, columns: Spans) -> Coverage:
        """Both ends of what is seen move on with i: the first and the last row decide."""
        first, last = self._first(rows.first), self._first(rows.last)
        every = (columns.first >= last - self.memory) & (columns.last < first + self.length)
        some = (columns.last >= first - self.memory) & (columns.first < last + self.length)
        return Coverage(every, some)


class _Place(NamedTuple):
    """Where positions in generation order stand: the corner of their rectangle, their pixel."""

    top: Tensor
    left: Tensor
    row: Tensor
    column: Tensor


class _Box(NamedTuple):
    """A rectangle of pixels, all four sides included."""

    top: Tensor
    bottom: Tensor
    left: Tensor
    right: Tensor

    def meets(self, other: "_Box") -> Tensor:
        lines = (self.top <= other.bottom) & (other.top <= self.bottom)
        return lines & (self.left <= other.right) & (other.left <= self.right)

    def holds(self, other: "_Box") -> Tensor:
        lines = (self.top <= other.top) & (other.bottom <= self.bottom)
        return lines & (self.left <= other.left) & (other.right <= self.right)


@patterns.readable
@dataclass(frozen=True, repr=False)
class Rectangles(Pattern):
    """2-D local, positions in generation order: i's rectangle, extended upwards and sidewards."""

    width: int
    rows: int
    columns: int
    above: int
    beside: int

    def __post_init__(self) -> None:
        _at_least(1, width=self.width, rows=self.rows, block=self.columns)
        _at_least(0, above=self.above, memory=self.beside)
        if self.columns > self.width:
            raise ValueError(
                f"a rectangle of {self.columns} columns does not fit into lines of {self.width} "
                "pixels: give a block of at most the width"
            )

    @property
    def words(self) -> str:  # type: ignore[override]
        return (
            f"each pixel of lines of {self.width} sees its rectangle of {self.rows} × "
            f"{self.columns}, {self.above} lines above it and {self.beside} columns to either side"
        )

    @property
    def code(self) -> str:  # type: ignore[override]
        numbers = (self.width, self.rows, self.columns, self.above, self.beside)
        return f"Rectangles({', '.join(map(str, numbers))})"

    def place(self, p: Tensor) -> _Place:
        """Bands of rectangles, each rectangle line by line; the last of a band may be narrower."""
        band = p // (self.rows * self.width)
        rest = p % (self.rows * self.width)
        left = rest // (self.rows * self.columns) * self.columns
        rest = rest - left * self.rows
        breadth = (self.width - left).clamp(max=self.columns)
        top = band * self.rows
        return _Place(top, left, top + rest // breadth, left + rest % breadth)

    def allows(self, i: Tensor, j: Tensor) -> Tensor:
        query, key = self.place(i), self.place(j)
        lines = (key.row >= query.top - self.above) & (key.row < query.top + self.rows)
        right = query.left + self.columns + self.beside
        return lines & (key.column >= query.left - self.beside) & (key.column < right)

    def covers(self, rows: Spans, columns: Spans) -> Coverage:
        """Between the rectangle around the keys and what all, or any, of the queries see."""
        keys = self._around(columns)
        first, last = self.place(rows.first), self.place(rows.last)
        one_band = first.top == last.top
        left, right = first.left - self.beside, last.left + self.columns + self.beside - 1
        any_sees = _Box(
            first.top - self.above,
            last.top + self.rows - 1,
            torch.where(one_band, left, 0),
            torch.where(one_band, right, self.width - 1),
        )
        all_see = _Box(
            last.top - self.above,
            first.top + self.rows - 1,
            last.left - self.beside,
            first.left + self.columns + self.beside - 1,
        )
        return Coverage(one_band & all_see.holds(keys), any_sees.meets(keys))

    def _around(self, spans: Spans) -> _Box:
        first, last = self.place(spans.first), self.place(spans.last)
        one_band = first.top == last.top
        one_block = one_band & (first.left == last.left)
        one_line = one_block & (first.row == last.row)
        right = (last.left + self.columns).clamp(max=self.width) - 1
        return _Box(
            torch.where(one_block, first.row, first.top),
            torch.where(one_block, last.row, last.top + self.rows - 1),
            torch.where(one_line, first.column, torch.where(one_band, first.left, 0)),
            torch.where(one_line, last.column, torch.where(one_band, right, self.width - 1)),
        )


def pattern(
    *,
    causal: bool = False,
    block: int = 64,
    memory: int = 64,
    width: int | None = None,
    rows: int = 1,
    above: int = 0,
) -> Pattern:
    """1-D local; with ``width``, 2-D local over positions in ``generation_order``."""
    if width is None and (rows, above) != (1, 0):
        raise ValueError(
            f"rows={rows} and above={above} belong to 2-D attention: give the width of the image, "
            "or leave them out"
        )
    seen = Lines(block, memory) if width is None else Rectangles(width, rows, block, above, memory)
    return seen.causal() if causal else seen


def generation_order(height: int, width: int, *, rows: int, block: int) -> Int[Tensor, "n"]:
    """The raster positions of an image's pixels in the order of 2-D attention.

    ``x[:, order]`` brings a sequence of pixels into it, ``y[:, order.argsort()]`` back.
    """
    _at_least(1, height=height)
    if height % rows:
        raise ValueError(
            f"rectangles of {rows} lines do not divide an image of {height}: the last ones would "
            "be of another height; choose rows among the divisors of the height"
        )
    place = Rectangles(width, rows, block, 0, 0).place(torch.arange(height * width))
    return place.row * width + place.column


def _at_least(least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name} should be at least {least}, got {size}")


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    block: int = 64,
    memory: int = 64,
    width: int | None = None,
    rows: int = 1,
    above: int = 0,
) -> Float[Tensor, "b h n e"]:
    """The equation under the dense mask (Parmar et al., section 3.3)."""
    sizes: dict[str, Any] = {
        "block": block,
        "memory": memory,
        "width": width,
        "rows": rows,
        "above": above,
    }
    seen = patterns.both(pattern(causal=causal, **sizes), patterns.padding(padding))
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
    block: int = 64,
    memory: int = 64,
    width: int | None = None,
    rows: int = 1,
    above: int = 0,
) -> Float[Tensor, "b h n e"]:
    """Only the pairs that are seen, block by block."""
    sizes: dict[str, Any] = {
        "block": block,
        "memory": memory,
        "width": width,
        "rows": rows,
        "above": above,
    }
    seen = patterns.both(pattern(causal=causal, **sizes), patterns.padding(padding))
    return over_blocks(q, k, v, seen)


FORMS = {"naive": naive, "blocked": blocked}

# ---- module


class ImageTransformerAttention(nn.Module):
    """Multi-head local attention of images: (b, n, dim) → (b, n, dim).

    1-D unless ``width`` is given; then 2-D, and positions stand in ``generation_order``. ``step``
    decodes; its state is what later positions can still see.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        block: int = 64,
        memory: int = 64,
        width: int | None = None,
        rows: int = 1,
        above: int = 0,
        form: str = "blocked",
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads)
        self.causal, self.form = causal, form
        sizes: dict[str, Any] = {
            "block": block,
            "memory": memory,
            "width": width,
            "rows": rows,
            "above": above,
        }
        self.pattern = pattern(causal=causal, **sizes)
        attend = choose("form of the Image Transformer's attention", form, FORMS)
        self.attend: Callable[..., Tensor] = functools.partial(attend, causal=causal, **sizes)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        return self.heads.merge(self.attend(q, k, v, padding=padding))

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: Remembered | None = None
    ) -> tuple[Float[Tensor, "b t dim"], Remembered]:
        """The next t positions given the state of all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        q, k, v = self.heads.project(x)
        out, state = step_under(q, k, v, self.pattern, state)
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"{self.pattern}, form={self.form!r}"


# ---- card

b, h, n, m, d, e = letters("b h n m d e")
h_q, w_q, h_m, w_m = letters("h_q w_q h_m w_m")


def ramp(
    terms: sympy.Expr, step: sympy.Expr, most: sympy.Expr, first: sympy.Expr = sympy.S.Zero
) -> sympy.Expr:
    r"""$\sum_{t < terms} \min(first + t \cdot step, most)$: it rises, then it stays."""
    rising = sympy.Min(terms, sympy.Max(0, sympy.floor((most - first) / step) + 1))
    rises = rising * first + step * rising * (rising - 1) / 2
    return rises + (terms - rising) * most


def pairs(*, width: int | None = None, **_: object) -> dict[str, sympy.Expr]:
    """Closed forms for any n: in 1-D, or in 2-D with lines of so many pixels."""
    return _pairs_1d() if width is None else _pairs_2d(sympy.Integer(width))


def _pairs_1d() -> dict[str, sympy.Expr]:
    whole = sympy.floor(n / w_q)  # blocks
    rest = n - whole * w_q
    before = w_q * ramp(whole, w_q, w_m) + rest * sympy.Min(whole * w_q, w_m)
    causal = whole * w_q * (w_q + 1) / 2 + rest * (rest + 1) / 2
    return {"full": before + whole * w_q**2 + rest**2, "causal": before + causal}


def _pairs_2d(width: sympy.Expr) -> dict[str, sympy.Expr]:
    """Whole bands of rectangles; in the last band, whole rectangles; one that is not whole."""
    bands, beyond = sympy.floor(n / (h_q * width)), sympy.Mod(n, h_q * width)
    there, narrow = sympy.floor(width / w_q), sympy.Mod(width, w_q)
    done = sympy.floor(beyond / (h_q * w_q))
    column = done * w_q  # where the last rectangle begins
    last = beyond - h_q * column  # its pixels
    lines, here = ramp(bands, h_q, h_m), sympy.Min(bands * h_q, h_m)  # lines seen above
    # Pairs of columns in a whole band, and those of the whole rectangles of the last one.
    left = w_q * ramp(there, w_q, w_m) + narrow * sympy.Min(there * w_q, w_m)
    all_columns = (
        left + there * w_q**2 + narrow**2 + w_q * ramp(there, w_q, w_m, narrow)  # left, own, right
    )
    left_done = w_q * ramp(done, w_q, w_m)
    columns_done = left_done + done * w_q**2 + w_q * ramp(done, w_q, w_m, width - column)
    of_last = sympy.Min(width, column + w_q + w_m) - sympy.Max(0, column - w_m)
    above = h_q * (lines * all_columns + here * columns_done) + last * here * of_last
    before = h_q**2 * (bands * left + left_done) + last * h_q * sympy.Min(column, w_m)
    size, short = h_q * w_q, h_q * narrow
    inside = (bands * there + done) * size * (size + 1) / 2 + bands * short * (short + 1) / 2
    causal = above + before + inside + last * (last + 1) / 2
    squares = (bands * there + done) * size**2 + bands * short**2 + last**2
    right = h_q**2 * w_q * (bands * ramp(there, w_q, w_m, narrow) + ramp(done, w_q, w_m))
    breadth = sympy.Min(w_q, width - column)
    whole_lines, rest = sympy.floor(last / breadth), sympy.Mod(last, breadth)
    of_margin = whole_lines * _falling(done, breadth) + _falling(done, rest)
    return {"full": above + before + squares + right + size * of_margin, "causal": causal}


def _falling(terms: sympy.Expr, most: sympy.Expr) -> sympy.Expr:
    r"""$\sum_{s < terms} \min(most, \max(w_m - s w_q, 0))$: of a margin, what reaches so far."""
    beyond = sympy.Max(w_m - most, 0)
    return terms * (w_m - beyond) - ramp(terms, w_q, w_m) + ramp(terms, w_q, beyond)


CARD = Card(
    name="image_transformer",
    title="Image Transformer: local attention in blocks",
    family="fixed",
    role="attend",
    paper=Paper(
        "Parmar, Vaswani, Uszkoreit, Kaiser, Shazeer, Ku, Tran",
        "Image Transformer",
        "ICML",
        2018,
        "1802.05751",
    ),
    forms=FORMS,
    causal="optional",
    time={
        "naive": 2 * h * n * m * (d + e),
        "blocked": 2 * h * n * (h_q + h_m) * (w_q + 2 * w_m) * (d + e),  # 1-D: one margin only
    },
    memory={"naive": h * n * m, "blocked": h * n * (d + e)},
    notes={"naive": ("scores", "weights"), "blocked": ("log_sum_exp",)},
    departures=(
        "the last block is short, not filled up with zeros",
        "a causal query sees itself: the shift by one is the model's task",
        "2-D sequences stand in generation order, causal or not",
        "no dropout on the weights",
    ),
    variants=(
        {"block": 64, "memory": 16},
        {"block": 5, "memory": 3},
        {"block": 4, "memory": 11},
        {"width": 7, "rows": 2, "block": 3, "above": 1, "memory": 2},
        {"width": 5, "rows": 3, "block": 2, "above": 4, "memory": 5},
    ),
    build=ImageTransformerAttention,
    options={"h_q": "rows", "w_q": "block", "h_m": "above", "w_m": "memory"},
    pattern=pattern,
    pairs=pairs,
)
