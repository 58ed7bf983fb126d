"""What is hidden decides: one encoder, eight objectives, and what can be read off its states.

Nothing is timed. Each training is one encoder (dim 48, 2 layers, 4 heads, RoPE) on windows of 64
pieces (BPE, 512) of the Python documentation: 1,000 updates of 16 windows. All objectives begin
with the same embeddings and layers. What they ask is theirs, and so is the head that answers:

    next_token       the next piece, from those before it
    prefix_lm        the same after a beginning that is read from both sides
    masked_lm        15 % of the pieces, hidden
    electra          at every piece: is it the text's own? (a generator of a quarter of the width)
    xlnet            one piece of 6, in a random order, by its own query
    mpnet            15 % in a random order, with masks at all that is hidden
    sentence_order   which half of the window came first
    contrastive      which other half belongs to this half, among the 16 of the batch

The learning rate is 3e-3 for all. Masked LM and ELECTRA, which are compared at equal computation,
have tried 6e-3 as well with seed 0; the other arms are not tuned. How well an arm has learned what
it was asked is told by its own loss on unseen windows, as a share of what a model has that knows
nothing of the text but how often its pieces occur: 100 % is a model that has learned nothing else.

Afterwards nothing is trained but linear probes (``attnlab.lens.probes``) on the states after the
last layer, on windows of the training text; they are scored on windows of unseen topics. Guessing
is right for 50 %. Four questions are about a piece, two about a window:

    brackets     does it stand inside brackets?
    heading      is it part of a line that the next line underlines?
    code         is it part of an indented line?
    exchanged    has it changed places with a neighbour? (in one of ten pairs)
    halves       are the halves of the window in their order?
    together     are two halves those of one window, or do they come from two topics?

A random encoder and shuffled labels are the controls. A second grid asks whether ELECTRA's question
at every piece teaches more for the same computation: masked LM for as many FLOPs as ELECTRA's
updates with its generator; and ELECTRA asked at the hidden 15 % alone, which costs the same and
gives up what is said to be the reason. Masked LM and ELECTRA with twice the updates, one seed, say
whether the budget decides. Lesson 64 draws what

    python -m attnlab.experiments what_is_hidden --threads 1 --json \\
        attnlab/experiments/assets/64_what_is_hidden.json

has written; rows that the file holds are not trained again.
"""

import math
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab import catalog
from attnlab.core.visibility import Visibility
from attnlab.experiments.grid import Arm, Grid, Grids, Scores, Trained, by_fit, seeded
from attnlab.lens.probes import balanced, layer_states, probe
from attnlab.measure.count import count
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.contrastive import Contrastive
from attnlab.objectives.electra import Electra
from attnlab.objectives.hiding import uniform
from attnlab.objectives.sentence_order import SentenceOrder
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.marked_text import MARKS, windows
from attnlab.train import model_options

OBJECTIVES = (
    "next_token", "prefix_lm", "masked_lm", "electra", "xlnet", "mpnet", "sentence_order",
    "contrastive",
)  # fmt: skip
OF_PIECES = (*MARKS, "exchanged")
OF_WINDOWS = ("halves", "together")
QUESTIONS = (*OF_PIECES, *OF_WINDOWS)
PIECES, LENGTH, STEPS, EQUAL = 512, 64, 1000, 1128
SIZES: dict[str, Any] = {
    "dim": 48, "layers": 2, "heads": 4, "max_len": 2 * LENGTH, "tie": False, "positions": "rope",
}  # fmt: skip
BATCH = 16
CLAIM = ("masked_lm", "electra")  # are compared at equal computation
TRIED = (3e-3, 6e-3)  # their learning rates
RATES = dict.fromkeys(OBJECTIVES, 3e-3)
RATE = 0.1  # of the pairs of neighbours that are exchanged
LEARNED, ASKED = 2000, 2000  # states that a probe learns from, and those that it is asked
RANDOM, AT_HIDDEN = "no training", "electra at hidden"


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


