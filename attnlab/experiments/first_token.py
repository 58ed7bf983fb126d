"""First token: where does a head put weight that it has no use for?

Nothing is timed: each row is one training of a model of one layer with one head, width 32, on
`attnlab.tasks.ditto`, the same steps and learning rate for all. The head is needed after the mark
alone. At a letter everything that it reads disturbs a prediction that is right without it. Arms
change what the weight can go to (the own token, the first token, a start token, a sink logit, a
gate, normalised queries and keys), and one control takes the harm away: only what follows marks is
scored.

Rows tell, on unseen texts and for queries at place 8 and later, the weights in per cent that
letters and marks give to a kind of key; the length of the first token's value as a share of that of
letters; how many nats the predictions at letters lose to the true probabilities of the chain, and
right answers at marks, in per cent; and the same numbers of the trained model when it is changed:
the first token hidden, another token put first, the start token moved, only the last 8 tokens
visible, with the first token or without. Lesson 19 draws what

    python -m attnlab.experiments first_token --threads 1 --json \\
        attnlab/experiments/assets/19_first_token.json

has written.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.probe import record
from attnlab.core.visibility import Visibility
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.tasks import UNSCORED, Batch
from attnlab.tasks.ditto import Ditto

STEPS = 600
FROM, MOVED, WINDOW, TEXTS = 8, 8, 8, 512
"""The first query that is counted, where the start is moved to, and the tokens of a window."""


def validation(task: Ditto, quick: bool = False) -> Batch:
    """The texts on which all is measured."""
    return task.batch("validation", 32 if quick else TEXTS, seed=0)


@torch.no_grad()
def shares(model: nn.Module, task: Ditto, batch: Batch) -> dict[str, float]:
    """Per cent of the weights of letters, and of marks, that each kind of key gets."""
    seen, inputs = _seen(model, batch), batch.inputs
    weights = seen["weights"]  # of the one head: (b, n, n)
    first = inputs == task.begin if task.start == "random" else _first(inputs)
    kinds = {"first": first, "marks": (inputs == task.mark) & ~first}
    found = {}
    for who, queries in _queries(task, inputs).items():
        for kind, keys in kinds.items():
            found[f"{who}: {kind}"] = _mean((weights * keys[:, None]).sum(-1), queries)
        for kind, back in (("own", 0), ("one back", 1)):
            there = F.pad(weights.diagonal(-back, 1, 2), (back, 0))
            found[f"{who}: {kind}"] = _mean(there, queries)
        found[f"{who}: sink"] = _mean(1 - weights.sum(-1), queries)
        if "gates" in seen:
            found[f"{who}: gate"] = _mean(seen["gates"].mean(-1), queries)
    return found


@torch.no_grad()
def quality(model: nn.Module, task: Ditto, batch: Batch, allowed: Tensor | None = None) -> Scores:
    """What is lost at letters, in nats, and right answers at marks. ``allowed`` (n, n) replaces
    what each token sees."""
    logits = model(batch.inputs, structure=_allowed(task, batch, allowed))
    chain = torch.from_numpy(task.probabilities())
    queries = _queries(task, batch.inputs)
    true = chain[batch.inputs[queries["letters"]]]
    guessed = logits[queries["letters"]].double().log_softmax(-1)[:, : task.symbols + 1]
    lost = (torch.special.xlogy(true, true) - true * guessed).sum(-1).mean().item()
    asked = queries["marks"] & (batch.targets != UNSCORED)
    right = logits.argmax(-1)[asked] == batch.targets[asked]
    return {"lost at letters": (round(lost, 5), "nats"), "right at marks": percent(right)}


def hidden(task: Ditto, *, first: bool, window: int | None = None) -> Tensor:
    """(n, n): what each token sees without the ``first`` one, and of the others the last ``window``
    alone. A token that would see nothing sees itself."""
    i = torch.arange(task.length)
    far = i[:, None] - i
    allowed = (far >= (0 if task.own else 1)) & (far < task.length)
    if window is not None:
        allowed &= far < window + (0 if task.own else 1)
    allowed[:, 0] = first
    return allowed | (torch.eye(task.length, dtype=torch.bool) & ~allowed.any(-1, keepdim=True))


def letter_first(task: Ditto, batch: Batch) -> Batch:
    """The same texts with a letter in the place of their first token."""
    inputs = batch.inputs.clone()
    inputs[:, 0] = torch.arange(len(inputs)) % task.symbols
    return Batch(inputs, batch.targets, structure=batch.structure)


def start_moved(task: Ditto, batch: Batch, to: int = MOVED) -> Batch:
    """The same texts with their start token at place ``to``; what stood before it moves ahead."""
    order = [*range(1, to + 1), 0, *range(to + 1, task.length)]
    return Batch(batch.inputs[:, order], batch.targets[:, order], structure=batch.structure)


@torch.no_grad()
def weight_on(model: nn.Module, task: Ditto, batch: Batch, place: int) -> float:
    """Per cent of the weights of letters after ``place`` that go to this place."""
    queries = _queries(task, batch.inputs)["letters"]
    queries[:, : place + 1] = False
    return _mean(_seen(model, batch)["weights"][..., place], queries)


@torch.no_grad()
def value_length(model: nn.Module, task: Ditto, batch: Batch) -> float:
    """How long the value of the first token (or of the start) is, in per cent of a letter's."""
    values: Any = _seen(model, batch)["values"].norm(dim=-1)
    first = batch.inputs == task.begin if task.start == "random" else _first(batch.inputs)
    letters = (batch.inputs < task.symbols) & ~first
    return round((100 * values[first].mean() / values[letters].mean()).item(), 2)


