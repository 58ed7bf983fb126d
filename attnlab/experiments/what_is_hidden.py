"""What is hidden decides: one encoder, several objectives, and what can be read off its states.

Nothing is timed. Each training is one encoder (dim 48, 2 layers, 4 heads) on windows of 64 pieces
(BPE, 512) of the Python documentation: 600 updates of 16 windows at one untuned rate, 5e-3. All
objectives begin with the same embeddings and layers. What they ask is theirs, and so is the head
that answers:

    next_token       the next piece, from those before it
    prefix_lm        the same after a beginning that is read from both sides
    masked_lm        15 % of the pieces, hidden
    electra          at every piece: is it the text's own? (a generator of a quarter of the width)
    contrastive      which other half belongs to this half, among the 16 of the batch

Afterwards nothing is trained but linear probes (``attnlab.lens.probes``) on the states after each
layer, on windows of the training text; they are scored on windows of unseen topics. Guessing is
right for 50 %. Four questions are about a piece, two about a window:

    brackets     does it stand inside brackets?
    heading      is it part of a line that the next line underlines?
    code         is it part of an indented line?
    exchanged    has it changed places with a neighbour? (in one of ten pairs)
    halves       are the halves of the window in their order?
    together     are two halves those of one window, or do they come from two topics?

A random encoder and shuffled labels are the controls. The loss in the last two sixths of a training
stands beside that of a model that knows the frequencies of the pieces alone: after 600 updates the
masked language model is still there, and so is ELECTRA's generator. The rows compare this budget,
not what an objective can reach.

    python -m attnlab.experiments what_is_hidden --threads 1 --json \\
        attnlab/experiments/assets/64_what_is_hidden.json
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.visibility import Visibility
from attnlab.experiments.grid import Arm, Grid, Scores, Trained, by_fit
from attnlab.lens.probes import balanced, layer_states, probe
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.hiding import uniform
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.marked_text import MARKS, windows
from attnlab.train import model_options

OBJECTIVES = ("next_token", "prefix_lm", "masked_lm", "electra", "contrastive")
OF_PIECES = (*MARKS, "exchanged")
OF_WINDOWS = ("halves", "together")
QUESTIONS = (*OF_PIECES, *OF_WINDOWS)
PIECES, LENGTH, STEPS = 512, 64, 600
SIZES: dict[str, Any] = {"dim": 48, "layers": 2, "heads": 4, "max_len": 2 * LENGTH, "tie": False}
RATE = 0.1  # of the pairs of neighbours that are exchanged
LEARNED, ASKED = 1200, 800  # states that a probe learns from, and those that it is asked
RANDOM = "no training"


@cache
def text() -> Documentation:
    """The windows that are learned from."""
    return Documentation("bpe", LENGTH, bpe_size=PIECES)


# ---- models


def _model(objective: str, **options: Any) -> TinyTransformer:
    """A model of the kind that the objective trains, whose embeddings and layers do not depend on
    it: they are those of a token classifier that is drawn first."""
    plain = TinyTransformer(**{**model_options(text(), "masked_lm"), **options})
    own = {**model_options(text(), objective), **options, "vocab": PIECES + 1}
    model = TinyTransformer(**own)
    drawn = {_place(name): value for name, value in plain.state_dict().items()}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not name.startswith("output"):
                value.copy_(drawn[_place(name)])
    return model


def _place(name: str) -> str:
    return name.removeprefix("encoder.").removeprefix("decoder.")


def objective_of(name: str) -> nn.Module:
    """The objective of an arm, anew: it may build a generator or a head."""
    takes_vocab = "vocab" in catalog.with_role("objective")[name].option_names()
    given: dict[str, Any] = {"vocab": PIECES} if takes_vocab else {}
    made: nn.Module = catalog.build(name, **given)
    return made


def _fit(model: TinyTransformer, task: Any, steps: int, *, objective: str, **options: Any) -> Any:
    if objective == RANDOM:
        return None
    return by_fit(model, task, steps, objective=objective_of(objective), **options)


def read(
    model: TinyTransformer, objective: str, tokens: Int[Tensor, "b n"]
) -> Float[Tensor, "layers b n dim"]:
    """The states of a trained model after each layer, read as it was trained: a causal model from
    the left, all others from both sides."""
    n = tokens.shape[1]
    if objective == "next_token":
        return layer_states(model, model.decode, tokens=tokens)
    if objective == "prefix_lm":
        open_to_all = Visibility(torch.ones(len(tokens), n, n, dtype=torch.bool))
        return layer_states(model, lambda x: model.decode(x, structure=open_to_all), tokens=tokens)
    return layer_states(model, model.encode, tokens=tokens)


def floor() -> float:
    """The loss in nats of a model that knows how often each piece occurs in the training text, and
    nothing of what stands around it."""
    tokens = windows(text(), "train", 4000, seed=7).tokens.flatten()
    shares = torch.bincount(tokens, minlength=PIECES).double() / len(tokens)
    return float(-torch.special.xlogy(shares, shares).sum())


# ---- questions


class Asked(NamedTuple):
    """Windows in the forms in which they are read, and the answers that go with them."""

    tokens: Int[Tensor, "b n"]
    marks: Mapping[str, Bool[Tensor, "b n"]]
    mixed: Int[Tensor, "b n"]
    exchanged: Bool[Tensor, "b n"]
    turned: Int[Tensor, "b n"]
    order: Int[Tensor, "b"]
    other: Int[Tensor, "b"]
    together: Int[Tensor, "b"]


@cache
def asked(split: str, many: int) -> Asked:
    """The windows of a split with their questions, the same for every model."""
    drawn = windows(text(), split, many, seed=0)
    generator = torch.Generator().manual_seed(1)
    mixed, exchanged = _exchanged(drawn.tokens, generator)
    order = torch.randint(2, (many,), generator=generator)
    turned = torch.where(order[:, None] == 1, drawn.tokens.roll(LENGTH // 2, 1), drawn.tokens)
    together = torch.randint(2, (many,), generator=generator)
    other = torch.arange(many)
    for row in range(many):
        if not together[row]:
            far = (drawn.topic != drawn.topic[row]).nonzero()[:, 0]
            other[row] = far[torch.randint(len(far), (), generator=generator)]
    return Asked(drawn.tokens, drawn.marks, mixed, exchanged, turned, order, other, together)


def _exchanged(
    tokens: Int[Tensor, "b n"], generator: torch.Generator
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """Windows in which one of ten pairs of neighbours that differ has changed places."""
    first, second = tokens[:, 0::2], tokens[:, 1::2]
    chosen = (uniform(first.shape, generator) < RATE) & (first != second)
    pairs = torch.where(
        chosen[..., None], torch.stack([second, first], -1), torch.stack([first, second], -1)
    )
    return pairs.flatten(1), chosen.repeat_interleave(2, 1)


def features(
    model: TinyTransformer, objective: str, split: str, many: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """For each question the states of each layer (layers, m, d), and the answers (m,)."""
    windows_of = asked(split, many)
    plain = read(model, objective, windows_of.tokens)
    mixed = read(model, objective, windows_of.mixed).flatten(1, 2)
    turned = read(model, objective, windows_of.turned).mean(2)
    half = LENGTH // 2
    first = read(model, objective, windows_of.tokens[:, :half]).mean(2)
    second = read(model, objective, windows_of.tokens[:, half:]).mean(2)
    apart = (first - second[:, windows_of.other]).abs()
    found = {name: (plain.flatten(1, 2), own.flatten()) for name, own in windows_of.marks.items()}
    return {
        **found,
        "exchanged": (mixed, windows_of.exchanged.flatten()),
        "halves": (turned, windows_of.order),
        "together": (apart, windows_of.together),
    }


def probed(model: TinyTransformer, objective: str, *, quick: bool = False) -> dict[str, Any]:
    """What probes of each layer have right of each question, and with shuffled labels."""
    sides = [
        features(model, objective, split, 60 if quick else many)
        for split, many in (("train", 1000), ("validation", 800))
    ]
    found = {}
    for question in QUESTIONS:
        generator, given = torch.Generator().manual_seed(0), list[Tensor]()
        for side, most in zip(sides, (LEARNED, ASKED), strict=True):
            states, answers = side[question]
            wanted = min(most, 2 * int(answers.sum()), 2 * int((answers == 0).sum()))
            places = balanced(answers.long(), wanted, generator)
            given += [states[:, places], answers.long()[places]]
        x, labels, new, right = given
        found[question] = probe(x, labels, new, right, generator)
    return found


def _scores(trained: Trained) -> Scores:
    results = probed(trained.model, trained.arm.training["objective"], quick=trained.quick)
    found: dict[str, Any] = {
        f"{question}, layer {layer}": round(100 * result.right[layer].item(), 2)
        for question, result in results.items()
        for layer in range(SIZES["layers"] + 1)
    }
    shuffled = torch.stack([result.shuffled.mean() for result in results.values()]).mean()
    found["shuffled labels"] = round(100 * shuffled.item(), 2)
    if trained.history is not None:
        losses = trained.history.column("loss")
        for part in (5, 6):
            own = losses[len(losses) * (part - 1) // 6 :][: max(1, len(losses) // 6)]
            found[f"loss in part {part} of 6"] = (round(sum(own) / len(own), 4), "nats")
    return found


# ---- arms


def _arm(objective: str) -> Arm:
    kind = "masked_lm" if objective == RANDOM else objective
    return Arm(text, {"objective": kind}, {"objective": objective})


def _make(objective: str, **options: Any) -> TinyTransformer:
    return _model(objective, **{name: options[name] for name in SIZES})


GRID = Grid(
    arms={RANDOM: _arm(RANDOM), **{name: _arm(name) for name in OBJECTIVES}},
    score=_scores,
    steps=STEPS,
    make=_make,
    loop=_fit,
    model=SIZES,
    training={"batch_size": 16, "learning_rate": 5e-3},
    baselines={"frequencies alone, loss": lambda quick: (round(floor(), 4), "nats")},
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
