"""Which expert computes which token, and which tokens find their expert full.

A router chooses k experts for each token. An expert has room for ``capacity`` tokens of a sequence:
first choices are placed before any second choice, each in the order of the sequence, and a choice
that finds its expert full is dropped. Where experts choose tokens instead, an expert places the
tokens with the highest gates first. A `Routed` holds the choices of one layer; what follows from
them for any capacity is computed from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.architecture.feed.expert_choice import ExpertChoice
from attnlab.core.experts import balance
from attnlab.core.modes import mode
from attnlab.core.probe import Notes, record
from attnlab.lens.sources.inputs import inputs_of

NONE = -1
_ORDER = {
    "tokens": "first choices are placed before second ones and in the order of the sequence",
    "experts": "each expert places the tokens with the highest gates first",
}


@dataclass(frozen=True)
class Routed:
    """The choices of one layer on one sequence of n tokens, among E experts.

    ``chosen``    (n, k) int64: the experts of each token, the first choice first; -1 for none
    ``gates``     (n, k): the factor of each choice
    ``router``    (n, E) the router's probabilities, or None; zeros at padding
    ``experts``   E
    ``capacity``  how many tokens an expert may compute; n where there is no limit
    ``title``     what the layer is called
    ``choosing``  "tokens", or "experts": then each column of ``chosen`` is one expert's, and -1
                  where it does not take the token
    """

    chosen: Tensor
    gates: Tensor
    router: Tensor | None
    experts: int
    capacity: int
    title: str = ""
    choosing: str = "tokens"

    def queue(self) -> list[tuple[int, int]]:
        """(token, choice) in the order in which choices are placed."""
        n, k = self.chosen.shape
        chosen = self.chosen.tolist()
        found = [(i, c) for c in range(k) for i in range(n) if chosen[i][c] != NONE]
        if self.choosing == "experts":
            places = self.places().tolist()
            found.sort(key=lambda choice: (places[choice[0]][choice[1]], choice[1]))
        return found

    def places(self) -> Tensor:
        """(n, k) int64: how many choices of the same expert are placed before; -1 for no choice."""
        if self.choosing == "experts":
            scores = self.gates.masked_fill(self.chosen == NONE, -torch.inf)
            ranks = scores.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
            return ranks.masked_fill(self.chosen == NONE, NONE)
        line = self.chosen.mT.flatten()
        wanted = F.one_hot(line + 1, self.experts + 1)
        before = (wanted.cumsum(0) - wanted).gather(1, (line + 1)[:, None])[:, 0]
        return before.masked_fill(line == NONE, NONE).view(self.chosen.mT.shape).mT

    def dropped(self, capacity: int | None = None) -> Tensor:
        """(n, k) bool: the choices that find their expert full."""
        return self.places() >= (self.capacity if capacity is None else capacity)

    def computed(self) -> Tensor:
        """(n, k) int64: ``chosen``, and -1 where a choice is dropped."""
        return self.chosen.masked_fill(self.dropped(), NONE)

    def first_dropped(self) -> int | None:
        """The first token that no expert computes though it chose one, else the first that loses a
        choice; where experts choose, the first that none takes. None where there is none."""
        places = self.places()
        dropped = places >= self.capacity
        nowhere = (dropped | (places < 0)).all(1)
        wanted = dropped.any(1) | (self.choosing == "experts")
        for lost in (wanted & nowhere, dropped.any(1)):
            if len(found := lost.nonzero()):
                return int(found[0])
        return None

    def wanted(self) -> Tensor:
        """(E,) int64: how many choices fall on each expert, before any is dropped."""
        return torch.bincount(self.chosen.flatten() + 1, minlength=self.experts + 1)[1:]

    def shares(self) -> Tensor:
        """(E,) f_e: the share of the tokens whose first choice is the expert, before dropping."""
        first = self.chosen[:, 0]
        counts = torch.bincount(first + 1, minlength=self.experts + 1)[1:].double()
        return counts / counts.sum().clamp(min=1)

    def mean_router(self) -> Tensor | None:
        """(E,) P_e: the router's mean probability of each expert, over the real tokens."""
        if self.router is None:
            return None
        real = (self.router.sum(-1) > 0).sum().clamp(min=1)
        return self.router.double().sum(0) / real

    def balance(self) -> float | None:
        """E Σ f_e P_e: 1 where all experts are used alike, E where one has all tokens. None where
        the router is not known, or where experts choose and so are used alike."""
        mean = self.mean_router()
        return (
            None
            if mean is None or self.choosing == "experts"
            else self.experts * float(self.shares() @ mean)
        )