class ElectraAtHidden(Electra):
    """ELECTRA whose discriminator is asked at the hidden places alone, as a masked language model
    is. Its loss weighs as much as the question at all places."""

    def places(self, batch: Any) -> Bool[Tensor, "b n"]:
        """Where the discriminator is asked."""
        hidden: Tensor = batch.kept["hidden"]
        return hidden

    def loss(self, answers: Any, batch: Any) -> Tensor:
        """Both losses, each at the hidden places."""
        hidden, weight = self.places(batch), batch.kept["weight"]
        guesses = F.cross_entropy(
            answers.proposed[hidden].float(), batch.targets[hidden], reduction="none"
        )
        found = F.binary_cross_entropy_with_logits(
            answers.scores[hidden].float(), answers.replaced[hidden].float(), reduction="none"
        )
        of_each = weight[:, None].expand_as(hidden)[hidden]
        return (of_each * (guesses + self.options.weight * found)).sum()


def objective_of(name: str) -> nn.Module:
    """The objective of an arm, anew: it may build a generator or a head."""
    if name == AT_HIDDEN:
        return ElectraAtHidden(PIECES)
    takes_vocab = "vocab" in catalog.with_role("objective")[name].option_names()
    given: dict[str, Any] = {"vocab": PIECES} if takes_vocab else {}
    made: nn.Module = catalog.build(name, **given)
    return made


class Run(NamedTuple):
    """How a training went, and the objective with what it has learned itself."""

    history: Any
    objective: Any

    def column(self, name: str) -> list[Any]:
        """The values of one column of the history."""
        found: list[Any] = self.history.column(name)
        return found


def _fit(
    model: TinyTransformer, task: Any, steps: int, *, objective: str, **options: Any
) -> Run | None:
    if objective == RANDOM:
        return None
    asks = objective_of(objective)
    return Run(by_fit(model, task, steps, objective=asks, **options), asks)


