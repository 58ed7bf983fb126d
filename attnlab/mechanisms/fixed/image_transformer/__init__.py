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
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse.blocked import blocked as over_blocks
from attnlab.core.sparse.decoding import DecodingState
from attnlab.core.sparse.decoding import step as step_under
from attnlab.core.suggest import choose
from attnlab.mechanisms.fixed.image_transformer.blocks import (
    Lines,
    Rectangles,
    generation_order,
    pattern,
)
from attnlab.mechanisms.fixed.image_transformer.counts import pairs

__all__ = [
    "CARD",
    "FORMS",
    "ImageTransformerAttention",
    "Lines",
    "Rectangles",
    "blocked",
    "generation_order",
    "naive",
    "pairs",
    "pattern",
]

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
    seen = pattern(causal=causal, block=block, memory=memory, width=width, rows=rows, above=above)
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
    block: int = 64,
    memory: int = 64,
    width: int | None = None,
    rows: int = 1,
    above: int = 0,
) -> Float[Tensor, "b h n e"]:
    """Only the pairs that are seen, block by block."""
    seen = pattern(causal=causal, block=block, memory=memory, width=width, rows=rows, above=above)
    seen = patterns.both(seen, patterns.padding(padding))
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
            "block": block, "memory": memory, "width": width, "rows": rows, "above": above,
        }  # fmt: skip
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
        self, x: Float[Tensor, "b t dim"], state: DecodingState | None = None
    ) -> tuple[Float[Tensor, "b t dim"], DecodingState]:
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
