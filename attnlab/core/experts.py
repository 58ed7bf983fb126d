"""Experts: several feed-forward layers side by side, of which each token uses few.

A page of such a layer says how tokens and experts find each other, by a ``Routing``. What follows
is the same for all of them and stands here: places within an expert's capacity, the two ways to
compute, the balance loss, and what a reader can see:

    experts   (b, n, k) int64: the experts that compute each token, -1 where a choice was dropped
    chosen    (b, n, k) int64: the same before dropping; -1 at padding and where none was chosen
    dropped   (b, n, k) bool: chosen, but the expert was full
    gates     (b, n, k): the factor of each choice, also of one that was dropped
    router    (b, n, E): the router's probabilities; zeros at padding
    load      (b, E) int64: how many tokens of each sequence each expert computes
    capacity  (b,) int64: how many it may compute

E is the number of experts and k the number of choices that a token has. Each sequence is a group of
its own: experts have a capacity for each, so sequences of a batch do not influence each other.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.charges import charge
from attnlab.core.forms import upcasting
from attnlab.core.heads import check_input
from attnlab.core.options import Options, Size
from attnlab.core.precision import no_autocast, upcast
from attnlab.core.probe import note
from attnlab.core.shapes import TokenPadding, Tokens, checked
from attnlab.core.suggest import choose

SEEN = ("router", "chosen", "gates", "experts", "dropped", "load", "capacity")


RouterRows: TypeAlias = Float[Tensor, "E dim"]
"""A vector of each expert, with which a token is multiplied."""


class Experts(NamedTuple):
    """The weights of E feed-forward layers with hidden layers of width f."""

    W_1: Float[Tensor, "E f dim"]
    b_1: Float[Tensor, "E f"]
    W_2: Float[Tensor, "E dim f"]
    b_2: Float[Tensor, "E dim"]

    def each(self) -> Iterator[tuple[Tensor, ...]]:
        """The weights of one expert after the other."""
        return zip(*(weights.unbind() for weights in self), strict=True)


class Routing(NamedTuple):
    """Which experts compute which tokens; the module's docstring says what each tensor holds."""

    experts: Int[Tensor, "b n k"]
    chosen: Int[Tensor, "b n k"]
    gates: Float[Tensor, "b n k"]
    router: Float[Tensor, "b n E"]


def routed(
    router: Float[Tensor, "b n E"],
    chosen: Int[Tensor, "b n k"],
    gates: Float[Tensor, "b n k"],
    capacity: Int[Tensor, "b"],
    padding: TokenPadding,
) -> Routing:
    """The routing after choices beyond an expert's capacity are dropped. Padding takes no place."""
    chosen = chosen if padding is None else chosen.masked_fill(~padding[..., None], -1)
    experts = placed(chosen, capacity, router.shape[-1])
    note("router", router)
    note("chosen", chosen)
    note("gates", gates)
    note("experts", experts)
    note("dropped", lambda: (chosen >= 0) & (experts < 0))
    note("load", lambda: F.one_hot(experts.flatten(1) + 1, router.shape[-1] + 1).sum(1)[:, 1:])
    note("capacity", capacity)
    return Routing(experts, chosen, gates, router)


def placed(
    chosen: Int[Tensor, "b n k"], capacity: Int[Tensor, "b"], experts: int
) -> Int[Tensor, "b n k"]:
    """``chosen`` with -1 for every choice that came when its expert was full.

    Within a sequence, all first choices are placed before any second, each in sequence order.
    """
    queue = chosen.mT.flatten(1)
    wanted = queue[..., None] == torch.arange(experts, device=queue.device)
    place = wanted.cumsum(1, dtype=torch.int32)
    taken = (wanted & (place <= capacity[:, None, None])).any(-1)
    return queue.where(taken, -1).unflatten(1, chosen.mT.shape[1:]).mT


def probabilities(x: Tokens, W_r: RouterRows, padding: TokenPadding) -> Float[Tensor, "b n E"]:
    """softmax(W_r x), and zeros at padding.

    A ValueError where the router has no finite answer for a real token.
    """
    scores = x @ W_r.mT
    if padding is not None:
        scores = scores.masked_fill(~padding[..., None], 0)
    _refuse_not_finite(scores)
    p = scores.softmax(-1)
    return p if padding is None else p.masked_fill(~padding[..., None], 0)


def _refuse_not_finite(scores: Tensor) -> None:
    if torch.compiler.is_compiling():
        return
    if scores.is_meta:
        raise ValueError(
            "which expert computes a token depends on its numbers, and on the meta device there "
            "are none; give tensors of another device"
        )
    if scores.isfinite().all():
        return
    wrong = (~scores.isfinite().all(-1)).nonzero().tolist()
    raise ValueError(
        f"the router's scores are NaN or infinite for {len(wrong)} tokens, the first in sequence "
        f"{wrong[0][0]} at position {wrong[0][1]}: look at x there, and at the router's weights; "
        "if a training led here, take a smaller learning rate"
    )


