r"""M-RoPE: rotary positions with three coordinates, for texts with images and videos in them.

RoPE (``positions.rope``) turns the pairs of coordinates of queries and keys by angles that grow
with one number, the place in the text. A token of an image stands in a row and in a column, and one
of a video also in a frame. M-RoPE gives every token three numbers, for time, height and width, and
shares the pairs of a head out between them: pair t turns by the number $p_i^{(a(t))}$ of its axis
$a(t)$,

$$\begin{pmatrix} q_t' \\ q_{t+d/2}' \end{pmatrix} = \begin{pmatrix} \cos \phi_{it} & -\sin
\phi_{it} \\ \sin \phi_{it} & \cos \phi_{it} \end{pmatrix} \begin{pmatrix} q_t \\ q_{t+d/2}
\end{pmatrix},\qquad \phi_{it} = p_i^{(a(t))}\, \theta_t,\qquad \theta_t = 10000^{-2t/d}$$

and keys likewise. The three numbers of a token of text are equal, so a text alone is turned as by
RoPE. An image that begins where the text has come to number s gives its token in frame f, row r and
column c the numbers $(s + f,\, s + r,\, s + c)$, and the text goes on with $s + \max(\text{frames},
\text{rows}, \text{columns})$: an image of 16 × 16 tokens takes 16 numbers and not 256. Scores
depend on the three differences alone. Cost: that of RoPE, $3 h n d$ for queries and as many for
keys.

``naive``  the equation: a 2 × 2 matrix for every pair and position.
``pairs``  two products and a sum for each coordinate.

``sections`` says how many pairs each axis has. ``order="blocks"`` gives time the first ones, which
are the fastest, then height, then width (Qwen2-VL: 16, 24 and 24 of 64); ``"interleaved"`` deals
them out in turn, t h w t h w …, so that each axis has fast and slow ones (Qwen3-VL: 24, 20, 20).

A layer is told by ``images`` where the images stand, the same place in every text: for each the
number of its first token, and its frames, rows and columns.

The paper's letters: temporal, height and width are our time, row and column.

Common mistakes: to number what follows an image by how many tokens were read; to forget, when
decoding, that the next number is not the length of the cache; sections of coordinates where those
of pairs are meant.

Departures.
- images stand at fixed places of the text, as an option of the layer, not as an input

Gives up. The number of a token no longer says how many tokens stand before it.

Wang, Bai, Tan, Wang, Fan, Bai, Chen, Liu, Wang, Ge, Fan, Dang, Du, Ren, Men, Liu, Zhou, Zhou, Lin.
Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution. 2024,
arXiv:2409.12191.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.options import Count, Options, Size
from attnlab.core.positions import Positions, Rotation
from attnlab.core.precision import exact_dtype, upcast, upcast_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import Queries, SelfKeys, checked

Grouped = Float[Tensor, "b g n d"]  # keys of the queries' own n positions, in g groups of heads
Turned = tuple[Queries, Grouped]
AXES = ("time", "height", "width")


@dataclass(frozen=True, kw_only=True)
class MRoPEOptions(Options):
    """``sections``  pairs of time, height and width; if not given, 16, 24 and 24 of 64 in blocks,
                  and 24, 20 and 20 interleaved.
    ``order``     which pairs an axis has: "blocks" of neighbours, or "interleaved".
    ``base``      10000 in θ.
    ``images``    for each image: the number of its first token, frames, rows, columns.
    """

    sections: tuple[Count, Count, Count] | None = None
    order: Literal["blocks", "interleaved"] = "blocks"
    base: float = 10000.0
    images: tuple[tuple[Count, Size, Size, Size], ...] = ()

    def check(self) -> None:
        if self.base <= 1:
            raise ValueError(f"base should be above 1, got {self.base}")
        free = 0
        for start, frames, rows, columns in self.images:
            if start < free:
                raise ValueError(
                    f"an image begins at token {start}, and the one before it ends at token "
                    f"{free - 1}: give images in the order of the text"
                )
            free = start + frames * rows * columns

    def axes(self, d: int) -> Int[Tensor, "t"]:
        """The axis of each pair of a head of width d: 0 for time, 1 for height, 2 for width."""
        if d % 2:
            raise ValueError(
                f"a rotation turns pairs of coordinates, but heads have width {d}: odd; choose dim "
                "and heads so that dim / heads is even"
            )
        pairs = d // 2
        each = 3 * pairs // 8 if self.order == "blocks" else 5 * pairs // 16
        time, height, width = self.sections or (pairs - 2 * each, each, each)
        if time + height + width != pairs:
            raise ValueError(
                f"sections={self.sections} are {time + height + width} pairs, and a head of width "
                f"{d} has {pairs}"
            )
        if self.order == "blocks":
            return torch.tensor([0] * time + [1] * height + [2] * width)
        if max(3 * height - 1, 3 * width) > pairs:
            raise ValueError(
                f"dealt out in turn, of {pairs} pairs every third can be of height and every third "
                f"of width, which are fewer than sections={self.sections} say"
            )
        t = torch.arange(pairs)
        rows, columns = ((t % 3 == a) & (t < 3 * many) for a, many in ((1, height), (2, width)))
        return rows.long() + 2 * columns.long()

    def places(self, positions: Positions) -> Int[Tensor, "... n 3"]:
        """The three numbers of the tokens at these places of the text."""
        found = positions[..., None].expand(*positions.shape, 3)
        moved = 0  # how much further on the numbers are than the places in the text
        for start, frames, rows, columns in self.images:
            tokens = frames * rows * columns
            inside = positions - start
            grid = (inside // (rows * columns), inside // columns % rows, inside % columns)
            of_image = torch.stack(grid, dim=-1) + start + moved
            moved += max(frames, rows, columns) - tokens
            after = (inside >= tokens)[..., None]
            found = torch.where(after, positions[..., None] + moved, found)
            found = torch.where((inside >= 0)[..., None] & ~after, of_image, found)
        return found

    def angles(self, positions: Positions, d: int) -> Float[Tensor, "... n t"]:
        """φ of each token and pair."""
        axes = self.axes(d).to(positions.device)
        t = torch.arange(d // 2, device=positions.device, dtype=exact_dtype(positions.device))
        return self.places(positions)[..., axes] * self.base ** (-2 * t / d)


# ---- naive


@checked
def naive(
    q: Queries, k: Grouped, positions: Positions, *, options: MRoPEOptions = MRoPEOptions()
) -> Turned:
    """A 2 × 2 matrix for each pair of each token."""
    angle = options.angles(positions, q.shape[-1])
    cos, sin = angle.cos(), angle.sin()
    turn = torch.stack((cos, -sin, sin, cos), dim=-1).unflatten(-1, (2, 2))
    turn = (turn if positions.ndim == 1 else turn[:, None]).to(upcast_dtype(q))
    outs = []
    for x in (q, k):
        both = torch.stack(upcast(x).chunk(2, dim=-1), dim=-1)  # (b, h, n, d/2, 2)
        outs.append((turn @ both[..., None]).squeeze(-1).mT.flatten(-2).to(x.dtype))
    return outs[0], outs[1]


# ---- pairs


@checked
def pairs(
    q: Queries, k: Grouped, positions: Positions, *, options: MRoPEOptions = MRoPEOptions()
) -> Turned:
    """Each coordinate from the two of its pair."""
    return turned(q, positions, options), turned(k, positions, options)


def turned(x: Tensor, positions: Tensor, options: MRoPEOptions) -> Tensor:
    """Queries or keys, turned by the numbers of their tokens."""
    angle = note("angles", options.angles(positions, x.shape[-1]))
    angle = angle if positions.ndim == 1 else angle[:, None]
    cos, sin = (wave.to(upcast_dtype(x)) for wave in (angle.cos(), angle.sin()))
    cos, sin, wide = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1), upcast(x)
    return torch.addcmul(wide * cos, wide.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


FORMS = {"naive": naive, "pairs": pairs}

# ---- module


class MultimodalRotaryPositions(Rotation):
    """Turns queries and keys of heads of width dim / heads. No parameters."""

    @checked
    def __init__(self, dim: Size, heads: Size, *, options: MRoPEOptions = MRoPEOptions()) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"heads={heads} does not divide dim={dim}")
        self.head_dim, self.options = dim // heads, options
        options.axes(self.head_dim)  # raises where the sections do not fit

    @checked
    def forward(self, q: Queries, k: Grouped, positions: Positions) -> Turned:
        return self._turned(q, positions), self._turned(k, positions)

    def of_width(self, head_dim: int) -> "MultimodalRotaryPositions":
        """This scheme for heads of another width."""
        return MultimodalRotaryPositions(head_dim, 1, options=self.options)

    @checked
    def queries(self, q: Queries, positions: Positions) -> Tensor:
        return self._turned(q, positions)

    @checked
    def keys(self, k: SelfKeys, positions: Positions) -> Tensor:
        return self._turned(k, positions)

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[-1] != self.head_dim:
            raise ValueError(
                f"this rotation is for heads of width {self.head_dim}, got vectors of width "
                f"{x.shape[-1]}; build it with the dim and heads of its layer"
            )
        return turned(x, positions, self.options)


# ---- card

h, n, d = letters("h n d")

CARD = Card(
    __doc__,
    name="mrope",
    family="positions",
    role="encode",
    forms=FORMS,
    causal="optional",
    options=MRoPEOptions,
    time={"naive": 8 * h * n * d, "pairs": 6 * h * n * d},
    memory={"naive": 2 * h * n * d, "pairs": h * n * d},
    notes={"pairs": ("angles",)},
    variants=({"order": "interleaved"}, {"base": 500.0}),
    build=MultimodalRotaryPositions,
    aliases=("m_rope", "multimodal_rope"),
)
