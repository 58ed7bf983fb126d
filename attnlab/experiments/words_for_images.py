"""Words for images: what a frozen language model makes of vectors that it has never read.

A language model (2 layers of width 64) learns six kinds of sentences about numbers, in words
(``attnlab.tasks.interleaved``). Then an image encoder (2 layers of width 48) learns to put two
vectors in the place of such a number, from shown digits and one kind of sentence alone: "this is a
four". All six kinds are asked about unseen digits, matrix puzzles of eight images among them.

    frozen           the language model stays as it is: Frozen, BLIP-2's second stage, in small
    black images     the same, and every image is black: what the words alone say
    mixed words      frozen, and the two vectors are mixtures of the language model's own vectors of
                     words
    trained too      the language model is trained along with the encoder
    from scratch     the same, and it has never read a sentence before

Each arm is trained for three seeds and at two learning rates with the same budget: 600 updates of
64 sentences at 0.003 for the language model, 400 of 32 images for the rest. ``own_rate`` takes for
each arm the rate that is better for the kind it was trained on, in the mean over the seeds. It is
chosen on the 500 sentences that are reported, so that an arm's "is shown" is the better of two
results and a little too high, for every arm alike. A score is the share of answers to which the
model gives the highest probability among the possible ones: 10 numbers, "even" and "odd", or the
two names of the prompt. Not all answers are equally frequent, so ``most_frequent`` says what a
model gets that sees nothing and always says one word. Each kind is asked "shown", about images, and
"written", in words.

New names (``NAMED``): another language model of this size learns two kinds of sentences, "this is a
four" and "two two dax nine nine wug two two dax", where the names are given in the prompt. The
first three arms are trained on "this is a" as above, and both kinds are asked. In words this
language model guesses the new names, so that its answers about images say nothing of images.

    python -m attnlab.experiments words_for_images --threads 1 --json \\
        attnlab/experiments/assets/91_words_for_images.json
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from attnlab.experiments.grid import (
    QUICK,
    SEEDS,
    Arm,
    Grid,
    Grids,
    Scores,
    Trained,
    by_fit,
    percent,
    seeded,
)
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.frozen import WithImages
from attnlab.tasks import Batch
from attnlab.tasks.interleaved import MARKER, NAMES, NEW_NAMES, SENTENCES, Interleaved
from attnlab.train import fit

NAMING = ("is", "named")
KINDS = tuple(kind for kind in SENTENCES if kind != "named")
TEXTS = {kinds: Interleaved(written=kinds, shown=()) for kinds in (KINDS, NAMING)}
TEXT = TEXTS[KINDS]
SPEAKING = 600
UNSEEN = 500
RATES = (1e-3, 3e-3)
TRAINING: dict[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
ARMS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "black images": {"blind": True},
    "mixed words": {"of_words": True},
    "trained too": {"freeze": False},
    "from scratch": {"freeze": False},
}
CANDIDATES = {kind: list(range(10)) for kind in SENTENCES} | {
    "parity": [NAMES.index("even"), NAMES.index("odd")],
    "named": [NAMES.index(name) for name in NEW_NAMES],
}


def untrained() -> TinyTransformer:
    """The language model before it has read anything."""
    return TinyTransformer(TEXT.vocab, dim=64, layers=2, heads=4, max_len=TEXT.length)


@cache
def language_model(seed: int, steps: int, kinds: tuple[str, ...] = KINDS) -> TinyTransformer:
    """One that has read such sentences in words."""
    with seeded(seed):
        model = untrained()
    fit(model, TEXTS[kinds], steps, **TRAINING | {"batch_size": 64}, seed=seed, progress=False)
    return model


def make(**options: Any) -> WithImages:
    """The system of an arm, whose language model is yet to be trained."""
    sizes = {"dim": 48, "layers": 2, "heads": 4, "max_len": 16}
    encoder = TinyTransformer(features=4, kind="classifier", classes=10, **sizes)
    given = {name: options[name] for name in ("freeze", "blind", "of_words") if name in options}
    return WithImages(encoder, untrained(), marker=MARKER, patches=16, **given)


def loop(
    model: WithImages, task: Any, steps: int, *, seed: int, knows: tuple[str, ...] = KINDS,
    **options: Any,
) -> Any:  # fmt: skip
    """As `fit`, once the language model has learned what it is to know, if anything."""
    if knows:
        speaking = QUICK if steps <= QUICK else SPEAKING
        model.language_model.load_state_dict(language_model(seed, speaking, knows).state_dict())
    return by_fit(model, task, steps, seed=seed, **options)


def asked(kind: str, *, shown: bool = True) -> Batch:
    """Unseen sentences of a kind."""
    kinds = {"shown": (kind,)} if shown else {"shown": (), "written": (kind,)}
    return Interleaved(**kinds).batch("validation", UNSEEN, seed=0)


@torch.no_grad()
def right(model: WithImages, kind: str, batch: Batch) -> float:
    """The share of the sentences whose answer is the likeliest of those that are possible."""
    logits = model(
        batch.inputs, batch.padding, source=batch.source, source_padding=batch.source_padding
    )
    candidates = torch.tensor(CANDIDATES[kind])
    of_candidates = _answering(logits, batch)[:, candidates]
    if kind == "named":
        of_candidates = of_candidates.masked_fill(~_said(batch.inputs, candidates), -torch.inf)
    return percent(candidates[of_candidates.argmax(-1)] == _answering(batch.targets, batch))


def most_frequent(kind: str) -> tuple[str, float]:
    """The word with which most of the asked sentences of a kind end, and the per cent that do.

    New names are better guessed among the two of a prompt, of which one is right for half.
    """
    batch = asked(kind)
    answers = _answering(batch.targets, batch)
    word = answers.mode().values
    return NAMES[int(word)], percent(answers == word)


def _answering(values: Tensor, batch: Batch) -> Tensor:
    """(b, …): the values at the place that answers; the last token answers "."."""
    assert batch.padding is not None
    return values[torch.arange(len(batch)), batch.padding.sum(1) - 2]


def _said(tokens: Tensor, candidates: Tensor) -> Tensor:
    """(b, candidates): which of them stand in a sentence."""
    return (tokens[:, :, None] == candidates).any(1)


def score(trained: Trained, kinds: tuple[str, ...] = KINDS) -> Scores:
    """Each kind of sentence about images, and in words."""
    model: Any = trained.model
    return {
        f"{kind} {how}": right(model, kind, asked(kind, shown=how == "shown"))
        for how in ("shown", "written")
        for kind in kinds
    }


def named(arm: str, rate: float) -> str:
    """The name of an arm at a rate."""
    return f"{arm}, rate {rate:g}"


def chosen(rows: Mapping[str, float], arm: str, what: str, begin: str = "") -> list[float]:
    """A score of an arm at its own rate, for each seed; of new names with ``begin``."""
    name = begin + named(arm, own_rate(rows, arm, begin))
    return [rows[f"{name}, {what}, seed {seed}"] for seed in SEEDS]


def own_rate(rows: Mapping[str, float], arm: str, begin: str = "") -> float:
    """The rate at which an arm is better on what it was trained for, in the mean over seeds."""
    return max(
        RATES,
        key=lambda rate: sum(
            rows[f"{begin}{named(arm, rate)}, is shown, seed {seed}"] for seed in SEEDS
        ),
    )


def _arms(names: Sequence[str]) -> dict[str, Arm]:
    """At all rates, the highest first."""
    found = {}
    for rate in RATES[::-1]:
        for arm in names:
            training = {"learning_rate": rate} | ({"knows": ()} if arm == "from scratch" else {})
            found[named(arm, rate)] = Arm(Interleaved(), model=ARMS[arm], training=training)
    return found


WORDS = Grid(
    arms=_arms(list(ARMS)), score=score, steps=400, training=TRAINING, make=make, loop=loop
)
NAMED = replace(
    WORDS,
    arms=_arms(["frozen", "black images", "mixed words"]),
    score=partial(score, kinds=NAMING),
    training={**TRAINING, "knows": NAMING},
    figure="new names, {arm}, {what}, seed {seed}",
)
GRID = Grids((WORDS, NAMED))
rows, batches = GRID.rows, GRID.batches
