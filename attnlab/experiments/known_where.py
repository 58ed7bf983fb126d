"""Known where: after which layer can a probe answer, and what do its controls say?

Nothing is timed. The shipped language model, four layers that read the Python documentation from
the left, is frozen and asked six questions about pieces, words and brackets
(``attnlab.tasks.asked_spans``). A probe learns from up to 400 examples of training texts in 100
updates, and is asked up to 1,000 of unseen ones, each answer equally often. A row is the share of
right answers of a cumulative probe that reads layers 0 to l (``attnlab.lens.known_where``), in per
cent: on the trained model, on random weights, and after training on labels in a random order; or
the weight that the probe of all layers gives to a layer; or how many unseen examples are known from
layer l on.

There is one training of the model: the seeds draw the texts, the probes, the order of the labels
and the random weights. Lesson 68 draws what

    python -m attnlab.experiments known_where --threads 1 --json \\
        attnlab/experiments/assets/68_known_where.json

has written; rows that the file holds are not measured again.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from attnlab import pretrained
from attnlab.experiments.grid import SEEDS, Arm, Grid, Scores, Trained, seeded
from attnlab.lens.edge_probes import Cumulative, EdgeProbed, Examples
from attnlab.lens.known_where import Known, known_where
from attnlab.lens.probes import layer_states
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import asked_spans
from attnlab.tasks.asked_spans import DOCUMENTATION, AskedTexts

LAYERS = 4
PROBED = 100
"""Updates of each probe."""
TEXTS = 300
EXAMPLES = {"train": 400, "validation": 1000}
RIGHT, RANDOM, SHUFFLED = "right", "random weights", "shuffled labels"
CURVES = (RIGHT, RANDOM, SHUFFLED)
WEIGHT, FIRST = "weight of layer", "first known after"


@cache
def text() -> Any:
    """The documentation, in the pieces of the shipped model."""
    with seeded(0):  # weights are drawn before they are loaded
        return pretrained.load("documentation")[1]


def _shipped(**_: Any) -> TinyTransformer:
    return pretrained.load("documentation")[0]


def asked_texts(split: str, seed: int, *, quick: bool = False) -> AskedTexts:
    """Texts of a split with their questions."""
    texts, examples = (60, 6) if quick else (TEXTS, EXAMPLES[split])
    return asked_spans.documentation(text(), split, texts, examples, seed)


def states_of(model: TinyTransformer, texts: AskedTexts) -> Tensor:
    """(layers + 1, b, n, dim) of texts."""
    return layer_states(model, model.decode, tokens=texts.tokens)


def _scores(trained: Trained) -> Scores:
    learned, new = (
        asked_texts(split, trained.seed, quick=trained.quick) for split in ("train", "validation")
    )
    with seeded(trained.seed):
        untrained = TinyTransformer(**trained.model.config).eval()
    own, other = (
        [states_of(model, texts) for texts in (learned, new)]
        for model in (trained.model, untrained)
    )
    return probed(own, other, learned, new, seed=trained.seed, steps=2 if trained.quick else PROBED)


def probed(
    own: Sequence[Tensor], other: Sequence[Tensor], learned: AskedTexts, new: AskedTexts,
    *, seed: int, steps: int = PROBED,
) -> dict[str, Any]:  # fmt: skip
    """What probes and their controls say of each question, by the names of rows.

    ``own`` and ``other`` are the states of a trained model and of its random weights, each of the
    texts that are learned from and of the new ones.
    """
    found: dict[str, Any] = {}
    for question, examples in learned.questions.items():
        known = known_where(
            own[0], Examples(*examples), own[1], Examples(*new.questions[question]),
            untrained=(other[0], other[1]), steps=steps, seed=seed,
        )  # fmt: skip
        found |= {f"{question}, {what}": value for what, value in _told(known).items()}
    return found


def _told(known: Known) -> dict[str, Any]:
    curves = zip(CURVES, (known.trained, known.random, known.shuffled), strict=True)
    found: dict[str, Any] = {
        f"{name}, layer {layer}": round(100 * float(right), 2)
        for name, curve in curves
        for layer, right in enumerate(curve.right)
    }
    for layer, share in enumerate(known.trained.last.shares):
        found[f"{WEIGHT} {layer}"] = (round(float(share), 4), "")
    first = known.trained.first_layer.bincount(minlength=LAYERS + 2)
    for layer, count in enumerate(first[: LAYERS + 1].tolist()):
        found[f"{FIRST} {layer}"] = (float(count), "examples")
    return found


def found(
    rows: Mapping[str, float],
    questions: Sequence[str] = DOCUMENTATION,
    arm: str = "documentation",
) -> dict[str, list[Known]]:
    """What the rows of an arm say of each question: one ``Known`` for each seed.

    Of the controls only the scores are kept; the order of the examples is not.
    """
    return {
        question: [_known(rows, f"{question}, {{}}, {arm}, seed {n}") for n in SEEDS]
        for question in questions
    }


def _known(rows: Mapping[str, float], figure: str) -> Known:
    def column(what: str) -> Tensor:
        each = [rows[figure.format(f"{what} {layer}")] for layer in range(LAYERS + 1)]
        return torch.tensor(each, dtype=torch.float64)

    right, random, shuffled = (column(f"{curve}, layer") / 100 for curve in CURVES)
    none = torch.empty(0, dtype=torch.int64)
    first = torch.arange(LAYERS + 1).repeat_interleave(column(FIRST).long())
    weights = column(WEIGHT)
    last = EdgeProbed(float(right[-1]), none, weights)
    bare = [Cumulative(curve, none, _unknown(curve)) for curve in (random, shuffled)]
    return Known(Cumulative(right, first, last), *bare)


def _unknown(right: Tensor) -> EdgeProbed:
    """A probe of which no more is kept than its score."""
    none = torch.empty(0, dtype=torch.int64)
    return EdgeProbed(float(right[-1]), none, torch.full_like(right, torch.nan))


def _no_training(*_: Any, **__: Any) -> None:
    return None


GRID = Grid(
    arms={"documentation": Arm(text)},
    score=_scores,
    make=_shipped,
    loop=_no_training,
    figure="{what}, {arm}, seed {seed}",
)
rows, batches = GRID.rows, GRID.batches
