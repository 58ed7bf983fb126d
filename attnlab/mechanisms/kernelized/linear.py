r"""Linear Transformer: with features for a softmax, attention is an RNN.

A softmax weight is one way to say how alike a query and a key are. If likeness is a dot product of
features instead, $\mathrm{sim}(q, k) = \phi(q) \cdot \phi(k)$, the query can be drawn out of the
sum over the keys:

$$o_i = \frac{\sum_{j \le i} \phi(q_i)^\top \phi(k_j)\; v_j}{\sum_{j \le i} \phi(q_i)^\top
\phi(k_j)} = \frac{\phi(q_i)^\top S_i}{\phi(q_i)^\top z_i},\qquad
S_i = S_{i-1} + \phi(k_i)\, v_i^\top,\quad z_i = z_{i-1} + \phi(k_i)$$

All that the past amounts to is the matrix $S$ and the vector $z$: a recurrent network whose state
has one size, however long it reads. Without causality $S$ and $z$ are summed once, over all keys.

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
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import linear_recurrence, patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.linear_recurrence import Sums
from attnlab.core.precision import widened
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.suggest import choose

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
    x = x * x.shape[-1] ** -0.25
    power = torch.ones_like(x[..., :1])
    powers = [power]
    for i in range(1, degree + 1):  # y^{⊗i} / √i!, from the one before
        power = (power[..., :, None] * x[..., None, :]).flatten(-2) / math.sqrt(i)
        powers.append(power)
    return torch.cat(powers, dim=-1)


FEATURES: dict[str, Callable[..., Tensor]] = {
    "elu": elu_features,
    "relu": relu_features,
    "dpfp": dpfp_features,
    "taylor": exponential_features,
}


def feature_map(
    feature: str, *, nu: int | None = None, degree: int | None = None
) -> Callable[[Tensor], Tensor]:
    """The map called ``feature``; an option of another map is refused."""
    phi = choose("feature map", feature, FEATURES)
    given = {}
    for name, value, owner in (("nu", nu, "dpfp"), ("degree", degree, "taylor")):
        if value is not None and feature != owner:
            raise ValueError(f'{name} is an option of feature="{owner}", not of "{feature}"')
        if value is not None:
            given[name] = value
    return partial(phi, **given)


def _featured(
    q: Tensor, k: Tensor, padding: Tensor | None, phi: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """φ(q) and φ(k); keys that are padding have no features."""
    q, k = (phi(x) for x in widened(q, k))
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
    feature: str = "elu",
    nu: int | None = None,
    degree: int | None = None,
) -> Float[Tensor, "b h n e"]:
    """The weights φ(q)·φ(k), masked, divided by their sum (Katharopoulos et al., eq. 4)."""
    phi = feature_map(feature, nu=nu, degree=degree)
    return linear_recurrence.quadratic(*_featured(q, k, padding, phi), v, causal=causal)


# ---- chunked


@checked
def chunked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    feature: str = "elu",
    nu: int | None = None,
    degree: int | None = None,
    chunk: int = 64,
) -> Float[Tensor, "b h n e"]:
    """One sum over the keys (eq. 5 and 6); causally a running one, ``chunk`` tokens at a time.

    The causal backward pass computes the states again (section 3.3.1); first derivatives only.
    """
    phi = feature_map(feature, nu=nu, degree=degree)
    return linear_recurrence.chunked(*_featured(q, k, padding, phi), v, causal=causal, chunk=chunk)


# ---- recurrent


@checked
def recurrent(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    feature: str = "elu",
    nu: int | None = None,
    degree: int | None = None,
) -> Float[Tensor, "b h n e"]:
    """The RNN (eq. 16 to 20). To train through it keeps a state per token: it is for reading."""
    phi = feature_map(feature, nu=nu, degree=degree)
    return linear_recurrence.recurrent(*_featured(q, k, padding, phi), v, causal=causal)


FORMS = {"naive": naive, "chunked": chunked, "recurrent": recurrent}

# ---- module


class LinearAttention(nn.Module):
    """Multi-head linear attention: (b, n, dim) → (b, n, dim), by any of the forms.

    ``step`` decodes; its state is S and z, of h·r·(e + 1) numbers per sequence at any length.
    ``chunk`` is how many tokens ``step`` and the chunked form take at once.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        form: str = "chunked",
        feature: str = "elu",
        nu: int | None = None,
        degree: int | None = None,
        chunk: int = 64,
        bias: bool = False,
    ) -> None:
        super().__init__()
        linear_recurrence.refuse_chunk(chunk)
        self.heads = Heads(dim, heads, bias=bias)
        self.causal, self.form, self.feature, self.chunk = causal, form, feature, chunk
        self.features = feature_map(feature, nu=nu, degree=degree)
        self.features(torch.zeros(self.heads.head_dim))  # refuses what does not suit the width
        attend: Callable[..., Tensor] = choose("form of linear attention", form, FORMS)
        options = {"chunk": chunk} if form == "chunked" else {}
        self.attend = partial(attend, feature=feature, nu=nu, degree=degree, **options)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        note("mask", patterns.visible(self.causal, padding))
        return self.heads.merge(self.attend(q, k, v, causal=self.causal, padding=padding))

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: Sums | None = None
    ) -> tuple[Float[Tensor, "b t dim"], Sums]:
        """The next t tokens given the sums over all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        q, k, v = self.heads.project(x)
        features = _featured(q, k, None, self.features)
        out, state = linear_recurrence.advance(*features, v, state, chunk=self.chunk)
        return self.heads.merge(out), note("state", state)

    def extra_repr(self) -> str:
        return f"causal={self.causal}, form={self.form!r}, feature={self.feature!r}"


# ---- card

b, h, n, m, d, e = letters("b h n m d e")

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
    time={
        "naive": 2 * h * n * m * (d + e),
        "chunked": 2 * h * (n + m) * d * e,
        "recurrent": 2 * h * (n + m) * d * e,
    },
    memory={"naive": h * n * m, "chunked": h * n * e, "recurrent": h * n * e},
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
        {"feature": "taylor", "degree": 2, "chunk": 64},
    ),
    build=LinearAttention,
)