def read(
    model: TinyTransformer, objective: str, tokens: Int[Tensor, "b n"]
) -> Float[Tensor, "layers b n dim"]:
    """The states of a trained model after each layer, read as it was trained: a causal model from
    the left, all others from both sides. Sentence order has its separator between the halves, whose
    states are left out."""
    n = tokens.shape[1]
    if objective == "next_token":
        return layer_states(model, model.decode, tokens=tokens)
    if objective == "prefix_lm":
        open_to_all = Visibility(torch.ones(len(tokens), n, n, dtype=torch.bool))
        return layer_states(model, lambda x: model.decode(x, structure=open_to_all), tokens=tokens)
    if objective == "sentence_order" and n == LENGTH:
        separator = torch.full_like(tokens[:, :1], PIECES)
        with_it = torch.cat([tokens[:, : n // 2], separator, tokens[:, n // 2 :]], 1)
        states = layer_states(model, model.encode, tokens=with_it)
        return torch.cat([states[:, :, : n // 2], states[:, :, n // 2 + 1 :]], 2)
    return layer_states(model, model.encode, tokens=tokens)


# ---- how well an objective is learned


@cache
def floor(split: str = "validation") -> float:
    """The loss in nats, on unseen windows, of a model that knows how often each piece occurs in the
    training text, and nothing of what stands around it."""
    learned, asked_of = (
        windows(text(), each, 4000, seed=7).tokens.flatten() for each in ("train", split)
    )
    often = torch.bincount(learned, minlength=PIECES).double() + 1
    return float(-(often / often.sum()).log()[asked_of].mean())


@torch.no_grad()
def left_of_floor(model: TinyTransformer, objective: Any, *, batches: int = 40) -> float:
    """An objective's own loss on unseen windows, in per cent of what a model has that has learned
    no more than frequencies: of pieces, or of the answers themselves where these are few. Of
    ELECTRA it is the discriminator's."""
    generator, loss, scored, yes = torch.Generator().manual_seed(0), 0.0, 0, 0
    objective.eval()
    for index in range(batches):
        asks = objective.prepare(text().batch("validation", BATCH, index), generator)
        answers = objective.answers(model, asks)
        if isinstance(objective, Electra):
            places = objective.places(asks) if isinstance(objective, ElectraAtHidden) else ...
            found, truth = answers.scores[places], answers.replaced[places].float()
            loss += float(F.binary_cross_entropy_with_logits(found, truth, reduction="sum"))
            scored, yes = scored + truth.numel(), yes + int(truth.sum())
        else:
            loss += float(objective.loss(answers, asks))
            scored += int((asks.targets >= 0).sum())
    if isinstance(objective, Electra):
        share = torch.tensor([yes, scored - yes], dtype=torch.float64) / scored
        known = float(-torch.special.xlogy(share, share).sum())
    elif isinstance(objective, SentenceOrder):
        known = math.log(2)
    else:
        known = math.log(BATCH) if isinstance(objective, Contrastive) else floor()
    return 100 * loss / scored / known


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
    """What probes of the last layer have right of each question, and with shuffled labels."""
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
            given += [states[-1:, places], answers.long()[places]]
        x, labels, new, right = given
        found[question] = probe(x, labels, new, right, generator)
    return found


def _learned(trained: Trained) -> Scores:
    if trained.history is None:
        return {}
    batches = 1 if trained.quick else 40
    share = left_of_floor(trained.model, trained.history.objective, batches=batches)
    return {"own loss of its floor": round(share, 2)}


def _scores(trained: Trained) -> Scores:
    objective = trained.arm.training["objective"]
    read_as = "electra" if objective == AT_HIDDEN else objective
    results = probed(trained.model, read_as, quick=trained.quick)
    found = {question: round(100 * result.right.item(), 2) for question, result in results.items()}
    shuffled = torch.cat([result.shuffled for result in results.values()]).mean()
    return {**found, "shuffled labels": round(100 * shuffled.item(), 2), **_learned(trained)}


# ---- arms


def _arm(objective: str, steps: int = STEPS, rate: float | None = None) -> Arm:
    chosen = "masked_lm" if objective == RANDOM else objective
    kind = "electra" if objective == AT_HIDDEN else chosen
    asks = {"objective": objective, "learning_rate": rate or RATES[kind]}
    return Arm(text, {"objective": kind}, asks, steps=steps)


def _make(objective: str, **options: Any) -> TinyTransformer:
    return _model(objective, **{name: options[name] for name in SIZES})


SHARED: dict[str, Any] = {
    "make": _make,
    "loop": _fit,
    "model": SIZES,
    "training": {"batch_size": BATCH},
}


@cache
def flops(objective: str) -> int:
    """Counts one update, forward and backward, of all that is trained; ELECTRA's generator too."""
    with seeded(0):
        model = _model(objective, **SIZES)
        asks: Any = objective_of(objective)
        asks.fitted(model)
    batch = asks.prepare(text().batch("train", BATCH, 0), torch.Generator().manual_seed(0))
    return count(lambda: asks.loss(asks.answers(model, batch), batch), backward=True).flops


@cache
def unread() -> int:
    """The FLOPs of an update of masked LM, forward and backward, for what its head says at places
    whose answers are not scored: 85 % of them. A program can leave them out; here they are made.
    """
    with seeded(0):
        head = nn.Linear(SIZES["dim"], PIECES + 1)
    not_scored = BATCH * (LENGTH - round(0.15 * LENGTH))
    states = torch.zeros(not_scored, SIZES["dim"], requires_grad=True)
    return count(lambda: head(states).sum(), backward=True).flops


def equal_steps(steps: int) -> int:
    """How many updates of a masked language model, without what nobody reads, cost what so many of
    ELECTRA cost with all that they compute."""
    return round(steps * flops("electra") / (flops("masked_lm") - unread()))


EIGHT = Grid(
    arms={RANDOM: _arm(RANDOM), **{name: _arm(name) for name in OBJECTIVES}},
    score=_scores,
    **SHARED,
)
COMPUTED = Grid(
    arms={
        AT_HIDDEN: _arm(AT_HIDDEN),
        "masked_lm for the FLOPs of electra": _arm("masked_lm", EQUAL),
    },
    score=_scores,
    **SHARED,
)
TUNED = Grid(
    arms={f"{name} at {rate:g}": _arm(name, rate=rate) for name, rate in product(CLAIM, TRIED)},
    score=_learned,
    seeds=(0,),
    figure="{what}, {arm}, tried once",
    **SHARED,
)
LONGER = Grid(
    arms={f"{name} for twice the updates": _arm(name, 2 * STEPS) for name in CLAIM},
    score=_scores,
    seeds=(0,),
    figure="{what}, {arm}, tried once",
    **SHARED,
)
GRID = Grids((TUNED, EIGHT, COMPUTED, LONGER))
SEEDS = EIGHT.seeds
build, train, rows, batches = EIGHT.build, EIGHT.train, GRID.rows, GRID.batches
