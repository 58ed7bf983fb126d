r"""Performer (FAVOR+): softmax attention by random features that are always positive.

The exponential of a dot product is a mean over Gaussian vectors $\omega \sim N(0, I_d)$ of products
of a factor that depends on the query and one that depends on the key,

$$e^{x \cdot y} = \mathbb E_\omega\!\left[e^{\omega \cdot x - |x|^2/2}\;
e^{\omega \cdot y - |y|^2/2}\right],\qquad x = q\,d^{-1/4},\; y = k\,d^{-1/4},$$

so r drawn vectors $\omega_1 \ldots \omega_r$ give features whose dot products estimate the softmax
kernel without bias, and attention becomes linear attention:

$$\phi(x) = \frac{e^{-|x|^2/2}}{\sqrt r}\left(e^{\omega_1 \cdot x}, \ldots, e^{\omega_r \cdot
x}\right),\qquad o_i = \frac{\phi(q_i)^\top \sum_j \phi(k_j)\, v_j^\top}{\phi(q_i)^\top \sum_j
\phi(k_j)}.$$

The features are positive, so denominators are. The older trigonometric features (cos, sin) estimate
the same kernel, but where it is small their estimates scatter around zero: denominators can be
negative. Those are here as a feature function to compare with, not as an option of the layer. With
r independent features the variances are, $\mathrm{SM} = e^{x \cdot y}$,

positive $\frac1r \mathrm{SM}^2 (e^{|x+y|^2} - 1)$; hyperbolic (r vectors, each with its negative)
$\frac{1}{2}(1 - e^{-|x+y|^2})$ times that; trigonometric $\frac{1}{2r} \mathrm{SM}^{-2} e^{|x+y|^2}
(1 - e^{-|x-y|^2})^2$.

Rows of the projection that are orthogonal (in blocks of d) and as long as Gaussian vectors,
$\chi(d)$, keep the mean and lower the variance. ``relu`` features, max(ω·x, 0), are the paper's
generalised attention: another kernel, no estimate of the softmax.

Cost: $2 h r (2 d + 2 e) n$ FLOPs and $h n r$ numbers; r = d log d unless said otherwise.

``naive``      the n × m map, φ(q)·φ(k) divided by its row's sum, times the values.
``rescaled``   the same map, with every exponent taken relative to a running maximum.
``recurrent``  one key at a time, state of r (e + 1) numbers per head.
``chunked``    the sums in one product, or causally chunk by chunk.

Scale. The exponents may be ±100, where the features of ``naive`` underflow to zero; the other forms
subtract a number from the exponents first. For a query any number cancels in its row. For keys only
a number common to all keys of a head cancels, and a maximum over *all* keys would change the last
bits of earlier rows of causal attention when later keys change. So each key is divided by its
largest feature, whose logarithm (its *size*) is stored with it; the sums are stored in units of the
largest size *so far* and are rescaled when a larger one comes, as in the online softmax. So a row
is bitwise independent of keys after it, in ``step`` too. A row whose products all underflow even
then (largest features of query and keys differ by a factor of about $10^{28}$ in float32: logits of
several hundred) gives zeros, never NaN. Half precisions are computed in float32.

A layer with ``positions`` turns the features of the numerator; those of the denominator stay as
they are and positive (Su et al. 2021, arXiv:2104.09864, section 3.3).

The paper's letters: $L$ is our n, $m$ (features) our r, $\omega$ the rows of ``projection``,
SM-hat+ "positive", SM-hat hyp+ "hyperbolic".

Readings. Features are redrawn only by calling ``redraw``.

Departures.
- nothing is added to features or denominators, which would bias every row. The authors' code and
  the package performer-pytorch add 1e-4 or 1e-3 to features: a share of uniform attention in every
  row.
- orthogonal rows are uniform in direction (QR decomposition with corrected signs). Without the
  signs of R's diagonal the first coordinate of the first row of every block always has the same
  sign, and the mean is not the kernel.
- a running scale in place of one maximum over all keys, on which causal rows would depend
- at least 2 d features, which is more than d log d where d < 8
- a query without allowed keys gives zeros
- causal rows are aligned at the bottom right when there are fewer queries than keys

Gives up. The weights are estimated from random features, with noise where they are large.

Choromanski, Likhosherstov, Dohan, Song, Gane, Sarlos, Hawkins, Davis, Mohiuddin, Kaiser, Belanger,
Colwell, Weller. Rethinking Attention with Performers. ICLR 2021, arXiv:2009.14794, lemmas 1 and 2,
theorem 2, section 2.4.
"""

from typing import Literal

