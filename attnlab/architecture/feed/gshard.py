r"""GShard: a router chooses the two best of many feed-forward layers for each token.

With one choice the router never learns what the second best expert would have done. Here each
token's output is a sum of two, whose gates are divided by their sum:

$$p = \mathrm{softmax}(W_r x), \qquad y = \frac{p_{e_1} E_{e_1}(x) + p_{e_2} E_{e_2}(x)}
{p_{e_1} + p_{e_2}}$$

where $e_1$ and $e_2$ are the most probable experts. While training, the second is used if twice its
gate is above a number drawn from U(0, 1): a second expert of little weight is often left out, which
leaves room for others.

An expert has a capacity of 2 ⌈T/E⌉ tokens of a sequence of T. All first choices are placed before
any second, so that nobody's second choice takes the place of somebody's first; within each, in
sequence order. A choice that was dropped adds nothing, and the other gate stays what it was.

The balance loss is that of ``switch``, α E Σ f P, with the shares f of first choices. GShard's own
is the mean of f P over the experts, which is E² times less.

Cost: 8 n dim f + 2 n dim E FLOPs at most: two experts for each token, and the router.

``naive``    the equation: every expert computes every token, and all but two results are left out.
``grouped``  tokens are sorted by expert once, and each expert computes its own only.

In a decoder: a later token's first choice comes before an earlier token's second, and so it can
take its place. What a decoder predicts would depend on what it is to predict; only without a limit
(``capacity=None, evaluation_capacity=None``) does no token influence another.

Common mistakes: gates that are divided by their sum after dropping, so that a lone expert has the
gate 1; second choices placed before the first choices of later tokens; a softmax over two scores
only in the place of two shares of all.

Departures.
- GELU and biases in the experts, as in the layer ``mlp``
- each sequence is a group of its own
- a second choice that is not used takes no place

Lepikhin, Lee, Xu, Chen, Firat, Huang, Krikun, Shazeer, Chen. GShard: Scaling Giant Models with
Conditional Computation and Automatic Sharding. ICLR 2021, arXiv:2006.16668, section 2.2.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
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
class GShardOptions(RouterOptions):
    """capacity: an expert has room for int(capacity · ⌈T / E⌉) of T tokens."""

    capacity: float | None = 2.0

    def check(self) -> None:
        super().check()
        check_two(self.experts)


def check_two(experts: int) -> None:
    """A ValueError where there is no second choice."""
    if experts < 2:
        raise ValueError(
            f"each token chooses 2 experts, so there should be at least 2, got {experts}"
        )


# ---- forms


def route(
    x: Tensor, W_r: Tensor, capacity: float | None = 2.0, padding: TokenPadding = None,
    chance: Tensor | None = None,
) -> Routing:  # fmt: skip
    """Each token chooses the two most probable experts; their gates sum to 1.

    chance: the number of each token with which twice its second gate is compared; None: it is used.
    """
    check_two(len(W_r))
    p = probabilities(x, W_r, padding)
    best, chosen = p.topk(2, dim=-1)
    gates = best / best.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)  # 0 at padding
    if chance is not None:
        used = torch.stack([torch.ones_like(chance), 2 * gates[..., 1] - chance], dim=-1) > 0
        chosen = chosen.where(used, -1)
    places = room(x, len(W_r), capacity, padding, round_up=True)
    return routed(p, chosen, gates, places, padding)


@form
def naive(
    x: Tokens, W_r: RouterRows, weights: Experts,
    *, capacity: float | None = 2.0, padding: TokenPadding = None,
    chance: Float[Tensor, "b n"] | None = None,
) -> Tokens:  # fmt: skip
    """The equation: every expert computes every token."""
    return one_by_one(x, route(x, W_r, capacity, padding, chance), weights)


@form
def grouped(
    x: Tokens, W_r: RouterRows, weights: Experts,
    *, capacity: float | None = 2.0, padding: TokenPadding = None,
    chance: Float[Tensor, "b n"] | None = None,
) -> Tokens:  # fmt: skip
    """``naive``, where each expert computes its own tokens only."""
    return by_expert(x, route(x, W_r, capacity, padding, chance), weights)


FORMS = {"naive": naive, "grouped": grouped}

# ---- module


class GShard(Routed):
    """Experts and a router that sends each token to two of them.

    hidden: width of the hidden layer of each expert, 4·dim if not given.
    """

    def __init__(
        self,
        dim: Size,
        hidden: Size | None = None,
        form: Literal["naive", "grouped"] = "grouped",
        *,
        options: GShardOptions = GShardOptions(),
    ) -> None:
        super().__init__(dim, hidden, form, options)

    @property
    def ahead(self) -> bool:  # type: ignore[override]
        return any(limit is not None for limit in self.limits.values())

    def route(self, x: Tensor, padding: TokenPadding) -> Routing:
        chance = x.new_empty(x.shape[:2]).uniform_() if self.training else None
        return route(*self.router.reads(x), self.limit, padding, chance)


# ---- card

n, dim, f, E = letters("n dim f E")
expert, router = 2 * dim * f + f + dim, E * dim

CARD = Card(
    __doc__,
    name="gshard",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(
        time=8 * n * dim * f + 2 * n * dim * E,
        parameters=E * expert + router,
        active=2 * expert + router,
        together="others may have taken an expert's last place",
        ahead=(
            "the first choice of a later token is placed before the second choice of an earlier "
            "one; without a limit (capacity=None, evaluation_capacity=None) that does not matter"
        ),
    ),
    build=GShard,
    options=GShardOptions,
    notes=dict.fromkeys(FORMS, SEEN),
    variants=(
        {"experts": 3, "capacity": 0.5, "evaluation_capacity": 0.5},
        {"experts": 5, "hidden": 13},
        {"experts": 17, "capacity": None, "evaluation_capacity": None},
    ),
    aliases=("top_2_experts",),
    demo="""
    >>> from attnlab.core.probe import record
    >>> layer = attnlab.build("gshard", dim=64, experts=4).eval()
    >>> with record() as notes:
    ...     y = layer(torch.randn(1, 32, 64))
    >>> notes.last("chosen").shape  # two experts for each of 32 tokens
    torch.Size([1, 32, 2])
    >>> placed, dropped = notes.last("load").sum(), notes.last("dropped").sum()
    >>> (placed + dropped == (notes.last("chosen") >= 0).sum()).item()
    True
    """,
)
