"""How a token comes to its final state, layer by layer or step by step, and where it stops.

A `Passage` holds, for each token, the state after every step as two numbers: how far it is from the
state with which the token leaves, and by how much the step changed it. Where the model can say at
every step what it would answer, it holds that guess, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.architecture.depth.equilibrium import Equilibrium
from attnlab.architecture.depth.universal import Universal
from attnlab.core.modes import mode
from attnlab.core.probe import Notes, record
from attnlab.lens.sources.inputs import Inputs, inputs_of
from attnlab.lens.stream import last_norm, stack_of
from attnlab.models.tiny import TinyTransformer, check_model


@dataclass(frozen=True)
class Passage:
    """n tokens on their way through s steps.

    ``distance``       (n, s): ‖x_t − x_T‖ / ‖x_T‖, where x_T is the state with which the token left
    ``change``         (n, s): ‖x_t − x_(t−1)‖ / ‖x_t‖; NaN where the state before is not known
    ``left``           (n,) int64: the step, counted from 1, after which a token is left as it is
    ``steps``          what each step is called
    ``guesses``        (n, s) texts: what the model would answer from this state, or None
    ``probabilities``  (n, s): how probable that answer is, or None
    ``residual``       (s,): of a solver, how far the whole state is from an equilibrium, or None

    After a token has left, nothing is computed: its numbers are NaN there.
    """

    distance: Tensor
    change: Tensor
    left: Tensor
    steps: list[str]
    guesses: list[list[str]] | None = None
    probabilities: Tensor | None = None
    residual: Tensor | None = None

    @property
    def early(self) -> bool:
        """Whether some token leaves before the last step."""
        return bool((self.left < len(self.steps)).any())

    def running(self) -> Tensor:
        """(s,) int64: how many tokens are computed at each step."""
        at = torch.arange(1, len(self.steps) + 1)
        return (self.left[:, None] >= at).sum(0)

    def share(self) -> float:
        """How much of all steps of all tokens is computed, from 0 to 1."""
        return float(self.left.sum()) / (len(self.left) * len(self.steps))

    def settled(self, token: int, near: float = 0.1) -> int:
        """The step, counted from 1, from which on a token stays within ``near`` of the state with
        which it leaves."""
        last = int(self.left[token])
        away = (self.distance[token, :last] > near).nonzero()
        return 1 if not len(away) else min(last, int(away[-1]) + 2)

    def last(self) -> int:
        """The token that leaves last; where several leave together, the one that settles last, and
        among those the one that was farthest from its final state on the mean."""
        far = self.distance.nanmean(1).tolist()
        order = [(int(self.left[i]), self.settled(i), far[i]) for i in range(len(far))]
        return order.index(max(order))


def passage(
    states: Tensor,
    *,
    start: Tensor | None = None,
    left: Tensor | None = None,
    steps: Sequence[str] | None = None,
    **more: Any,
) -> Passage:
    """The passage of tokens with these ``states`` (s, n, dim) after every step.

    ``start`` (n, dim) is the state before the first, and ``left`` (n,) says after which step,
    counted from 1, each token stopped; ``more`` are the other fields of a `Passage`.
    """
    x = states.double()
    s, n, _ = x.shape
    left = torch.full((n,), s) if left is None else left
    final = x[left - 1, torch.arange(n)]
    distance = _relative(x - final, final)
    before = torch.full_like(x[:1], torch.nan) if start is None else start.double()[None]
    change = _relative(x - torch.cat((before, x[:-1])), x)
    gone = torch.arange(1, s + 1)[:, None] > left
    names = [str(at) for at in range(1, s + 1)] if steps is None else [*steps]
    return Passage(
        distance.masked_fill(gone, torch.nan).T, change.masked_fill(gone, torch.nan).T, left,
        names, **more,
    )  # fmt: skip


def _relative(x: Tensor, beside: Tensor) -> Tensor:
    """Rounded as a page gets it, so that both say the same."""
    return (x.norm(dim=-1) / beside.norm(dim=-1).clamp(min=1e-12)).float().double()


# ---- models


def passed_in(
    model: TinyTransformer, inputs: Any, tokenizer: Any = None
) -> tuple[list[Any] | None, dict[str, Any]]:
    """What the tokens of one text are called, and what ``DepthView`` takes of their way through the
    last stack of a model: the decoder, if there is one.

    The answers are those of the model's own norm and output matrix, applied to the state after each
    layer (the logit lens). A classifier answers from the mean of all tokens, so it has none for
    each.
    """
    check_model(model)
    given = inputs_of(model, inputs, tokenizer, None, None)
    stack = stack_of(model)
    seen = _Seen()
    hooks = [stack.depth.register_forward_pre_hook(seen.begin)]
    hooks += [block.register_forward_hook(seen.after) for block in set(stack.blocks)]
    try:
        with mode(model, training=False), torch.no_grad(), record(seen.notes):
            given.run(model)
    finally:
        for hook in hooks:
            hook.remove()
    noted = [value for name, value in [*seen.notes][seen.first :] if name == "states"]
    states = noted or seen.states
    if not states:
        raise ValueError(
            f"{type(stack.depth).__name__} adds what attention and the feed-forward layers give "
            "and runs no layer as a whole, so there is no state after each; take another depth, "
            "such as depth='plain'"
        )
    x = torch.stack(states)
    if x.shape[1] != 1:
        raise ValueError(f"`inputs` should be one sequence, got {x.shape[1]}")
    x = x[:, 0].float()
    halted = seen.notes.last("halted")
    found = {
        "states": x.cpu(),
        "start": None if stack.depth.reads_branches else seen.start[0].float().cpu(),
        "left": None if halted is None else halted[0].clamp(1, len(x)).cpu(),
        "what": "step" if isinstance(stack.depth, Universal | Equilibrium) else "layer",
        "residual": _residual(seen.notes),
        **_answers(model, stack, x, given),
    }
    return given.read(given.own, 0), found


class _Seen:
    """What hooks see of one run."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.states: list[Tensor] = []
        self.start = torch.empty(0)
        self.first = 0  # note of this stack

    def begin(self, _depth: nn.Module, given: tuple[Any, ...]) -> None:
        self.start, self.first = given[0].detach(), len(self.notes)

    def after(self, _block: nn.Module, _given: Any, out: Tensor) -> None:
        self.states.append(out.detach())


def _residual(notes: Notes) -> list[float] | None:
    """The residual of a solver after every step, where there is a solver."""
    return [float(each[0]) for each in notes["residual"]] if "residual" in notes else None


def _answers(model: TinyTransformer, stack: Any, x: Tensor, given: Inputs) -> dict[str, Any]:
    """What the model would answer from each state, and how probable that is."""
    if model.kind == "classifier":
        return {}
    with torch.no_grad():
        probable, best = model.logits(last_norm(stack)(x)).softmax(-1).max(-1)
    if model.kind == "token_classifier":
        names = [[*map(str, row)] for row in best.tolist()]  # numbers of classes
    else:
        names = [given.reader.tokens(row) for row in best]
    return {"guesses": names, "probabilities": probable.cpu()}
