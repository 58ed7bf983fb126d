"""Words for images: what a frozen language model makes of vectors that it has never read.

A language model (2 layers of width 64) learns five kinds of sentences about numbers, in words
(``attnlab.tasks.interleaved``). Then an image encoder (2 layers of width 48) learns to put two
vectors in the place of such a number, from shown digits and one kind of sentence alone: "this is a
four". All five kinds are asked about unseen digits.

    frozen           the language model stays as it is: Frozen, BLIP-2's second stage, in small
    black images     the same, and every image is black: what the words alone say
    trained too      the language model is trained along with the encoder

Each arm is trained for three seeds with the same budget: 150 updates of 64 sentences for the
language model, 300 of 32 images for the rest, at one learning rate for all. A score is the share of
answers to which the model gives the highest probability among the possible ones, ten numbers or
"even" and "odd"; at random 10 % or 50 %. "Written" is all kinds of sentences in words. No rate was
tried out, for no arm: at this one the language model that is trained along forgets its sentences,
and its arm says nothing of what another rate would give.

    python -m attnlab.experiments words_for_images --threads 1 --json \\
        attnlab/experiments/assets/91_words_for_images.json
"""

from functools import cache
from typing import Any

import torch

from attnlab.experiments.grid import QUICK, Arm, Grid, Scores, Trained, by_fit, percent, seeded
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.frozen import WithImages
from attnlab.tasks.interleaved import MARKER, NAMES, SENTENCES, Interleaved
from attnlab.train import fit

KINDS = tuple(SENTENCES)
TEXT = Interleaved(written=KINDS, shown=())
SPEAKING = 150
UNSEEN = 500
TRAINING: dict[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
CANDIDATES = {kind: list(range(10)) for kind in KINDS} | {
    "parity": [NAMES.index("even"), NAMES.index("odd")]
}


def untrained() -> TinyTransformer:
    """The language model before it has read anything."""
    return TinyTransformer(TEXT.vocab, dim=64, layers=2, heads=4, max_len=TEXT.length)


@cache
def language_model(seed: int, steps: int) -> TinyTransformer:
    """One that has read the sentences in words."""
    with seeded(seed):
        model = untrained()
    fit(model, TEXT, steps, **TRAINING | {"batch_size": 64}, seed=seed, progress=False)
    return model


def make(*, freeze: bool = True, blind: bool = False, **_: Any) -> WithImages:
    """The system of an arm, whose language model is yet to be trained."""
    sizes = {"dim": 48, "layers": 2, "heads": 4, "max_len": 16}
    encoder = TinyTransformer(features=4, kind="classifier", classes=10, **sizes)
    return WithImages(encoder, untrained(), marker=MARKER, patches=16, freeze=freeze, blind=blind)


def loop(model: WithImages, task: Any, steps: int, *, seed: int, **options: Any) -> Any:
    """As `fit`, once the language model has learned to speak."""
    speaking = QUICK if steps <= QUICK else SPEAKING
    model.language_model.load_state_dict(language_model(seed, speaking).state_dict())
    return by_fit(model, task, steps, seed=seed, **options)


@torch.no_grad()
def right(model: WithImages, kind: str, *, shown: bool = True) -> float:
    """The share of unseen sentences of a kind whose answer is the likeliest of the possible."""
    kinds = {"shown": (kind,)} if shown else {"shown": (), "written": (kind,)}
    batch = Interleaved(**kinds).batch("validation", UNSEEN, seed=0)
    logits = model(
        batch.inputs, batch.padding, source=batch.source, source_padding=batch.source_padding
    )
    assert batch.padding is not None
    place = batch.padding.sum(1) - 2  # the last token answers "."
    rows, candidates = torch.arange(len(batch)), torch.tensor(CANDIDATES[kind])
    said = candidates[logits[rows, place][:, candidates].argmax(-1)]
    return percent(said == batch.targets[rows, place])


def score(trained: Trained) -> Scores:
    """Each kind of sentence about images, and all of them in words."""
    model: Any = trained.model
    shown = {f"{kind} shown": right(model, kind) for kind in KINDS}
    written = [right(model, kind, shown=False) for kind in KINDS]
    return {**shown, "written": round(sum(written) / len(KINDS), 2)}


GRID = Grid(
    arms={
        "frozen": Arm(Interleaved()),
        "black images": Arm(Interleaved(), model={"blind": True}),
        "trained too": Arm(Interleaved(), model={"freeze": False}),
    },
    score=score,
    steps=300,
    training=TRAINING,
    make=make,
    loop=loop,
)

build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
