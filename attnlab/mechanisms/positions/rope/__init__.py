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

``long``           θ of each pair divided by a number of its own, ``factors``, which LongRoPE
                   searches; cosines and sines times $\sqrt{1 + \ln s / \ln L}$, where L is the
                   ``original`` length (Ding et al. 2024, and the models that use it).

A head need not be turned as a whole. With a ``fraction`` below 1 the first channels alone are a
RoPE of their own width and the others tell no position ("partial": GPT-NeoX turns a quarter); with
``fraction_of="pairs"`` the pairs and angles are those of the whole head, and only the fastest pairs
turn ("proportional", in the full layers of Gemma 4).

Common mistakes: loading weights into the other layout; angles in half precision, where positions
beyond 256 collapse (here in float64); turning the keys of a cache twice (it holds turned keys);
LongRoPE's factors for long texts beside cached keys that were turned by those for short ones.

The paper's letters: $m, n$ are our positions i and j, $f$ is ``encode``.

Departures.
- xPos counts from the start, not from the middle: cached keys stay right, scores are the same

Su, Lu, Pan, Murtadha, Wen, Liu. RoFormer: Enhanced Transformer with Rotary Position Embedding.
2021, arXiv:2104.09864, section 3.2. Chen, Wong, Chen, Tian. Extending Context Window of Large
Language Models via Positional Interpolation. 2023, arXiv:2306.15595. Sun, Dong, Patra, Ma, Huang,
Benhaim, Chaudhary, Song, Wei. A Length-Extrapolatable Transformer. 2022, arXiv:2212.10554. Peng,
Quesnelle, Fan, Shippole. YaRN: Efficient Context Window Extension of Large Language Models. 2023,
arXiv:2309.00071. Ding, Zhang, Zhang, Xu, Shang, Xu, Yang, Yang. LongRoPE: Extending LLM Context
Window Beyond 2 Million Tokens. ICML 2024, arXiv:2402.13753.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.options import Size
from attnlab.core.positions import Positions, Rotation
from attnlab.core.precision import upcast, upcast_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import Queries, SelfKeys, checked
from attnlab.mechanisms.positions.rope.options import RoPEOptions

__all__ = ["CARD", "FORMS", "RoPEOptions", "RotaryPositions", "naive", "pairs", "turned", "waves"]

Grouped = Float[Tensor, "b g n d"]  # keys of the queries' own n positions, in g groups of heads
Turned = tuple[Queries, Grouped]

# ---- naive


@checked
def naive(
    q: Queries, k: Grouped, positions: Positions, *, options: RoPEOptions = RoPEOptions()
) -> Turned:
    """A rotation matrix for each position (Su et al., eq. 14 and 15)."""
    d = options.width(q.shape[-1])
    theta, growth = options.frequencies(q.shape[-1], q.device), options.growth(d, q.device)
    at = positions[..., None].to(theta.dtype)  # (…, n, 1)
    _refuse_overflow(at * growth, options, upcast_dtype(q))
    cos, sin = (options.magnitude * wave for wave in ((at * theta).cos(), (at * theta).sin()))
    first, second = options.paired(torch.eye(d, dtype=theta.dtype, device=q.device))
    one, other = first.mT, second.mT  # (d/2, d): the unit vectors of each pair
    plane = torch.einsum("ta,tb->tab", one, one) + torch.einsum("ta,tb->tab", other, other)
    turn = torch.einsum("ta,tb->tab", other, one) - torch.einsum("ta,tb->tab", one, other)
    outs, mix = [], "...t,tab->...ab"  # gives (…, n, d, d)
    for x, sign in ((q, 1), (k, -1)):
        size = (sign * at * growth).exp()
        R = torch.einsum(mix, cos * size, plane) + torch.einsum(mix, sin * size, turn)
        R = (R if R.ndim == 3 else R[:, None]).to(upcast(x).dtype)
        turned = (R @ upcast(x)[..., :d, None]).squeeze(-1).to(x.dtype)
        outs.append(torch.cat((turned, x[..., d:]), dim=-1))
    return outs[0], outs[1]


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
    theta = options.frequencies(x.shape[-1], x.device)
    at = positions[..., None].to(theta.dtype)
    angle = note("angles", at * theta)
    cos, sin = options.magnitude * angle.cos(), options.magnitude * angle.sin()
    if options.scaling == "xpos":
        growth = at * options.growth(x.shape[-1], x.device)
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
    of_pairs, rest = upcast(x).split((cos.shape[-1], x.shape[-1] - cos.shape[-1]), dim=-1)
    turned = torch.addcmul(of_pairs * cos, options.partners(of_pairs), sin)
    return (turned if not rest.shape[-1] else torch.cat((turned, rest), dim=-1)).to(x.dtype)


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
        options.frequencies(self.head_dim, torch.device("cpu"))  # raises where they do not fit
        self.keeps_lengths = options.scaling != "xpos" and options.magnitude == 1
        if options.scaling == "xpos":
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
        {"fraction": 0.5},
        {"fraction": 0.67, "fraction_of": "pairs", "layout": "interleaved"},
    ),
    build=RotaryPositions,
    aliases=("rotary",),
)
