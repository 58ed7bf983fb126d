"""Embodied plans: are plans carried out rightly when the world is told by vectors among words?

A language model (2 layers of width 64) learns to plan for three blocks that are told in words
(``attnlab.tasks.grid_world``), with plans of one step or two. Then an encoder learns to put vectors
in the place of these words, from plans of the same lengths: PaLM-E in small.

    one vector       the coordinates of all blocks by one MLP, 1 vector
    six vectors      the same by an MLP that makes 6, as many as the objects have
    objects          2 vectors for each block, in any order, its colour among its numbers
    named objects    the same vectors, and the colour of each as a word in the prompt
    picture          the table from the front, 16 patches by a ViT of 1 layer
    blind            named objects whose vectors are made of zeros: what the question alone says

Two vectors stand where the words have two: "red is [·] [·] ," for "red is on blue ,". All but
"frozen" arms train the language model too. "With texts" half of the sentences are told in words
(co-training). "Longer texts" are arms whose language model has read plans of any length in words,
while vectors come with the short ones alone, as always.

Each arm is trained for three seeds with the same budget, 600 updates of 64 sentences for the
language model and 300 of 32 for the rest, at one rate for all; no rate was tried out, for no arm.
A score is the share of 200 questions in unseen worlds whose plan, the likeliest word after the
other, reaches its goal when it is carried out: "known lengths" are questions of one or two steps,
"longer" those that need three or four, "words" those of known lengths told in words. "Stops early"
is the share of the longer questions to which a plan of two steps at most is given.

What came out, of the known lengths: frozen, 31.7 % are right in the mean without observation, 7.0 %
with one vector, 37.5 % with a picture, 38.3 % with objects, 49.7 % with six vectors and 60.8 % with
named objects. Objects (6.7 ± 11.0 points) and pictures (5.8 ± 3.9) are not shown to be better than
what the question alone says. Trained along, it is 43.7 % without observation and 62.5 to 75.5 %
with one. No arm makes a right plan of three steps, but where the language model has read longer
plans in words 23.5 to 44.0 % of the longer questions are right.

    python -m attnlab.experiments embodied_plans --threads 1 --json \\
        attnlab/experiments/assets/92_embodied_plans.json
"""

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from attnlab.experiments.grid import QUICK, Arm, Grid, Scores, Trained, by_fit, seeded
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.palm_e import PaLME, PictureEncoder, StateEncoder
from attnlab.systems.vit import ViT, ViTOptions
from attnlab.tasks.blocks import END, outcome
from attnlab.tasks.grid_world import MARKER, STOP, GridWorld, Question
from attnlab.train import fit

KNOWN, LONGEST = 2, 4  # steps of a plan
STEP = 4  # words of a step; what is written may have a step more than the longest plan
UNSEEN = 200
SPEAKING = 600
TRAINING: dict[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
SIZES: dict[str, Any] = {"dim": 64, "layers": 2, "heads": 4, "positions": "rope"}
PICTURE = ViTOptions(
    image=8, patch=2, channels=3, dim=32, layers=1, heads=4, hidden=64, classes=1
)  # fmt: skip


def untrained() -> TinyTransformer:
    """The language model before it has read anything."""
    longest = max(GridWorld(name).length for name in ("words", "picture"))
    return TinyTransformer(GridWorld.vocab, max_len=longest + STEP, **SIZES)


@cache
def language_model(seed: int, steps: int, most: int) -> TinyTransformer:
    """One that has read worlds, questions and plans of at most so many steps in words."""
    with seeded(seed):
        model = untrained()
    text = GridWorld("words", most=most)
    fit(model, text, steps, **TRAINING | {"batch_size": 64}, seed=seed, progress=False)
    return model


def make(
    *, observation: str, vectors: int = 1, freeze: bool = False, blind: bool = False, **_: Any
) -> PaLME:
    """The system of an arm, whose language model is yet to be trained."""
    dim = SIZES["dim"]
    encoder: Any = (
        PictureEncoder(ViT(PICTURE), dim)
        if observation == "picture"
        else StateEncoder(GridWorld(observation).numbers, dim, vectors=vectors)
    )
    return PaLME(encoder, untrained(), marker=MARKER, freeze=freeze, blind=blind)


def loop(
    model: PaLME, task: Any, steps: int, *, seed: int, read: int = KNOWN, **options: Any
) -> Any:
    """As `fit`, once the language model has learned to plan so many steps in words."""
    begun = language_model(seed, QUICK if steps <= QUICK else SPEAKING, read)
    model.language_model.load_state_dict(begun.state_dict())
    return by_fit(model, task, steps, seed=seed, **options)


def plans(model: PaLME, task: GridWorld, size: int) -> list[tuple[Question, list[str]]]:
    """Questions of unseen worlds, and the words that the model writes."""
    batch = task.batch("validation", size, seed=0)
    begin = (batch.targets >= 0).int().argmax(1)  # where the first word of the plan is asked for
    prompt = torch.arange(int(begin.max()) + 1) <= begin[:, None]
    words = model.write(
        batch.inputs[:, : prompt.shape[1]], prompt, source=batch.source,
        source_padding=batch.source_padding, steps=STEP * (LONGEST + 1), end=STOP,
    )  # fmt: skip
    questions = task.questions("validation", size, seed=0)
    return [(question, task.tokens(row)) for question, row in zip(questions, words, strict=True)]


def right(answered: list[tuple[Question, list[str]]]) -> float:
    """The share of plans, in per cent, that reach their goals."""
    found = [outcome(asked.world, asked.goal, words).right for asked, words in answered]
    return round(100 * sum(found) / len(found), 2)


def score(trained: Trained) -> Scores:
    """Plans of the lengths that were trained, longer ones, and those that are told in words."""
    model, told = trained.model, trained.arm.problem
    size = 8 if trained.quick else UNSEEN
    known = replace(told, also_words=False)
    longer = plans(model, replace(known, fewest=KNOWN + 1, most=LONGEST), size)
    early = [END in words[: STEP * KNOWN] for _, words in longer]
    return {
        "known lengths": right(plans(model, known, size)),
        "longer": right(longer),
        "stops early": round(100 * sum(early) / size, 2),
        "words": right(plans(model, GridWorld("words", most=KNOWN), size)),
    }


def _arm(
    observation: str, vectors: int = 1, *, also_words: bool = False, read: int = KNOWN, **model: Any
) -> Arm:
    task = GridWorld(observation, markers=vectors, also_words=also_words, most=KNOWN)
    options = {"observation": observation, "vectors": vectors, **model}
    return Arm(task, model=options, training={"read": read})


TOLD: dict[str, tuple[str, int]] = {
    "one vector": ("state", 1),
    "six vectors": ("state", 6),
    "objects": ("objects", 2),
    "named objects": ("named", 2),
    "picture": ("picture", 1),
}
GRID = Grid(
    arms={
        **{f"{name}, frozen": _arm(*told, freeze=True) for name, told in TOLD.items()},
        "longer texts, frozen": _arm("named", 2, freeze=True, read=LONGEST),
        **{name: _arm(*told) for name, told in TOLD.items()},
        "blind": _arm("named", 2, blind=True),
        "blind, frozen": _arm("named", 2, freeze=True, blind=True),
        "with texts": _arm("named", 2, also_words=True),
    },
    score=score,
    steps=300,
    training=TRAINING,
    make=make,
    loop=loop,
)

build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
