r"""Expert choice: experts choose their tokens, so that all of them have the same work.

Where tokens choose, some experts have too many and drop them, others have too few. Here each of E
experts takes the k = n c / E tokens of a sequence for which its score is highest:

$$S = \mathrm{softmax}(x W_r^\top), \qquad I_e = \mathrm{top}_k(S_{:, e}), \qquad
y_i = \sum_{e:\, i \in I_e} S_{i e}\, E_e(x_i)$$

The softmax is over the experts, the choice over the tokens. The load is equal by construction, so
no balance loss is needed. A token may be taken by several experts or by none, c of them in the
mean; one that nobody takes stays in the stream as it was.

Cost: 4 k E dim f + 2 n dim E FLOPs, of c experts for each token in the mean, and of the router.

``naive``    the equation: every expert computes every token, and what it did not take is left out.
``grouped``  each expert computes the tokens that it took.

No decoder can have this layer: whether an expert takes a token depends on the scores of later
tokens, which a decoder does not know yet.

Common mistakes: a top k over a batch, by which sequences talk to each other; padding that is taken;
a softmax over the tokens.

Departures.
- GELU and biases in the experts, as in the layer ``mlp``
- each sequence is a group of its own, and an expert takes at least one of its tokens
- the paper's limit on the number of experts of one token, found by linear programming, is left out

Zhou, Lei, Liu, Du, Huang, Zhao, Dai, Chen, Le, Laudon. Mixture-of-Experts with Expert Choice
Routing. NeurIPS 2022, arXiv:2202.09368, section 3.
"""

from dataclasses import dataclass
from typing import Literal

import sympy
import torch
from torch import Tensor

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.experts import (
    SEEN,
    Experts,
    Mixture,
    RouterRows,
    Routing,
    ScoringOptions,
    by_expert,
    check_capacity,
    one_by_one,
    probabilities,
    room,
    routed,
    router_of,
)
from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.shapes import TokenPadding, Tokens

# ---- options


@dataclass(frozen=True, kw_only=True)
class ExpertChoiceOptions(ScoringOptions):
    """experts: their number, E.
    capacity: an expert takes int(T · capacity / E) of T tokens, so that ``capacity`` experts take a
        token in the mean.
    """

    experts: Size = 8
    capacity: float = 2.0

    def check(self) -> None:
        super().check()
        check_capacity("capacity", self.capacity)
        if self.capacity > self.experts:
            raise ValueError(
                f"capacity should be at most experts={self.experts}, got {self.capacity}: then "
                "every expert takes every token"
            )


# ---- forms


def route(x: Tensor, W_r: Tensor, capacity: float = 2.0, padding: TokenPadding = None) -> Routing:
    """Each expert takes the tokens for which its score is highest, which is their gate."""
    p, places = probabilities(x, W_r, padding), room(x, len(W_r), capacity, padding)
    order = p.argsort(dim=1, descending=True, stable=True)  # padding, with score 0, comes last
    rank = torch.empty_like(order).scatter_(1, order, _numbers(order, dim=1))
    chosen = _numbers(order, dim=2).where(rank < places[:, None, None], -1)
    return routed(p, chosen, p, places, padding)


def _numbers(like: Tensor, dim: int) -> Tensor:
    """0, 1, 2, … along one axis."""
    shape = [-1 if axis == dim else 1 for axis in range(like.dim())]
    return torch.arange(like.shape[dim], device=like.device).view(shape).expand_as(like)


@form
def naive(
    x: Tokens, W_r: RouterRows, weights: Experts,
    *, capacity: float = 2.0, padding: TokenPadding = None,
) -> Tokens:  # fmt: skip
    """The equation: every expert computes every token."""
    return one_by_one(x, route(x, W_r, capacity, padding), weights)


@form
def grouped(
    x: Tokens, W_r: RouterRows, weights: Experts,
    *, capacity: float = 2.0, padding: TokenPadding = None,
) -> Tokens:  # fmt: skip
    """``naive``, where each expert computes its own tokens only."""
    return by_expert(x, route(x, W_r, capacity, padding), weights)


FORMS = {"naive": naive, "grouped": grouped}

# ---- module


class ExpertChoice(Mixture):
    """Experts that take the tokens for which their scores are highest.

    hidden: width of the hidden layer of each expert, 4·dim if not given.
    """

    steps, ahead = False, True

    def __init__(
        self,
        dim: Size,
        hidden: Size | None = None,
        form: Literal["naive", "grouped"] = "grouped",
        *,
        options: ExpertChoiceOptions = ExpertChoiceOptions(),
    ) -> None:
        super().__init__(dim, hidden, options.experts, form)
        self.router = router_of(dim, options.experts, options)
        self.capacity = options.capacity

    def route(self, x: Tensor, padding: TokenPadding) -> Routing:
        return route(*self.router.reads(x), self.capacity, padding)


# ---- card

n, dim, f, E, c = letters("n dim f E c")
expert, router = 2 * dim * f + f + dim, E * dim

CARD = Card(
    __doc__,
    name="expert_choice",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(
        time=4 * dim * f * E * sympy.Max(1, sympy.floor(n * c / E)) + 2 * n * dim * E,
        parameters=E * expert + router,
        together="an expert takes the best of all tokens",
        ahead="whether an expert takes a token depends on the scores of later tokens",
    ),
    build=ExpertChoice,
    options=ExpertChoiceOptions,
    notes=dict.fromkeys(FORMS, SEEN),
    variants=({"experts": 3, "capacity": 0.5}, {"experts": 2, "capacity": 1.0, "hidden": 13}),
    demo="""
    >>> from attnlab.core.probe import record
    >>> layer = attnlab.build("expert_choice", dim=64, experts=4)
    >>> with record() as notes:
    ...     y = layer(torch.randn(1, 32, 64))
    >>> notes.last("load").tolist()  # each expert takes as many of the 32 tokens
    [[16, 16, 16, 16]]
    """,
)
