r"""Linear Transformer: with features for a softmax, attention is an RNN.

A softmax weight measures how alike a query and a key are. If the measure is a dot product of
features instead, $\mathrm{sim}(q, k) = \phi(q) \cdot \phi(k)$, the query can be taken out of the
sum over the keys:

$$o_i = \frac{\sum_{j \le i} \phi(q_i)^\top \phi(k_j)\; v_j}{\sum_{j \le i} \phi(q_i)^\top
\phi(k_j)} = \frac{\phi(q_i)^\top S_i}{\phi(q_i)^\top z_i},\qquad
S_i = S_{i-1} + \phi(k_i)\, v_i^\top,\quad z_i = z_{i-1} + \phi(k_i)$$

The whole past is held in the matrix $S$ and the vector $z$: a recurrent network whose state has
one size at any length. Without causality $S$ and $z$ are summed once, over all keys.

Cost: $4 h n r e$ FLOPs and no n × m tensor, with r features per head; the causal ``chunked`` form
adds $2 h n c (r + e)$ for chunks of c tokens.

Three forms of the same function:

``naive``      the left side: n × m weights, masked and divided by their sum.
``chunked``    the right side, with the weights inside each chunk and S, z from chunk to chunk, so
               that nearly all work is matrix products; the backward pass computes the states again.
``recurrent``  the right side, one token at a time: the RNN itself.

``LinearAttention.step`` decodes with S and z as its state, and equals the parallel forms.

Feature maps, for x of width d:

``elu``     $\mathrm{elu}(x) + 1$, r = d: the paper's; positive.
``relu``    $\max(x, 0)$, r = d: sparse; two may have nothing in common.
``dpfp``    $\phi_{(i,j)}(x) = a_j\, a_{j+i}$ with $a = \mathrm{relu}([x, -x])$, indices modulo 2d,
            $i = 1 \ldots \nu$, r = 2dν: "deterministic parameter-free projection", sparse and of
            more dimensions than x, so that more keys can be told apart.
``taylor``  $\phi(x) = (1,\, y,\, y^{\otimes 2} / \sqrt{2!},\, \ldots,\, y^{\otimes p} /
            \sqrt{p!})$ with $y = x\, d^{-1/4}$, $r = \sum_{i \le p} d^i$: $\phi(q) \cdot \phi(k)$
            is the exponential series of $q \cdot k / \sqrt d$ up to degree p, so the map tends to
            the softmax's. Degree 0 is a plain mean.

The papers' letters: $N$ is our n, $D$ and $C$ are r, $M$ is e; $V'$ is the output, $S$ and $Z$ (or
$s$ and $z$) the two sums; Schlag's $d_{key}$ is d, $d_{dot}$ is r, and ν is ``nu``.

The traps: padding must zero the features of a key (a mask on scores comes too late: there are
none); a small number added to denominators biases every row, so nothing is added here; sums over a
long past need float32, in bfloat16 they stop growing; there is no $1/\sqrt d$ in the paper's map.

Departures. Rows whose weights sum to exactly zero (relu and dpfp have such) give zeros. Causal
masks are aligned at the bottom right when there are fewer queries than keys. DPFP is here the
feature map alone, without the delta rule that Schlag et al. update their state by.

Katharopoulos, Vyas, Pappas, Fleuret. Transformers are RNNs: Fast Autoregressive Transformers with
Linear Attention. ICML 2020, arXiv:2006.16236, sections 3.2 to 3.4. DPFP: Schlag, Irie, Schmidhuber.
Linear Transformers Are Secretly Fast Weight Programmers. ICML 2021, arXiv:2102.11174, section 5.3.
"""

import math
from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import linear_recurrence, patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.linear_recurrence import Sums, reciprocal
from attnlab.core.options import Count, Options, Size
from attnlab.core.precision import unrounded, widened
from attnlab.core.probe import note
from attnlab.core.shapes import checked

MOST_FEATURES = 2**24
"""How many features a head may have."""

# ---- feature maps