def score(model: nn.Module, task: Ditto, quick: bool = False) -> dict[str, Any]:
    """All numbers of one trained model."""
    batch = validation(task, quick)
    found: dict[str, Any] = {**shares(model, task, batch), **quality(model, task, batch)}
    found["value of first"] = value_length(model, task, batch)
    changed = {
        "first hidden": hidden(task, first=False),
        f"last {WINDOW}": hidden(task, first=False, window=WINDOW),
        f"last {WINDOW} and first": hidden(task, first=True, window=WINDOW),
    }
    for change, allowed in changed.items():
        for what, value in quality(model, task, batch, allowed).items():
            found[f"{change}; {what}"] = value
    if task.start == "first":
        found["letter first: first"] = weight_on(model, task, letter_first(task, batch), 0)
        moved = start_moved(task, batch)
        found["start moved: first"] = weight_on(model, task, moved, 0)
        found["start moved: start"] = weight_on(model, task, moved, MOVED)
    return found


def _seen(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Weights (b, n, n), values (b, n, e) and gates of the one head."""
    attention: Any = model.decoder.blocks[0].attention  # type: ignore[union-attr,index]
    kept: list[Tensor] = []
    hook = attention.heads.value.register_forward_hook(lambda *given: kept.append(given[-1]))
    with record() as notes:
        model(batch.inputs, structure=batch.structure)
    hook.remove()
    found = {"weights": notes.last("weights")[:, 0], "values": kept[-1]}
    return {**found, "gates": notes.last("gates")[:, 0]} if "gates" in notes else found


def _allowed(task: Ditto, batch: Batch, allowed: Tensor | None) -> Visibility | None:
    if allowed is None:
        return batch.structure
    return Visibility(allowed.expand(len(batch.inputs), -1, -1))


def _first(inputs: Tensor) -> Tensor:
    return (torch.arange(inputs.shape[1]) == 0).expand_as(inputs)


def _queries(task: Ditto, inputs: Tensor) -> dict[str, Tensor]:
    counted = torch.arange(inputs.shape[1]) >= FROM
    return {
        "letters": (inputs < task.symbols) & counted,
        "marks": (inputs == task.mark) & counted,
    }


def _mean(values: Tensor, where: Tensor) -> float:
    return round(100 * values[where].double().mean().item(), 2) + 0.0  # not −0


def _score(trained: Trained) -> Scores:
    return score(trained.model, trained.arm.task, trained.quick)


def _arm(attention: str = "full", task: Mapping[str, Any] = {}, **options: Any) -> Arm:
    given = {"attention": attention, "attention_options": {"form": "naive", **options}}
    return Arm(Ditto(**{"own": False, **task}), given)


GRID = Grid(
    arms={
        "softmax": _arm(),
        "own token visible": _arm(task={"own": True}),
        "sink logit": _arm("sink"),
        "gate": _arm("gated_attention"),
        "marks alone scored": _arm(task={"scored": "marks"}),
        "no start token": _arm(task={"start": "none"}),
        "start anywhere": _arm(task={"start": "random"}),
        "off by one": _arm("sink", logit="zero"),
        "one gate": _arm("gated_attention", gates="headwise"),
        "normed": _arm("qk_norm"),
        "own token visible, sink logit": _arm("sink", task={"own": True}),
    },
    score=_score,
    steps=STEPS,
    model={"dim": 32, "hidden": 64, "heads": 1, "layers": 1, "tie": False},
    training={"batch_size": 32, "learning_rate": 1e-2},
    figure="{arm}; {what}; seed {seed}",
)
ARMS, SEEDS = GRID.arms, GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
