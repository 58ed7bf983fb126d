r"""Depth-adaptive: every token leaves the stack after as many layers as it needs.

The model can answer after each of its N layers, by the same norm and the same output matrix. A
token t leaves after layer n with probability $q_t(n)$, which a small linear layer computes from
the stream $h$; there are two kinds:

$$\text{multinomial:}\quad q_t = \mathrm{softmax}(W h_t^1 + b),\qquad
\text{geometric:}\quad q_t(n) = \chi_n \prod_{m<n} (1 - \chi_m),\quad
q_t(N) = \prod_{m<N} (1 - \chi_m),\quad \chi_n = \sigma(w_n \cdot h_t^n + b_n)$$

The first decides once, after the first layer; the second after each. When the model is used, a
token leaves at the most probable layer (multinomial), or as soon as $\chi_n > 1/2$ (geometric).
Later layers see the token as it was when it left, $h_t^n$: each computes its own keys and values of
that copy, so the other tokens can still attend to it.

Training runs all tokens through all layers: ``fit(objective="aligned_exits")`` trains every exit
and teaches q when to leave. Before that training nobody leaves, since $b$ begins where every token
stays. ``leave_after=n`` lets all tokens leave after layer n, for comparison.

``naive``  all layers; a token that has left keeps its stream.
``early``  the same, and no further layer once every token has left.

Common mistakes: exits that were never trained, which answer at random; later layers that see the
stream of a token that has left going on, which is not what a decoder will see; probabilities of
leaving whose gradient changes the layers (here they read the stream without passing one on).

Departures.
- one norm and one output matrix serve all exits, where the authors also try one for each
- layers compute a token that has left as well and drop the result, unless all have left: layers are
  saved as counted, not in time
- q is read from the token's own stream, also where a whole sequence is to leave together

Elbayad, Gu, Grave, Auli. Depth-Adaptive Transformer. ICLR 2020, arXiv:1910.10073, sections 3 and 4.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.branches import Layer
from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way
from attnlab.core.exits import Exits, asked
from attnlab.core.options import Size, check_value
from attnlab.core.precision import call_upcast, no_autocast, upcast
from attnlab.core.probe import note

Leaves: TypeAlias = Callable[[int, Tensor], Tensor]
"""Which tokens leave after layer n with the stream x: ``leaves(n, x)``, (b, n) bool."""

STAYS = -2.0
"""The score of leaving before training: a probability of 12 %, so nobody leaves."""


# ---- forms


def naive(x: Tensor, layers: Sequence[Layer], leaves: Leaves | None = None) -> Tensor:
    """All layers; a token that has left keeps its stream."""
    return _run(x, layers, leaves, whole=True)


def early(x: Tensor, layers: Sequence[Layer], leaves: Leaves | None = None) -> Tensor:
    """``naive``, and no further layer once every token has left."""
    return _run(x, layers, leaves, whole=False)


FORMS = {"naive": naive, "early": early}


def _run(x: Tensor, layers: Sequence[Layer], leaves: Leaves | None, *, whole: bool) -> Tensor:
    halted = torch.full(x.shape[:-1], len(layers), device=x.device)
    for n, layer in enumerate(layers, 1):
        here = halted >= n
        if leaves is None:
            x = layer(x)
        elif whole or here.any():
            x = torch.where(here[..., None], layer(x), x)
        note("states", x)
        if leaves is not None and n < len(layers):
            halted = torch.where(here & leaves(n, x), n, halted)
    note("halted", halted)
    return x


def geometric(scores: Float[Tensor, "... N-1"]) -> Float[Tensor, "... N"]:
    """log q of the geometric kind, from the scores of leaving after each layer but the last."""
    stay = F.pad(F.logsigmoid(-scores).cumsum(-1), (1, 0))  # log of the product over m < n
    return stay + F.pad(F.logsigmoid(scores), (0, 1))


def multinomial(scores: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """log q of the multinomial kind."""
    return scores.log_softmax(-1)


# ---- module


class DepthAdaptive(Way):
    """The layers of a stack with an exit after each, and the norm that all exits share.

    halting: "geometric", asked after each layer, or "multinomial", asked after the first.
    leave_after: the layer after which every token leaves when the model is used, in the place of
        what it has learned; a ValueError if its exits are not trained.
    """

    takes_norm = True
    trained: Tensor

    def __init__(
        self, dim: Size, layers: Size, *,
        halting: Literal["geometric", "multinomial"] = "geometric",
        leave_after: Size | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.halting = check_value("halting", halting, Literal["geometric", "multinomial"])
        self.leave_after = check_value("leave_after", leave_after, Size | None)
        if leave_after is not None and leave_after > layers:
            raise ValueError(f"leave_after should be at most layers={layers}, got {leave_after}")
        self.norm: nn.Module = nn.Identity()  # the stack gives its own
        with warnings.catch_warnings():  # of PyTorch, where one layer leaves nothing to ask
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            self.scores = nn.Linear(dim, layers - (halting == "geometric"))
        nn.init.zeros_(self.scores.weight)
        nn.init.zeros_(self.scores.bias)
        with torch.no_grad():  # before training nobody leaves before the last layer
            self.scores.bias[: layers - 1] = STAYS
        self.register_buffer("trained", torch.tensor(False))

    def extra_repr(self) -> str:
        after = "" if self.leave_after is None else f", leave_after={self.leave_after}"
        return f"halting={self.halting!r}{after}"

    def forward(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        if (exits := asked()) is not None:
            exits.append(self.exits(x, layers))
            if self.training:
                self.trained.fill_(True)
            return exits[-1].states[-1]
        out: Tensor = self.norm(early(x, layers, self._leaves()))
        return out

    def step(self, x: Tensor, layers: Sequence[Layer]) -> Tensor:
        """The form for layers that carry a state on: every layer keeps what it will need of a token
        that has left."""
        out: Tensor = self.norm(naive(x, layers, self._leaves()))
        return out

    def exits(self, x: Tensor, layers: Sequence[Layer]) -> Exits:
        """All tokens through all layers, and where each should leave."""
        states = []
        for layer in layers:
            x = layer(x)
            states.append(self.norm(x))
        read = [h.detach() for h in states]
        if self.halting == "multinomial":
            return Exits(torch.stack(states), multinomial(self._all_scores(read[0])))
        scores = [self._score(n, h) for n, h in enumerate(read[:-1], 1)]
        empty = x.new_empty(*x.shape[:-1], 0)
        found = torch.stack(scores, -1) if scores else empty
        return Exits(torch.stack(states), geometric(found))

    def _score(self, n: int, h: Tensor) -> Float[Tensor, "b n"]:
        """w_n · h + b_n"""
        with no_autocast(h.device):  # a choice of numbers that are not rounded
            return upcast(h) @ upcast(self.scores.weight[n - 1]) + upcast(self.scores.bias[n - 1])

    def _all_scores(self, h: Tensor) -> Float[Tensor, "b n N"]:
        with no_autocast(h.device):
            out: Tensor = call_upcast(self.scores, upcast(h))
        return out

    def _leaves(self) -> Leaves | None:
        """None in training, which runs all layers."""
        if self.training:
            return None
        if self.leave_after is None:
            return self._asks_once() if self.halting == "multinomial" else self._asks
        if not self.trained:
            raise ValueError(
                f"leave_after={self.leave_after} lets tokens leave by exits that are not trained; "
                "train the model by fit(…, objective='aligned_exits')"
            )
        return lambda n, x: torch.full(x.shape[:-1], n == self.leave_after, device=x.device)

    def _asks(self, n: int, x: Tensor) -> Bool[Tensor, "b n"]:
        return self._score(n, self.norm(x)) > 0  # a probability above 1/2

    def _asks_once(self) -> Leaves:
        chosen: list[Tensor] = []

        def leaves(n: int, x: Tensor) -> Tensor:
            if n == 1:
                chosen.append(self._all_scores(self.norm(x)).argmax(-1) + 1)
            return chosen[0] == n

        return leaves


# ---- card

L, a, p = letters("L a p")

CARD = Card(
    __doc__,
    name="depth_adaptive",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(
        kept=L * a,
        parameters=L * p,
        equals="the loop over the layers",
    ),
    build=DepthAdaptive,
    notes={"naive": ("states", "halted"), "early": ("states", "halted")},
    variants=({"halting": "multinomial"},),
    aliases=("exits", "early_exit"),
    demo="""
    >>> from attnlab.core.probe import record
    >>> model = attnlab.TinyTransformer(50, layers=4, depth="depth_adaptive").eval()
    >>> with record() as notes:
    ...     logits = model(torch.arange(10)[None])
    >>> len(notes["states"])  # one after each layer, any of which can answer
    4
    >>> model.logits(notes["states"][0]).shape
    torch.Size([1, 10, 50])
    """,
)
