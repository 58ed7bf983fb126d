r"""Relative attention (Transformer-XL): a key is scored by its content and by its distance.

With positions added to the tokens, a score mixes four products of contents and positions, and both
positions are absolute: a segment that is read again as memory would carry the wrong ones.
Transformer-XL writes the four products down and puts the distance i - j in place of the key's
position, and two learned vectors per head, u and t, in place of the query's:

$$s_{ij} = \frac{1}{\sqrt d} \Bigl( \underbrace{q_i \cdot k_j}_{(a)} + \underbrace{q_i \cdot W_R
R_{i-j}}_{(b)} + \underbrace{u \cdot k_j}_{(c)} + \underbrace{t \cdot W_R R_{i-j}}_{(d)} \Bigr) =
\frac{(q_i + u) \cdot k_j + (q_i + t) \cdot r_{i-j}}{\sqrt d},\qquad r_\delta = W_R R_\delta$$

(a) compares contents; (b) compares the query with the distance; (c) is the score of the key for all
queries; (d) is the score of the distance for all queries. $R_\delta$ are sinusoids, not trained,
defined for every distance; $W_R$ is learned, for each head (h d rows in all). Nothing depends on
where the sequence begins, so keys of an earlier segment may be kept and attended to.

The queries are the last n of m positions. There are n + m - 1 distances, from m - 1 down to 1 - n,
and m in a causal layer, down to 0. The products of all queries with all $r_\delta$ are one matrix
product, but its columns are distances and not keys: row i must move to the left by n - 1 - i.
``relative_shift`` moves all rows without an index: put a column of zeros on the left, read the same
numbers as rows of another length, and drop the first row.

Cost: $2 h n m (d + e)$ FLOPs for contents and values and $2 h n (n + m) d$ for distances.

``naive``    the equation: $r_{i-j}$ for each pair by index, a tensor of $h n m d$ numbers.
``shifted``  the products by distance, then the relative shift: $h n (n + m)$ numbers.

Under a ``padding`` only valid tokens are counted as positions; distances are then looked up for
each pair, since rows no longer move by one.

The paper's letters: $A^{rel}$ is s, $W_{k,E}$ is the layer's W_K, $W_{k,R}$ is W_R, v is t; L and M
(segment and memory) are n and m - n.

The traps: the shift needs its columns in descending distance; without 1 - n … -1 among them it
leaves wrong numbers at later keys, which the causal mask must remove; the 1/√d scales both terms.

Departures.
- u, t and W_R belong to each layer, and u and t start at zero. The paper's default shares u and t
  between layers.
- sinusoids are ordered (sin, cos, sin, cos, …). With all sines first the columns of W_R would be
  permuted.
- layers that are not causal, with distances on both sides. XLNet has them, the paper has not.
- a row without keys gives zeros
- no dropout on the weights

Gives up. Every pair needs a second product: the query with the vector of the distance.

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov. Transformer-XL: Attentive Language Models beyond a
Fixed-Length Context. ACL 2019, arXiv:1901.02860, section 3.3 and appendix B.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.attention import SelfAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.positions import positions_of
from attnlab.core.relative import (
    DistanceWeight,
    HeadVector,
    content_scores,
    distance_keys,
    relative_shift,
    sinusoids,
    weigh,
)
from attnlab.core.shapes import KeyPadding, Keys, Outputs, Queries, Values, checked

__all__ = [
    "CARD",
    "FORMS",
    "RelativeAttention",
    "distance_keys",
    "naive",
    "relative_shift",
    "shifted",
    "sinusoids",
]

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, u: HeadVector, t: HeadVector, weight: DistanceWeight, *,
    causal: bool = False, padding: KeyPadding = None,
) -> Outputs:  # fmt: skip
    """The equation, r looked up for each pair (Dai et al., section 3.3)."""
    n, d, m = *q.shape[2:], k.shape[2]
    mask = patterns.dense_of(patterns.visible(causal, padding), q, k)
    keys = distance_keys(weight, _distances(n, m, causal, q.device))
    r = keys[:, _numbers(n, m, causal, padding, q.device)].transpose(0, 1)  # (1 | b, h, n, m, d)
    content = content_scores(q, k, u)
    position = ((q + t[:, None])[..., None, :] @ r.mT).squeeze(-2)
    return weigh(content, position, mask, d) @ v


def _distances(n: int, m: int, causal: bool, device: torch.device) -> Tensor:
    """The distances from queries, the last n of m positions, to their keys, in descending order."""
    return torch.arange(m - 1, -1 if causal else -n, -1, device=device)


def _numbers(n: int, m: int, causal: bool, padding: Tensor | None, device: torch.device) -> Tensor:
    """The place among ``_distances`` of each pair's: (1, n, m), or (b, n, m) under a padding."""
    at = positions_of(m, device, padding=padding).expand(1 if padding is None else -1, -1)
    number = m - 1 - (at[:, m - n :, None] - at[:, None, :])
    return number.clamp(max=m - 1) if causal else number  # later keys are masked there


# ---- shifted


@form(autocast=True)
def shifted(
    q: Queries, k: Keys, v: Values, u: HeadVector, t: HeadVector, weight: DistanceWeight, *,
    causal: bool = False, padding: KeyPadding = None,
) -> Outputs:  # fmt: skip
    """Each query with each distance once, and rows shifted to their keys (appendix B)."""
    (b, h, n, d), m = q.shape, k.shape[-2]
    mask = patterns.dense_of(patterns.visible(causal, padding), q, k)
    r = distance_keys(weight, _distances(n, m, causal, q.device))
    content = content_scores(q, k, u)
    position = (q + t[:, None]) @ r.mT  # (b, h, n, distances)
    if padding is None:
        position = relative_shift(position)[..., :m]
    else:
        number = _numbers(n, m, causal, padding, q.device)
        position = position.gather(-1, number[:, None].expand(b, h, n, m))
    return weigh(content, position, mask, d) @ v


FORMS = {"naive": naive, "shifted": shifted}

# ---- module


class RelativeAttention(SelfAttention):
    """Multi-head attention that scores contents and distances: (b, n, dim) → (b, n, dim).

    Beside the projections dim² + 2 dim parameters: W_R, u and t.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "shifted"] = "shifted", bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, causal=causal, bias=bias)
        self.form = form
        self.distance = nn.Linear(dim, dim, bias=False)
        self.u, self.t = (nn.Parameter(torch.zeros(heads, dim // heads)) for _ in range(2))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        own = (self.u, self.t, self.weight)
        return FORMS[self.form](q, k, v, *own, causal=self.causal, padding=padding)

    @property
    def weight(self) -> DistanceWeight:
        """W_R of each head."""
        return self.distance.weight.unflatten(0, (self.heads.heads, -1))


# ---- card

h, n, m, d, e, dim = letters("h n m d e dim")
CONTENT, PROJECTED = 2 * h * n * m * (d + e), 2 * h * (n + m) * d * dim

CARD = Card(
    __doc__,
    name="relative",
    family="positions",
    role="attend",
    forms=FORMS,
    causal="optional",
    positions_reason="its scores have terms of their own for the distance",
    time={
        "naive": CONTENT + 2 * h * n * m * d + PROJECTED,
        "shifted": CONTENT + 2 * h * n * (n + m) * d + PROJECTED,
    },
    memory={"naive": h * n * m * d, "shifted": h * n * (n + m + 1)},
    notes=dict.fromkeys(FORMS, ("content", "position", "scores", "weights")),
    build=RelativeAttention,
    aliases=("transformer_xl_positions",),
)