import sympy
import torch
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.options import Size
from attnlab.core.positions import Rotation, Turn
from attnlab.core.probe import note
from attnlab.core.shapes import (
    KeyPadding,
    Keys,
    NewTokens,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.mechanisms.kernelized.performer.random_features import (
    FeatureMap,
    PerformerOptions,
    Projection,
    default_features,
    features,
    gaussian_rows,
    orthogonal_rows,
    trigonometric_features,
)
from attnlab.mechanisms.kernelized.performer.step import next_outputs
from attnlab.mechanisms.kernelized.performer.sums import (
    State,
    TurnedState,
    chunked,
    ratio,
    recurrent,
    rescaled,
)

__all__ = [
    "CARD", "FORMS", "Performer", "PerformerOptions", "State", "chunked", "default_features",
    "features", "gaussian_rows", "naive", "orthogonal_rows", "recurrent", "rescaled",
    "trigonometric_features",
]  # fmt: skip


# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, projection: Projection, *,
    causal: bool = False, padding: KeyPadding = None,
    options: PerformerOptions = PerformerOptions(), turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """The n × m map of the features, dense: rows of φ(q)·φ(k), each divided by its sum."""
    scale = q.shape[-1] ** -0.25
    phi_q = features(q * scale, projection, kernel=options.kernel)
    phi_k = features(k * scale, projection, kernel=options.kernel)
    if padding is not None:
        phi_k = phi_k.masked_fill(~padding[:, None, :, None], 0)
    scores = compared = phi_q @ phi_k.mT
    if turn is not None:
        scores = turn.queries(phi_q) @ turn.keys(phi_k).mT
    if causal:
        seen = patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
        scores, compared = scores * seen, compared * seen
    weights = note("weights", ratio(scores, compared.sum(dim=-1, keepdim=True)))
    return weights @ v


FORMS = {"naive": naive, "rescaled": rescaled, "recurrent": recurrent, "chunked": chunked}

# ---- module


class Performer(nn.Module):
    """Attention by positive random features: (b, n, dim) → (b, n, dim).

    Every head has a projection of its own, drawn by a generator seeded with ``seed`` and kept as
    the buffer ``projection`` (h, r, d); ``redraw`` draws a new one, after which older states no
    longer fit. ``step`` decodes with a state of r·(e + 1) + 1 numbers per head.
    """

    projection: Tensor

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, causal: bool = False,
        form: Literal["naive", "rescaled", "recurrent", "chunked"] = "chunked",
        options: PerformerOptions = PerformerOptions(), bias: bool = False,
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.causal, self.form, self.options = causal, form, options
        drawn = self._drawn(torch.Generator().manual_seed(options.seed))
        self.register_buffer("projection", drawn.to(torch.get_default_dtype()))
        self.positions = None
        if positions is not None:
            count = FeatureMap.of(options.kernel, drawn).rows.shape[-2]
            self.positions = positions.of_features(count)
            self.positions.check_layer(heads, count, causal=causal)

    def _drawn(self, generator: torch.Generator) -> Projection:
        heads, d = self.heads.heads, self.heads.head_dim
        return torch.stack([self.options.draw(d, generator) for _ in range(heads)])

    @torch.no_grad()
    def redraw(self, generator: torch.Generator) -> None:
        """A new projection in place of the old, from ``generator``, for each head in turn."""
        self.projection.copy_(self._drawn(generator))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        out = FORMS[self.form](
            *(q, k, v, self.projection), causal=self.causal, padding=padding,
            options=self.options, turn=Turn.of(self.positions, x, padding),
        )  # fmt: skip
        return self.heads.merge(out)

    @checked
    def step(
        self, x: NewTokens, state: State | TurnedState | None = None
    ) -> tuple[NewTokens, State | TurnedState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x)
        out, state = next_outputs(
            *(q, k, v, self.projection, state),
            options=self.options, positions=self.positions,
        )  # fmt: skip
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"causal={self.causal}, form={self.form!r}, features={self.projection.shape[1]}"


# ---- card

h, n, m, d, e, c = letters("h n m d e c")


def flops(chosen: PerformerOptions, causal: bool = False) -> sympy.Expr:
    """Features, sums and products with them; causally also those within chunks."""
    r = chosen.count(d)
    return 2 * h * r * (d + e) * (n + m) + (2 * h * n * c * (r + e) if causal else 0)


def elements(chosen: PerformerOptions, causal: bool) -> sympy.Expr:
    """The features; causally also the scores and the sum of every chunk."""
    r = chosen.count(d)
    return h * n * r + (h * n * (c + r * (e + 1) / c) if causal else 0)


CARD = Card(
    __doc__,
    name="performer",
    family="kernelized",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=PerformerOptions,
    letters={"c": "chunk"},
    time={
        "naive": lambda chosen: (
            2 * h * n * m * (chosen.count(d) + e) + 2 * h * chosen.count(d) * d * (n + m)
        ),
        "rescaled": lambda chosen: (
            2 * h * n * m * (chosen.count(d) + e) + 2 * h * chosen.count(d) * d * (n + m)
        ),
        "recurrent": lambda chosen: flops(chosen),
        "chunked": flops,
    },
    launches={"recurrent": n},
    memory={
        "naive": h * n * m,
        "rescaled": h * n * m,
        "recurrent": lambda chosen: h * n * chosen.count(d),
        "chunked": elements,
    },
    notes={
        "naive": ("weights",),
        "rescaled": ("weights",),
        "recurrent": ("state",),
        "chunked": ("state",),
    },
    variants=(
        {"kernel": "positive", "chunk": 5, "norms": "fixed"},
        {"kernel": "hyperbolic", "chunk": 3, "features": 7},
        {"kernel": "relu", "chunk": 5, "orthogonal": False},
    ),
    build=Performer,
    aliases=("favor",),
)
