r"""Modern Hopfield network: attention as the retrieval of stored patterns.

A Hopfield network stores patterns and completes a damaged one: from a state $\xi$ (a query) it goes
to a state of lower energy, until it rests at a stored pattern. In the modern network the states are
real vectors, and the energy of $\xi$ among the m patterns $x_1, \dots, x_m$ (keys), the columns of
X, is

$$E(\xi) = -\frac{1}{\beta} \log \sum_{j} e^{\beta x_j^\top \xi} + \frac{1}{2} \xi^\top \xi
+ \frac{\log m}{\beta} + \frac{1}{2} \max_j \lVert x_j \rVert^2$$

The update rule

$$\xi^{new} = X\, \mathrm{softmax}(\beta X^\top \xi)$$

never raises the energy, and $\nabla E(\xi) = \xi - \xi^{new}$: an update is a gradient step of
length one. With β = 1/√d, one update is softmax attention whose values are its keys. Patterns that
are far apart, under a large β, are retrieved by one update; a small β gives the mean of all
patterns, and between the two, means of similar patterns.

As a layer, each query is updated ``steps`` times among the keys; the last update reads the values,
which are made of the keys:

$$Z = \mathrm{softmax}(\beta\, \xi K^\top)\, V,\qquad K = Y W_K,\quad V = Y W_K W_V$$

Cost: $2 h n m (d + e)$ FLOPs for the last update and $4 h n m d$ for each before it.

``naive``  the equations; it holds the n × m weights.
``fused``  each update by PyTorch's ``scaled_dot_product_attention``.

The functions of the theory stand beside them: ``energy`` and ``retrieved``.

The paper's letters: $N$ (the number of patterns) is our m, $M$ is $\max_j \lVert x_j \rVert$.

Readings. With ``values="tokens"`` the values are made of the tokens as in full attention; one
update is then full attention.

Departures.
- a fixed number of updates. The released code can stop when the state rests.
- no normalisation of queries and keys before their projections

Gives up. A value is a function of its key, and each further update costs as much again.

Ramsauer, Schäfl, Lehner, Seidl, Widrich, Adler, Gruber, Holzleitner, Pavlović, Sandve, Greiff,
Kreil, Kopp, Klambauer, Brandstetter, Hochreiter. Hopfield Networks is All You Need. ICLR 2021,
arXiv:2008.02217, eqs. 2, 3 and 10.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import GroupValues, Keys, Outputs, Queries, Values, checked
from attnlab.core.softmax import masked_softmax

MOST_STEPS = 1000


@dataclass(frozen=True, kw_only=True)
class HopfieldOptions(Options):
    """How a query is updated.

    ``steps``   the number of updates; the last one reads the values.
    ``beta``    the inverse temperature β > 0; 1/√d unless given.
    ``values``  what the values are made of: the keys, as printed, or the tokens.
    """

    steps: Size = 1
    beta: float | None = None
    values: Literal["keys", "tokens"] = "keys"

    def check(self) -> None:
        if self.steps > MOST_STEPS:
            raise ValueError(f"steps should be at most {MOST_STEPS}, got {self.steps:,}")
        if self.beta is not None:
            check_beta(self.beta)

    def inverse_temperature(self, d: int) -> float:
        return d**-0.5 if self.beta is None else self.beta


States = Float[Tensor, "... n d"]
Patterns = Float[Tensor, "... m d"]


# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, *,
    mask: Mask = None, options: HopfieldOptions = HopfieldOptions(),
) -> Outputs:  # fmt: skip
    """The update rule, dense (Ramsauer et al., eqs. 3 and 10)."""
    beta = options.inverse_temperature(q.shape[-1])
    allowed = patterns.dense_of(mask, q, k)
    state = q
    for _ in range(options.steps - 1):
        state = updated(state, k, beta, allowed)
    note("states", state)
    scores = note("scores", beta * state @ k.mT)
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


def check_beta(beta: float) -> None:
    """A ValueError unless β is above 0."""
    if beta <= 0:
        raise ValueError(
            f"beta should be above 0, got {beta}; a small one gives a mean of all patterns"
        )


@checked
def energy(state: States, stored: Patterns, *, beta: float = 1.0) -> Float[Tensor, "... n"]:
    """E of each state among the stored patterns (Ramsauer et al., eq. 2); never negative."""
    check_beta(beta)
    largest = stored.square().sum(-1).amax(-1, keepdim=True) / 2
    spread = torch.logsumexp(beta * state @ stored.mT, dim=-1) / beta
    constant = math.log(stored.shape[-2]) / beta
    return state.square().sum(-1) / 2 - spread + constant + largest


@checked
def retrieved(
    state: States, stored: Patterns, *, beta: float = 1.0, steps: Size = 1
) -> Float[Tensor, "steps ... n d"]:
    """The states after 1, …, ``steps`` updates (Ramsauer et al., eq. 3)."""
    check_beta(beta)
    path = [state]
    for _ in range(steps):
        path.append(updated(path[-1], stored, beta))
    return torch.stack(path[1:])


def updated(state: Tensor, stored: Tensor, beta: float, allowed: Tensor | None = None) -> Tensor:
    """One update of each state, among the patterns that it may attend to."""
    return masked_softmax(beta * state @ stored.mT, allowed) @ stored


# ---- fused


@checked
def fused(
    q: Queries, k: Keys, v: Values, *,
    mask: Mask = None, options: HopfieldOptions = HopfieldOptions(),
) -> Outputs:  # fmt: skip
    """Each update by PyTorch's ``scaled_dot_product_attention``."""
    beta = options.inverse_temperature(q.shape[-1])
    update = partial(sdpa.attend, mask=mask, bias=None, scale=beta)
    if options.steps == 1:
        return update(q, k, v)
    state, stored = upcast(q), upcast(k)  # an update in half precision would round the next one
    for _ in range(options.steps - 1):
        state = update(state, stored, stored)
    return update(state, stored, upcast(v)).to(v.dtype)


