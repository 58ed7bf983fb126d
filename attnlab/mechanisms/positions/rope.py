r"""Rotary position embedding (RoPE): queries and keys turn by angles that grow with positions.

The dot product of a query and a key does not depend on their positions. Rotary position
embedding splits a head of width d into d/2 pairs of coordinates and turns pair t of a token at
position i by the angle $i\,\theta_t$:

$$q_i' = R_i\, q_i,\quad k_j' = R_j\, k_j,\qquad R_i = \mathrm{diag}_t \begin{pmatrix} \cos
i\theta_t & -\sin i\theta_t \\ \sin i\theta_t & \cos i\theta_t \end{pmatrix},\qquad \theta_t =
10000^{-2t/d}$$

Rotations are orthogonal and their angles add up, $R_i^\top R_j = R_{j-i}$, so the score $q_i^\top
R_{j-i}\, k_j$ depends on the distance of the two tokens alone. Lengths are kept, and a token at
position 0 is not turned. There are no parameters. Cost: two products and a sum for each coordinate,
$3 h n d$ for queries and as many for keys, whatever the attention costs; largest tensor $h n d$.

``naive``   the equation: a d × d rotation matrix for every position.
``pairs``   two products and a sum for each coordinate.

Which coordinates are a pair: ``half`` (t and t + d/2; GPT-NeoX, Llama in Hugging Face's port) or
``interleaved`` (2t and 2t + 1; the paper, GPT-J). They are equal up to one permutation of the
columns of both W_Q and W_K; weights trained with one layout give another model under the other.

For sequences longer than those of training, ``scaling`` changes the angles by a factor s:

``interpolation``  angles at i/s: every θ divided by s (Chen et al. 2023).
``ntk``            the base becomes $10000\, s^{d/(d-2)}$: θ₀ is unchanged and the slowest angle is
                   divided by s (the "NTK-aware" rule; Peng et al. 2023, section 3.1).
``xpos``           queries are multiplied by $\zeta_t^{i/s}$ and keys by $\zeta_t^{-j/s}$ with
                   $\zeta_t = (2t/d + 0.4)/1.4$, so scores fade with the distance (Sun et al. 2022;
                   s = 512, their B). For causal layers only: scores of later keys would grow.

Common mistakes: loading weights into the other layout; angles in half precision, where positions
beyond 256 collapse (here in float64); turning the keys of a cache twice (it holds turned keys).

The paper's letters: $m, n$ are our positions i and j, $f$ is ``encode``.

Departures.
- xPos counts from the start, not from the middle: cached keys stay right, scores are the same

Su, Lu, Pan, Murtadha, Wen, Liu. RoFormer: Enhanced Transformer with Rotary Position Embedding.
2021, arXiv:2104.09864, section 3.2. Chen, Wong, Chen, Tian. Extending Context Window of Large
Language Models via Positional Interpolation. 2023, arXiv:2306.15595. Sun, Dong, Patra, Ma, Huang,
Benhaim, Chaudhary, Song, Wei. A Length-Extrapolatable Transformer. 2022, arXiv:2212.10554. Peng,
Quesnelle, Fan, Shippole. YaRN: Efficient Context Window Extension of Large Language Models. 2023,
arXiv:2309.00071.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.options import Options, Size
from attnlab.core.positions import Positions, Rotation
from attnlab.core.precision import exact_dtype, upcast, upcast_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import Queries, SelfKeys, checked

Grouped = Float[Tensor, "b g n d"]  # keys of the queries' own n positions, in g groups of heads
Turned = tuple[Queries, Grouped]


@dataclass(frozen=True, kw_only=True)
class RoPEOptions(Options):
    """Which coordinates are turned together, and how fast."""

    layout: Literal["half", "interleaved"] = "half"
    base: float = 10000.0
    scaling: Literal["none", "interpolation", "ntk", "xpos"] = "none"
    factor: float = 1.0

    def check(self) -> None:
        if self.base <= 1:
            raise ValueError(f"base should be above 1, got {self.base}")
        if self.factor <= 0:
            raise ValueError(f"factor should be above 0, got {self.factor}")
        if self.scaling == "none" and self.factor != 1:
            raise ValueError(f"factor={self.factor} is for a scaling; choose one, such as 'ntk'")

    def frequencies(self, d: int, device: torch.device) -> Float[Tensor, "t"]:
        """θ of each pair, in radians per position."""
        refuse_odd(d)
        t = torch.arange(d // 2, device=device, dtype=exact_dtype(device))
        base = self.base
        if self.scaling == "ntk" and d > 2:
            base *= self.factor ** (d / (d - 2))
        slower = self.factor if self.scaling == "interpolation" else 1.0
        return base ** (-2 * t / d) / slower

    def growth(self, d: int, device: torch.device) -> Float[Tensor, "t"]:
        """log ζ of each pair: by how much queries grow per position, and keys shrink."""
        t = torch.arange(d // 2, device=device, dtype=exact_dtype(device))
        if self.scaling != "xpos":
            return torch.zeros_like(t)
        return ((2 * t / d + 0.4) / 1.4).log() / self.factor

    def paired(self, x: Float[Tensor, "... d"]) -> tuple[Tensor, Tensor]:
        """The first and the second coordinate of each pair."""
        if self.layout == "half":
            first, second = x.chunk(2, dim=-1)
            return first, second
        return x[..., 0::2], x[..., 1::2]

    def joined(self, first: Tensor, second: Tensor) -> Tensor:
        """Pairs as one vector, ``paired`` undone."""
        if self.layout == "half":
            return torch.cat((first, second), dim=-1)
        return torch.stack((first, second), dim=-1).flatten(-2)

    def partners(self, x: Tensor) -> Tensor:
        """For each coordinate the other of its pair."""
        if self.layout == "half":
            return x.roll(x.shape[-1] // 2, -1)
        return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


# ---- naive


@checked
def naive(
    q: Queries, k: Grouped, positions: Positions, *, options: RoPEOptions = RoPEOptions()
) -> Turned:
    """A rotation matrix for each position (Su et al., eq. 14 and 15)."""
    d = q.shape[-1]
    theta, growth = options.frequencies(d, q.device), options.growth(d, q.device)
    at = positions[..., None].to(theta.dtype)  # (…, n, 1)
    _refuse_overflow(at * growth, options, upcast_dtype(q))
    cos, sin = (at * theta).cos(), (at * theta).sin()
    first, second = options.paired(torch.eye(d, dtype=theta.dtype, device=q.device))
    one, other = first.mT, second.mT  # (d/2, d): the unit vectors of each pair
    plane = torch.einsum("ta,tb->tab", one, one) + torch.einsum("ta,tb->tab", other, other)
    turn = torch.einsum("ta,tb->tab", other, one) - torch.einsum("ta,tb->tab", one, other)
    outs, mix = [], "...t,tab->...ab"  # gives (…, n, d, d)
    for x, sign in ((q, 1), (k, -1)):
        size = (sign * at * growth).exp()
        R = torch.einsum(mix, cos * size, plane) + torch.einsum(mix, sin * size, turn)
        R = (R if R.ndim == 3 else R[:, None]).to(upcast(x).dtype)
        outs.append((R @ upcast(x)[..., None]).squeeze(-1).to(x.dtype))
    return outs[0], outs[1]


def refuse_odd(d: int) -> None:
    """A ValueError for heads whose coordinates are no pairs."""
    if d % 2:
        raise ValueError(
            f"a rotation turns pairs of coordinates, but heads have width {d}: odd; "
            "choose dim and heads so that dim / heads is even"
        )


def _refuse_overflow(growth: Tensor, options: RoPEOptions, dtype: torch.dtype) -> None:
    """A ValueError where xPos would multiply by more than ``dtype`` holds."""
    if options.scaling != "xpos" or growth.is_meta or not growth.numel():
        return
    if not torch.compiler.is_compiling() and growth.abs().max() > math.log(torch.finfo(dtype).max):
        name = str(dtype).removeprefix("torch.")
        raise ValueError(
            f"at these positions xPos with factor={options.factor} multiplies by numbers beyond "
            f"{name}; choose a larger factor or nearer positions"
        )


# ---- pairs


@checked
def pairs(
    q: Queries, k: Grouped, positions: Positions, *, options: RoPEOptions = RoPEOptions()
) -> Turned:
    """Each coordinate from the two of its pair."""
    return turned(q, positions, options, 1), turned(k, positions, options, -1)


def turned(x: Tensor, positions: Tensor, options: RoPEOptions, sign: int) -> Tensor:
    """Queries (sign 1) or keys (sign -1), turned by their positions."""
    return turned_by(x, waves(x, positions, options, sign), options)


def waves(x: Tensor, positions: Tensor, options: RoPEOptions, sign: int) -> tuple[Tensor, Tensor]:
    """By how much each coordinate is multiplied, and by how much the other of its pair is."""
    d = x.shape[-1]
    theta = options.frequencies(d, x.device)
    at = positions[..., None].to(theta.dtype)
    angle = note("angles", at * theta)
    cos, sin = angle.cos(), angle.sin()
    if options.scaling == "xpos":
        growth = at * options.growth(d, x.device)
        _refuse_overflow(growth, options, upcast_dtype(x))
        size = (sign * growth).exp()
        cos, sin = size * cos, size * sin
    found = options.joined(cos, cos), options.joined(-sin, sin)
    cos, sin = (part.to(upcast_dtype(x)) for part in found)
    if positions.ndim == 2:  # (b, n, d): the same for all heads
        return cos[:, None], sin[:, None]
    return cos, sin


def turned_by(x: Tensor, waves: tuple[Tensor, Tensor], options: RoPEOptions) -> Tensor:
    """Each coordinate times its cosine, and the other of its pair times ± the sine."""
    cos, sin = waves
    return torch.addcmul(upcast(x) * cos, options.partners(upcast(x)), sin).to(x.dtype)


FORMS = {"naive": naive, "pairs": pairs}

# ---- module


class RotaryPositions(Rotation):
    """Turns queries and keys of heads of width dim / heads. No parameters."""

    @checked
    def __init__(self, dim: Size, heads: Size, *, options: RoPEOptions = RoPEOptions()) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"heads={heads} does not divide dim={dim}")
        self.head_dim, self.options = dim // heads, options
        refuse_odd(self.head_dim)
        if options.scaling == "xpos":
            self.keeps_lengths = False
            self.needs_causal = "with xPos the scores of later keys grow with their distance"

    @checked
    def forward(self, q: Queries, k: Grouped, positions: Positions) -> Turned:
        self._fits(q)
        if self.options.scaling == "xpos" or q.dtype != k.dtype:
            return super().forward(q, k, positions)
        both = waves(q, positions, self.options, 1)
        return turned_by(q, both, self.options), turned_by(k, both, self.options)

    def of_width(self, head_dim: int) -> "RotaryPositions":
        """This scheme for heads of another width."""
        return RotaryPositions(head_dim, 1, options=self.options)

    @checked
    def queries(self, q: Queries, positions: Positions) -> Tensor:
        self._fits(q)
        return turned(q, positions, self.options, 1)

    @checked
    def keys(self, k: SelfKeys, positions: Positions) -> Tensor:
        self._fits(k)
        return turned(k, positions, self.options, -1)

    def _fits(self, x: Tensor) -> None:
        if x.shape[-1] != self.head_dim:
            raise ValueError(
                f"this rotation is for heads of width {self.head_dim}, got vectors of width "
                f"{x.shape[-1]}; build it with the dim and heads of its layer"
            )


# ---- card

h, n, d = letters("h n d")

CARD = Card(
    __doc__,
    name="rope",
    family="positions",
    role="encode",
    forms=FORMS,
    causal="optional",
    options=RoPEOptions,
    time={"naive": 4 * h * n * d**2 + 4 * n * d**3, "pairs": 6 * h * n * d},
    memory={"naive": n * d**2 + h * n * d, "pairs": h * n * d},
    notes={"pairs": ("angles",)},
    variants=(
        {"layout": "interleaved"},
        {"scaling": "interpolation", "factor": 4.0},
        {"scaling": "ntk", "factor": 4.0},
        {"scaling": "xpos", "factor": 64.0},
    ),
    build=RotaryPositions,
    aliases=("rotary",),
)