def elu_features(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    return F.elu(x) + 1


def relu_features(x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    return F.relu(x)


def dpfp_features(x: Float[Tensor, "... d"], nu: int = 1) -> Float[Tensor, "... r"]:
    """Products of an entry of relu([x, −x]) with each of the ``nu`` next ones, round the end."""
    both = torch.cat((F.relu(x), F.relu(-x)), dim=-1)
    if not 1 <= nu < both.shape[-1]:
        raise ValueError(
            f"nu must be between 1 and 2d - 1 = {both.shape[-1] - 1} for heads of width "
            f"d = {x.shape[-1]}, got {nu}: beyond, the products repeat"
        )
    return torch.cat([both * both.roll(-i, dims=-1) for i in range(1, nu + 1)], dim=-1)


def exponential_features(x: Float[Tensor, "... d"], degree: int = 2) -> Float[Tensor, "... r"]:
    """Features whose dot product is exp(x · y / √d), up to a ``degree`` of its series."""
    if degree < 0 or degree % 2:
        raise ValueError(
            f"degree must be even and not negative, got {degree}: cut after an odd power, the "
            "exponential series falls below zero, and the sum of weights may vanish"
        )
    if degree > MOST_FEATURES.bit_length() or x.shape[-1] ** degree > MOST_FEATURES:
        raise ValueError(
            f"degree={degree} makes more than {MOST_FEATURES:,} features of heads of width "
            f"{x.shape[-1]}"
        )
    x = x * x.shape[-1] ** -0.25
    power = torch.ones_like(x[..., :1])
    powers = [power]
    for i in range(1, degree + 1):  # y^{⊗i} / √i!, from the one before
        power = (power[..., :, None] * x[..., None, :]).flatten(-2) / math.sqrt(i)
        powers.append(power)
    return torch.cat(powers, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Features(Options):
    """The feature map φ.

    ``feature``  "elu", "relu", "dpfp" or "taylor".
    ``nu``       of dpfp, ν (1 unless given).
    ``degree``   of taylor, where the series is cut: even (2 unless given).
    ``chunk``    how many tokens the chunked form and ``step`` take at once.
    """

    feature: Literal["elu", "relu", "dpfp", "taylor"] = "elu"
    nu: Size | None = None
    degree: Count | None = None
    chunk: Size = 64

    def check(self) -> None:
        for name, owner in (("nu", "dpfp"), ("degree", "taylor")):
            if getattr(self, name) is not None and self.feature != owner:
                raise ValueError(
                    f'{name} is an option of feature="{owner}", not of "{self.feature}"'
                )

    def __call__(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... r"]:
        """φ(x)."""
        if self.feature == "dpfp":
            return dpfp_features(x, 1 if self.nu is None else self.nu)
        if self.feature == "taylor":
            return exponential_features(x, 2 if self.degree is None else self.degree)
        return elu_features(x) if self.feature == "elu" else relu_features(x)

    def count(self, d: sympy.Expr) -> sympy.Expr:
        """r, the number of features for width d."""
        if self.feature == "dpfp":
            return 2 * d * (self.nu or 1)
        if self.feature == "taylor":
            return sum(d**i for i in range((2 if self.degree is None else self.degree) + 1))
        return d


def _featured(
    q: Tensor, k: Tensor, padding: Tensor | None, options: Features
) -> tuple[Tensor, Tensor]:
    """φ(q) and φ(k); the features of padded keys are zero, which masks them."""
    q, k = (options(x) for x in widened(q, k))
    if padding is not None:
        k = k.masked_fill(~padding[:, None, :, None], 0)
    return note("features_q", q), note("features_k", k)


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    options: Features = Features(),
) -> Float[Tensor, "b h n e"]:
    """The weights φ(q)·φ(k), masked, divided by their sum (Katharopoulos et al., eq. 4)."""
    with unrounded(v.device):
        phi_q, phi_k = _featured(q, k, padding, options)
        scores = phi_q @ phi_k.mT
        if causal:
            scores = scores * patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
        weights = note("weights", scores * reciprocal(scores.sum(dim=-1, keepdim=True)))
        return (weights @ v.to(weights.dtype)).to(v.dtype)


# ---- recurrent


@checked
def recurrent(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    options: Features = Features(),
) -> Float[Tensor, "b h n e"]:
    """The RNN (eq. 16 to 20): each key and value is added to S and z, each query reads them.

    To train through it keeps a state per token: it is for reading.
    """
    n, m = q.shape[-2], k.shape[-2]
    last = range(m - n, m) if causal else [m - 1] * n  # the last key that each query sees
    with unrounded(v.device):
        phi_q, phi_k = _featured(q, k, padding, options)
        wide_v = v.to(phi_k.dtype)
        S = wide_v.new_zeros(*k.shape[:2], phi_k.shape[-1], v.shape[-1])
        z = wide_v.new_zeros(*k.shape[:2], phi_k.shape[-1])
        out, seen = [], 0
        for i in range(n):
            while seen <= last[i]:
                key, value = phi_k[:, :, seen], wide_v[:, :, seen]
                S, z = S + key[..., None] * value[..., None, :], z + key
                seen += 1
            query = phi_q[:, :, i, None]
            out.append(query @ S * reciprocal(query @ z[..., None]))
        note("state", Sums(S, z))
        return torch.cat(out, dim=-2).to(v.dtype)


# ---- chunked


@checked
def chunked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    options: Features = Features(),
) -> Float[Tensor, "b h n e"]:
    """One sum over the keys (eq. 5 and 6); causally a running one, a chunk of tokens at a time.

    The causal backward pass computes the states again (section 3.3.1); first derivatives only.
    """
    features = _featured(q, k, padding, options)
    return linear_recurrence.chunked(*features, v, causal=causal, chunk=options.chunk)


FORMS = {"naive": naive, "recurrent": recurrent, "chunked": chunked}

# ---- module


class LinearAttention(nn.Module):
    """Multi-head linear attention: (b, n, dim) → (b, n, dim), by any of the forms.

    ``step`` decodes; its state is S and z, of h·r·(e + 1) numbers per sequence at any length.
    """

    @checked
    def __init__(
        self,
        dim: Size,
        heads: Size,
        *,
        causal: bool = False,
        form: Literal["naive", "recurrent", "chunked"] = "chunked",
        options: Features = Features(),
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.causal, self.form, self.options = causal, form, options
        options(torch.zeros(self.heads.head_dim))  # refuses what does not suit the width

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x, padding=padding)
        note("mask", patterns.visible(self.causal, padding))
        attend = FORMS[self.form]
        out = attend(q, k, v, causal=self.causal, padding=padding, options=self.options)
        return self.heads.merge(out)

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: Sums | None = None
    ) -> tuple[Float[Tensor, "b t dim"], Sums]:
        """The next t tokens given the sums over all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x)
        features = _featured(q, k, None, self.options)
        out, state = linear_recurrence.advance(*features, v, state, chunk=self.options.chunk)
        return self.heads.merge(out), note("state", state)

    def extra_repr(self) -> str:
        return f"causal={self.causal}, form={self.form!r}, feature={self.options.feature!r}"


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    name="linear",
    title="Linear Transformer",
    family="kernelized",
    role="attend",
    paper=Paper(
        "Katharopoulos, Vyas, Pappas, Fleuret",
        "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
        "ICML",
        2020,
        "2006.16236",
    ),
    forms=FORMS,
    causal="optional",
    options=Features,
    time={
        "naive": lambda chosen: 2 * h * n * m * (chosen.count(d) + e),
        "recurrent": lambda chosen: 2 * h * (n + m) * chosen.count(d) * e,
        "chunked": lambda chosen: 2 * h * (n + m) * chosen.count(d) * e,
    },
    memory={
        "naive": lambda chosen: h * n * (m + chosen.count(d)),
        "recurrent": lambda chosen: h * n * (chosen.count(d) + e),
        "chunked": lambda chosen: h * n * (chosen.count(d) + e),
    },
    notes={
        "naive": ("features_q", "features_k", "weights"),
        "chunked": ("features_q", "features_k", "state"),
        "recurrent": ("features_q", "features_k", "state"),
    },
    departures=(
        "rows whose weights sum to exactly zero give zeros",
        "causal masks are aligned at the bottom right when there are fewer queries than keys",
        "nothing is added to the denominators",
    ),
    variants=(
        {"chunk": 3},
        {"feature": "relu", "chunk": 5},
        {"feature": "dpfp", "nu": 3, "chunk": 2},
        {"feature": "taylor", "degree": 2},
    ),
    build=LinearAttention,
    aliases=("linear_transformer",),
)
