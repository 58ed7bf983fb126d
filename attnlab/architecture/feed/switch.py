r"""Switch: many feed-forward layers, of which a router chooses one for each token.

A feed-forward layer that is wider knows more, and every token pays for all of it. Here the layer
stands E times, as E experts, and a router sends each token to the one for which its probability is
highest:

$$p = \mathrm{softmax}(W_r x), \qquad e = \arg\max_i p_i, \qquad y = p_e\, E_e(x)$$

There are E times the parameters, for the work of one expert. The factor $p_e$ is the only way by
which a gradient reaches the router: without it a choice could not be learned.

Nothing keeps the router from sending all tokens to one expert, which then learns most and is chosen
even more. Two things stand against it. An expert has a capacity of int(T c / E) tokens of a
sequence of T, in sequence order: a token that comes later is dropped, which means that the layer
adds nothing to it and it goes on in the stream as it was. And a balance loss is added to the loss
of the model,

$$\alpha\, E \sum_e f_e P_e$$

with the share $f_e$ of tokens that choose expert e, before any is dropped, and its mean probability
$P_e$. The sum is 1/E where all experts are used alike, so that the loss is α, and it is 1 where one
expert has all tokens, so that the loss is α E. As $f$ counts and has no gradient, P alone is moved.

Cost: 4 n dim f + 2 n dim E FLOPs at most, those of one expert and of the router, less what is
dropped.

``naive``    the equation: every expert computes every token, and all but one result is left out.
``grouped``  tokens are sorted by expert once, and each expert computes its own only.

The capacity of an expert is counted in each sequence apart and in sequence order, so no later token
takes a place from an earlier one. It grows with the number T of tokens, though: with more tokens to
come, a token may be kept that would be dropped if the text ended here. Layers of a decoder that
reads token by token give the same numbers as for the whole text only without a limit,
``evaluation_capacity=None``.

Common mistakes: f after dropping, which hides how unbalanced the choices are; jitter that reaches
the experts too (it belongs to what the router reads); an output without $p_e$; padding that takes
places.

Departures.
- GELU and biases in the experts, as in the layer ``mlp``, in the place of ReLU without biases
- an expert takes at least one token of a sequence. The formula gives none if T c < E.
- each sequence is a group of its own. The paper counts over the tokens that one device holds.
- the balance loss counts over the whole batch

X-MoE compares directions instead, ``router="cosine"``: with a matrix W to few dimensions and a
vector $v_e$ of each expert, the softmax is of $\cos(W x, v_e) / \tau$ (Chi et al., On the
Representation Collapse of Sparse Mixture of Experts, NeurIPS 2022, arXiv:2204.09179).

Fedus, Zoph, Shazeer. Switch Transformers: Scaling to Trillion Parameter Models with Simple and
Efficient Sparsity. Journal of Machine Learning Research 2022, arXiv:2101.03961, sections 2.1, 2.2.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.experts import (
    SEEN,
    Experts,
    Routed,
    RouterOptions,
    RouterRows,
    Routing,
    by_expert,
    one_by_one,
    probabilities,
    room,
    routed,
)
from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.shapes import TokenPadding, Tokens

# ---- options


@dataclass(frozen=True, kw_only=True)
class SwitchOptions(RouterOptions):
    """capacity: an expert has room for int(T · capacity / E) of T tokens.
    jitter: while training, the router reads x · U(1 - jitter, 1 + jitter).
    """

    jitter: float = 0.01

    def check(self) -> None:
        super().check()
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter should be at least 0 and below 1, got {self.jitter}")


# ---- forms


def route(
    x: Tensor, W_r: Tensor, capacity: float | None = 1.25, padding: TokenPadding = None
) -> Routing:
    """Each token chooses the most probable expert, whose probability is its gate."""
    p = probabilities(x, W_r, padding)
    gates, chosen = p.max(-1, keepdim=True)
    return routed(p, chosen, gates, room(x, len(W_r), capacity, padding), padding)


@form
def naive(
    x: Tokens, W_r: RouterRows, weights: Experts,
    *, capacity: float | None = 1.25, padding: TokenPadding = None,
) -> Tokens:  # fmt: skip
    """The equation: every expert computes every token."""
    return one_by_one(x, route(x, W_r, capacity, padding), weights)


@form
def grouped(
    x: Tokens, W_r: RouterRows, weights: Experts,
    *, capacity: float | None = 1.25, padding: TokenPadding = None,
) -> Tokens:  # fmt: skip
    """``naive``, where each expert computes its own tokens only."""
    return by_expert(x, route(x, W_r, capacity, padding), weights)


FORMS = {"naive": naive, "grouped": grouped}

# ---- module


class Switch(Routed):
    """Experts and a router that sends each token to one of them.

    hidden: width of the hidden layer of each expert, 4·dim if not given.
    """

    def __init__(
        self,
        dim: Size,
        hidden: Size | None = None,
        form: Literal["naive", "grouped"] = "grouped",
        *,
        options: SwitchOptions = SwitchOptions(),
    ) -> None:
        super().__init__(dim, hidden, form, options)
        self.jitter = options.jitter

    def route(self, x: Tensor, padding: TokenPadding) -> Routing:
        if self.training and self.jitter:
            x = x * torch.empty_like(x).uniform_(1 - self.jitter, 1 + self.jitter)
        return route(*self.router.reads(x), self.limit, padding)


# ---- card

n, dim, f, E = letters("n dim f E")
expert, router = 2 * dim * f + f + dim, E * dim

CARD = Card(
    __doc__,
    name="switch",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(
        time=4 * n * dim * f + 2 * n * dim * E,
        parameters=E * expert + router,
        active=expert + router,
        together="earlier tokens may have taken the expert's last place",
    ),
    build=Switch,
    options=SwitchOptions,
    notes=dict.fromkeys(FORMS, SEEN),
    variants=(
        {"experts": 3, "capacity": 0.5, "evaluation_capacity": 0.5},
        {"experts": 1, "hidden": 13},
        {"experts": 17, "capacity": None, "evaluation_capacity": None},
    ),
    aliases=("switch_transformer", "mixture_of_experts"),
    demo="""
    >>> from attnlab.core.probe import record
    >>> layer = attnlab.build("switch", dim=64, experts=4, evaluation_capacity=0.5).eval()
    >>> with record() as notes:
    ...     y = layer(torch.randn(1, 32, 64))
    >>> notes.last("load").max().item() <= 4  # half of the even share of 32 tokens
    True
    >>> (y == 0).all(-1).sum().item() == notes.last("dropped").sum().item() > 0
    True
    """,
)
