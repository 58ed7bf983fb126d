r"""Image Transformer: local attention in blocks. A block's pixels attend to it and to those before.

An image of 32 × 32 pixels in three colours is a sequence of 3072, too long for full attention in a
generator. The paper cuts the image into *query blocks* that do not overlap. All queries of a block
share one *memory block*: the query block itself, and pixels around it.

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{M_i}^\top}{\sqrt d}\right) V_{M_i}$$

**1-D local**. The sequence is cut into blocks of $l_q$ positions; the memory is the block and the
$l_m$ positions before it: with $t_i = \lfloor i / l_q \rfloor l_q$, the start of i's block,

$$M_i = \{j : t_i - l_m \le j < t_i + l_q\}$$

**2-D local** (``width`` is given: the pixels in a line). The image is cut into rectangles of $h_q$
lines × $w_q$ columns; the memory is the rectangle extended by $h_m$ lines upwards and by $w_m$
columns to either side.

A generator produces one position after the other, and attends only to those positions of $M_i$ that
exist already (``causal=True``). In 1-D that is raster order. In 2-D it is block by block (in raster
order), and pixel by pixel inside a block (in raster order): **a sequence of 2-D pixels is in this
order**, whether attention is causal or not, and ``generation_order`` gives it; so causal means j ≤
i here too. To the right of a rectangle, only the lines above it exist already.

Note that neighbours may have very different keys: causally, the first query of a block has $l_m +
1$ keys, its last $l_m + l_q$; in a sliding window all have equally many. The first pixels of each
block have the least context, and the blocks are visible in samples.

Pairs: $n (l_q + l_m)$ in 1-D, $n (h_q + h_m)(w_q + 2 w_m)$ in 2-D, fewer at the edges. The queries
of a block share their keys, which are consecutive. Forms and layer are those of every fixed pattern
(``attnlab.core.sparse.attention``); the patterns are in ``blocks.py``.

The paper's letters: $l_q$, in 2-D $w_q$, is ``block``; $l_m$, in 2-D $w_m$, is ``memory``; $h_q$ is
``rows``; $h_m$ is ``above``.

Left to the model: colours, position embeddings and the two-dimensional output distributions.

Departures.
- the last block is short, not padded with zeros. Any length works, and the last line of an image,
  or its last block, may be incomplete.
- a causal query attends to itself: the shift by one is left to the model. The paper shifts the
  sequence by one before attention.
- 2-D sequences are in generation order, causal or not

Gives up. A token attends only to its block and the memory around it.

Parmar, Vaswani, Uszkoreit, Kaiser, Shazeer, Ku, Tran. Image Transformer. ICML 2018,
arXiv:1802.05751, sections 3.2 and 3.3.
"""

from dataclasses import dataclass

import sympy

from attnlab.core.card import letters
from attnlab.core.options import Count, Size
from attnlab.core.patterns import Pattern
from attnlab.core.sparse.attention import PatternOptions, pattern_card
from attnlab.mechanisms.fixed.image_transformer.blocks import Lines, Rectangles
from attnlab.mechanisms.fixed.image_transformer.blocks import generation_order as generation_order

# ---- the pattern


@dataclass(frozen=True, kw_only=True)
class ImageTransformerOptions(PatternOptions):
    """Query blocks and the memory around them: in 1-D, or, with ``width``, in 2-D.

    ``block``   positions of a block; in 2-D the columns of a rectangle.
    ``memory``  positions before a block; in 2-D columns to either side.
    ``width``   the pixels in a line of the image.
    ``rows``    the lines of a rectangle (2-D).
    ``above``   lines above it in its memory (2-D).
    """

    block: Size = 64
    memory: Count = 64
    width: Size | None = None
    rows: Size = 1
    above: Count = 0

    def allowed(self, heads: int) -> Pattern:
        if self.width is None:
            return Lines(self.block, self.memory)
        return Rectangles(self.width, self.rows, self.block, self.above, self.memory)

    def check(self) -> None:
        if self.width is None and (self.rows, self.above) != (1, 0):
            raise ValueError(
                f"rows={self.rows} and above={self.above} belong to 2-D attention: give the width "
                "of the image, or leave them out"
            )
        self.allowed(1)  # refuses rectangles that are wider than the image


# ---- card

n, l_q, l_m, h_q, h_m = letters("n l_q l_m h_q h_m")


def pairs(chosen: ImageTransformerOptions) -> sympy.Expr:
    """Each query attends to its memory block; margins outside of the image do not count."""
    if chosen.width is None:
        return n * (l_q + l_m)
    lefts = [column // chosen.block * chosen.block for column in range(chosen.width)]
    columns = sum(
        min(left + chosen.block + chosen.memory, chosen.width) - max(left - chosen.memory, 0)
        for left in lefts
    )
    return n * (h_q + h_m) * sympy.Rational(columns, chosen.width)


CARD = pattern_card(
    __doc__,
    name="image_transformer",
    options=ImageTransformerOptions,
    pairs=pairs,
    letters={"l_q": "block", "l_m": "memory", "h_q": "rows", "h_m": "above"},
    variants=(
        {"block": 64, "memory": 16},
        {"block": 5, "memory": 3},
        {"block": 4, "memory": 11},
        {"width": 7, "rows": 2, "block": 3, "above": 1, "memory": 2},
        {"width": 5, "rows": 3, "block": 2, "above": 4, "memory": 5},
    ),
    small_options={"block": 6, "memory": 4},
)