def same_as(layers: Sequence[Routed], experts: Sequence[Tensor]) -> None:
    """A ValueError unless dropping by each layer's capacity leaves ``experts``, (n, k) each, as was
    recorded."""
    for layer, computed in zip(layers, experts, strict=True):
        if wrong := (layer.computed() != computed).any(1).sum().item():
            where = f" in {layer.title}" if layer.title else ""
            raise ValueError(
                f"`experts` differs at {wrong} tokens{where} from what a capacity of "
                f"{layer.capacity} leaves of `chosen`, when {_ORDER[layer.choosing]}; leave "
                "`experts` out, or give the capacity with which they were computed"
            )


# ---- models


def routed_in(
    model: nn.Module, inputs: Any, tokenizer: Any = None
) -> tuple[list[Any] | None, list[Routed]]:
    """What the tokens of one text are called, and the choices of each layer with experts.

    ``inputs`` is a text, with a ``tokenizer`` or a task of attnlab, or tokens (n,). The model runs
    as it is used, not as it is trained, so without jitter and with the capacity of evaluation.
    """
    given = inputs_of(model, inputs, tokenizer, None, None)
    with mode(model, training=False), torch.no_grad(), record() as notes:
        given.run(model)
    _refuse_without(notes, model)
    choosing = "experts" if any(isinstance(m, ExpertChoice) for m in model.modules()) else "tokens"
    names = ("chosen", "gates", "router", "experts", "capacity")
    found: list[Routed] = []
    for chosen, gates, router, experts, capacity in zip(*(notes[x] for x in names), strict=True):
        if len(chosen) != 1:
            raise ValueError(f"`inputs` should be one sequence, got {len(chosen)}")
        n = chosen.shape[1]
        layer = Routed(
            chosen[0].cpu(), gates[0].float().cpu(), router[0].float().cpu(), router.shape[-1],
            min(n, int(capacity[0])), f"layer {len(found)}", choosing,
        )  # fmt: skip
        same_as([layer], [experts[0].cpu()])
        found.append(layer)
    return given.read(given.own, 0), found


class Use:
    """How evenly experts are used while a model is trained: what ``ExpertsView`` takes as history.

    ``tokens`` (b, n) are read again at every step that is added, so that all steps are compared on
    the same texts.
    """

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        self.model, self.tokens = model, tokens
        self._steps: list[int] = []
        self._shares: list[Tensor] = []
        self._balance: list[Tensor] = []

    def add(self, step: int) -> None:
        """Run the model as it is now."""
        with mode(self.model, training=False), torch.no_grad(), record() as notes:
            self.model(self.tokens)
        _refuse_without(notes, self.model)
        both = list(zip(notes["chosen"], notes["router"], strict=True))
        first = [F.one_hot(c[..., 0] + 1, p.shape[-1] + 1).flatten(0, 1)[:, 1:] for c, p in both]
        counts = torch.stack([each.sum(0) for each in first]).double()
        self._steps.append(step)
        self._shares.append(counts / counts.sum(-1, keepdim=True).clamp(min=1))
        self._balance.append(torch.stack([balance(p, c) for c, p in both]))

    def history(self) -> dict[str, Any]:
        """{"steps": (s,), "shares": (layers, s, E), "balance": (layers, s)}."""
        return {
            "steps": list(self._steps),
            "shares": torch.stack(self._shares, 1),
            "balance": torch.stack(self._balance, 1),
        }


def _refuse_without(notes: Notes, model: nn.Module) -> None:
    if "experts" not in notes:
        raise ValueError(
            f"this {type(model).__name__} has no mixture of experts; build one with feed='switch', "
            "'gshard', 'expert_choice' or 'modality_experts'"
        )