FORMS = {"naive": naive, "fused": fused}

# ---- module


class ValuesOfKeys(nn.Module):
    """V = Y W_K W_V by one product: ``weight`` is W_V of each head, (h, e, d)."""

    def __init__(self, heads: int, d: int, e: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, e, d).uniform_(-(d**-0.5), d**-0.5))

    def forward(self, y: Tensor, key_weight: Tensor) -> Tensor:
        of_tokens = self.weight @ key_weight.unflatten(0, (len(self.weight), -1))
        return F.linear(y, of_tokens.flatten(0, 1))


class HeadsOfPatterns(Heads):
    """Projections whose values are made of the keys."""

    def __init__(self, dim: int, heads: int, **given: Any) -> None:
        super().__init__(dim, heads, **given)
        self.value = ValuesOfKeys(heads, self.head_dim, self.value_dim)

    @checked
    def values(self, x: Float[Tensor, "b m dim"]) -> GroupValues:
        """The values alone."""
        self.check_input(x, "x")
        return self.split(self.value(x, self.key.weight), self.value_dim)


class Hopfield(DenseAttention):
    """Retrieval of stored patterns: (b, n, dim) → (b, n, dim); with a context (b, m, dim), the
    patterns are made of that."""

    one_softmax = False

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused",
        options: HopfieldOptions = HopfieldOptions(),
    ) -> None:  # fmt: skip
        made = HeadsOfPatterns if options.values == "keys" else Heads
        attend = partial(FORMS[form], options=options)
        super().__init__(dim, heads, attend, causal=causal, projections=made)
        self.options, self.form = options, form

    def extra_repr(self) -> str:
        told = ", ".join(filter(None, [str(self.options), f"causal={self.causal}"]))
        return f"{told}, form={self.form!r}"


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="hopfield",
    family="memory",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=HopfieldOptions,
    positions_reason="a retrieved pattern is a mean of keys, which stands at no one position "
    "when it is asked again",
    time=lambda chosen: 2 * h * n * m * (d + e + 2 * (chosen.steps - 1) * d),
    memory={"naive": h * n * m, "fused": h * n * (d + e)},
    notes={"naive": ("states", "scores", "weights")},
    variants=({}, {"steps": 3}, {"beta": 2.0, "steps": 2}, {"values": "tokens"}),
    build=Hopfield,
    small_options={"steps": 3},
)