def room(
    x: Tokens, experts: int, capacity: float | None,
    padding: TokenPadding, *, round_up: bool = False,
) -> Int[Tensor, "b"]:  # fmt: skip
    """How many of the T real tokens of each sequence an expert has room for: int(T · capacity / E)
    and at least one, or all of them if ``capacity`` is None. ``round_up``: from ⌈T / E⌉, not T / E.
    """
    every = x.new_full((x.shape[0],), x.shape[1], dtype=torch.int64)
    tokens = every if padding is None else padding.sum(-1)
    if capacity is None:
        return tokens
    check_capacity("capacity", capacity)
    share = -(-tokens // experts) * experts if round_up else tokens
    return (share.double() * capacity / experts).long().clamp(min=1)


def check_capacity(name: str, capacity: float) -> None:
    """A ValueError unless there is room for something."""
    if capacity <= 0:
        raise ValueError(
            f"{name} should be above 0, got {capacity}: experts without room drop every token; "
            f"{name}=None sets no limit"
        )


def balance(router: Float[Tensor, "b n E"], chosen: Int[Tensor, "b n k"]) -> Float[Tensor, ""]:
    """E Σ f_e P_e over all real tokens of the batch: 1 if experts are used alike, E if only one is.

    f is the share of the tokens whose first choice is the expert, before dropping, and P the mean
    of its probabilities. f has no gradient.
    """
    experts, real = router.shape[-1], (router.detach().sum(-1) > 0).sum().clamp(min=1)
    first = F.one_hot(chosen[..., 0] + 1, experts + 1).flatten(0, 1).sum(0)[1:]
    return experts * (first / real * router.flatten(0, 1).sum(0) / real).sum()


# ---- two ways to compute the same

Compute: TypeAlias = Callable[[Tensor, Routing, Experts], Tensor]


def feed(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """One expert: W₂ gelu(W₁ x + b₁) + b₂."""
    return F.linear(F.gelu(F.linear(x, W_1, b_1)), W_2, b_2)


def _one_by_one(x: Tensor, routing: Routing, experts: Experts) -> Tensor:
    """Every expert computes every token, and the gates leave what was chosen: Σ_e g_e E_e(x)."""
    x = x.masked_fill((routing.experts < 0).all(-1, keepdim=True), 0)  # perhaps NaN, at padding
    out = torch.zeros_like(x)
    for e, weights in enumerate(experts.each()):
        gate = (routing.gates * (routing.experts == e)).sum(-1, keepdim=True)
        out = out + gate * feed(x, *weights)
    return out


def _by_expert(x: Tensor, routing: Routing, experts: Experts) -> Tensor:
    """Tokens are sorted by expert once; each expert computes its own, and no others."""
    tokens, choices = x.flatten(0, 1), routing.experts.shape[-1]
    expert = routing.experts.flatten()
    order = expert.argsort(stable=True)[(expert < 0).sum() :]
    sizes = expert[order].bincount(minlength=len(experts.W_1)).tolist()
    token, gates = order // choices, routing.gates.flatten()[order]
    shares = zip(tokens[token].split(sizes), experts.each(), strict=True)
    made = torch.cat([feed(share, *weights) for share, weights in shares])
    return torch.zeros_like(tokens).index_add(0, token, gates[:, None] * made).view_as(x)


one_by_one: Compute = upcasting(_one_by_one)
by_expert: Compute = upcasting(_by_expert)
COMPUTE: dict[str, Compute] = {"naive": one_by_one, "grouped": by_expert}


# ---- routers


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(Options):
    """What scores the experts of a token.

    router: "linear", a matrix with a row for each expert; or "cosine", the router of X-MoE (Chi et
        al., On the Representation Collapse of Sparse Mixture of Experts, NeurIPS 2022,
        arXiv:2204.09179), which compares directions in few dimensions.
    rank: of the cosine router, how many dimensions; 16 if not given.
    """

    router: Literal["linear", "cosine"] = "linear"
    rank: Size | None = None

    def check(self) -> None:
        if self.rank is not None and self.router == "linear":
            raise ValueError(
                f"rank={self.rank} is for router='cosine'; a linear router reads all dimensions"
            )


class LinearRouter(nn.Linear):
    """The scores W_r x."""

    def __init__(self, dim: int, experts: int) -> None:
        super().__init__(dim, experts, bias=False)

    def reads(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x and the matrix W_r, whose product is the scores."""
        return x, upcast(self.weight)


class CosineRouter(nn.Module):
    """The scores cos(W x, v_e) / τ in ``rank`` dimensions: of each expert e a direction v_e.

    Under W_r x a token is told to move along the rows of W_r, towards the experts' own vectors; so
    tokens of one expert become alike. A cosine has no gradient along W x itself, and the rows of W
    are not those of the experts. τ is learned, as exp(``log_temperature``).

    TorchScale's code divides the experts' vectors by their length but not the tokens', and has no
    τ; here both have length 1, as in the paper.
    """

    def __init__(self, dim: int, experts: int, rank: int = 16, temperature: float = 0.3) -> None:
        super().__init__()
        self.reduce = nn.Linear(dim, rank, bias=False)
        self.directions = nn.Parameter(torch.empty(experts, rank))
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))
        nn.init.orthogonal_(self.directions)

    def reads(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Two matrices whose product is the scores: a row for each token, and for each expert."""
        directions = F.normalize(upcast(self.directions), dim=-1)
        reduced = F.linear(x, upcast(self.reduce.weight))
        return F.normalize(reduced, dim=-1), directions / upcast(self.log_temperature).exp()


def router_of(dim: int, experts: int, options: ScoringOptions) -> LinearRouter | CosineRouter:
    """The router that these options ask for."""
    if options.router == "linear":
        return LinearRouter(dim, experts)
    return CosineRouter(dim, experts, 16 if options.rank is None else options.rank)


# ---- module


class Matrices(nn.Module):
    """E linear maps side by side: weight (E, out, in) and bias (E, out)."""

    def __init__(self, experts: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(experts, out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(experts, out_features))
        nn.init.uniform_(self.weight, -(in_features**-0.5), in_features**-0.5)

    def extra_repr(self) -> str:
        experts, out, width = self.weight.shape
        return f"experts={experts}, in_features={width}, out_features={out}"


class Mixture(nn.Module, ABC):
    """E experts. A page says by ``route`` which of them compute each token.

    hidden: width of the hidden layer of each expert, 4·dim if not given.
    """

    steps, ahead = True, False
    """Whether it gives a token alone what it gives it among others; whether a later token may
    change the output of an earlier one."""

    def __init__(self, dim: int, hidden: int | None, experts: int, form: str) -> None:
        super().__init__()
        self.form, self.compute = form, choose("form", form, COMPUTE)
        hidden = 4 * dim if hidden is None else hidden
        self.expand = Matrices(experts, dim, hidden)
        self.contract = Matrices(experts, hidden, dim)

    def extra_repr(self) -> str:
        return f"form={self.form!r}"

    @abstractmethod
    def route(self, x: Tensor, padding: TokenPadding) -> Routing:
        """Which experts compute each token of x, in float32 or wider."""

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """What the experts add to the stream: zeros where no expert computes a token."""
        check_input(x, "x", self.expand.in_features, self.expand.weight)
        return self._computed(x, self._routed(x, padding))

    def _routed(self, x: Tensor, padding: TokenPadding) -> Routing:
        with no_autocast(x.device):
            return self.route(upcast(x), padding)

    def _computed(self, x: Tensor, routing: Routing) -> Tensor:
        expand, contract = self.expand, self.contract
        weights = Experts(expand.weight, expand.bias, contract.weight, contract.bias)
        return self.compute(x, routing, weights)


@dataclass(frozen=True, kw_only=True)
class RouterOptions(ScoringOptions):
    """What all layers have whose tokens choose their experts.

    experts: their number, E.
    balance: weight α of the balance loss while training; 0 leaves it out.
    capacity: how many tokens an expert has room for while training, as the page says.
    evaluation_capacity: the same while evaluating; None in either sets no limit.
    """

    experts: Size = 8
    balance: float = 0.01
    capacity: float | None = 1.25
    evaluation_capacity: float | None = 2.0

    def check(self) -> None:
        super().check()
        if self.balance < 0:
            raise ValueError(f"balance should be at least 0, got {self.balance}")
        for name in ("capacity", "evaluation_capacity"):
            if (limit := getattr(self, name)) is not None:
                check_capacity(name, limit)


class Routed(Mixture):
    """Experts that are chosen by a learned router, and charged for being used unevenly."""

    def __init__(self, dim: int, hidden: int | None, form: str, options: RouterOptions) -> None:
        super().__init__(dim, hidden, options.experts, form)
        self.router = router_of(dim, options.experts, options)
        self.limits = {True: options.capacity, False: options.evaluation_capacity}
        self.balance = options.balance

    @property
    def limit(self) -> float | None:
        """The capacity of the mode that the layer is in."""
        return self.limits[self.training]

    @property
    def steps(self) -> bool:  # type: ignore[override]
        return self.limit is None

    def _routed(self, x: Tensor, padding: TokenPadding) -> Routing:
        routing = super()._routed(x, padding)
        if self.training and self.balance:
            charge("balance", self.balance * balance(routing.router, routing.chosen))
        return routing
