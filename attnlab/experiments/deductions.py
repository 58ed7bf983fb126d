"""Deductions: logic grids solved at once, after a filler, or one cell after the other.

Small language models read the clues of a grid of three houses, with their colours and pets
(`attnlab.tasks.logic_grids`), and write its table. The forms are those of
`attnlab.experiments.faith_and_fate`:

    answer      the table alone
    filler      the control: as many tokens as the scratchpad has, all of them "="
    scratchpad  each deduction, a house and an item, then the table, which copies them

All are models of two layers of width 64, four heads, T5's bias by distance, the output matrix apart
from the embedding; the same updates, batches and peak learning rate. They are asked for puzzles
whose clues were not trained on together, in no order. The scores, in per cent: whole tables that
are right, of all puzzles, of those whose graph is ``shallow`` (at most 5 edges deep) and of the
``deep`` ones; cells that are right; and of a scratchpad the kinds of its steps.

The baselines are those of someone who guesses: any of the 36 tables; and any of those that the
clues about one item alone (at, not-at) leave, so that nothing is combined with another clue.

Lesson 73 shows what

    python -m attnlab.experiments deductions --threads 1 --json \\
        attnlab/experiments/assets/73_deductions.json

has written; rows that the file holds are not trained again.

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654, ask for Einstein's puzzle. Pfau, Merrill, Bowman. Let's Think Dot by Dot. COLM
2024, arXiv:2404.15758, have the control.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from attnlab.experiments.faith_and_fate import ASKED, Filler, held_out, kinds, share, written
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.structures.computation import Computation
from attnlab.tasks.logic_grids import LogicGrids, clues, fits
from attnlab.tasks.worked import Question

STEPS, SHALLOW = 600, 5
GUESS = "any table that the clues about one item leave"


@dataclass(frozen=True)
class FilledGrids(Filler, LogicGrids):
    """Logic grids after a filler."""


FORMS: dict[str, LogicGrids] = {
    "answer": LogicGrids(),
    "filler": FilledGrids(scratchpad=True),
    "scratchpad": LogicGrids(scratchpad=True),
}


def is_shallow(made: Computation) -> bool:
    return made.depth <= SHALLOW


def scored(model: object, task: LogicGrids, questions: Sequence[Question]) -> dict[str, float]:
    """The per cent of right tables, by depth, of right cells, and of kinds."""
    stated = written(model, task, questions)
    made = [task.computation(each) for each in questions]
    right = [task.right(each, said) for each, said in zip(questions, stated, strict=True)]
    shallow = [is_shallow(graph) for graph in made]
    found = {"right": share(right)}
    for name, wanted in (("shallow", True), ("deep", False)):
        own = [each for each, is_so in zip(right, shallow, strict=True) if is_so is wanted]
        found[f"{name}, right"] = share(own)
    found["cells right"] = share(
        [
            said[node] == graph.values[node]
            for graph, said in zip(made, stated, strict=True)
            for node in task.answer(graph)
        ]
    )
    if task.scratchpad and not isinstance(task, Filler):
        found.update(kinds(made, stated))
    return found


def left(question: Question, attributes: int = 2) -> int:
    """How many tables the clues about one item leave."""
    every, fit = clues(attributes), fits(attributes)
    own = [number for number in question if every[number][1] in ("at", "not-at")]
    return int(fit[own].all(0).sum())


def guessed(quick: bool, shallow: bool | None = None) -> float:
    """The per cent of tables that are right if one of those is guessed that are ``left``, for all
    puzzles, or for the shallow or the deep ones."""
    task = LogicGrids()
    asked = held_out(task, 16 if quick else ASKED)
    if shallow is not None:
        asked = [each for each in asked if is_shallow(task.computation(each)) is shallow]
    return round(100 * sum(1 / left(each) for each in asked) / len(asked), 2)


def _scores(trained: Trained) -> Scores:
    task = trained.arm.task
    return scored(trained.model, task, held_out(task, 16 if trained.quick else ASKED))


GRID = Grid(
    arms={form: Arm(task) for form, task in FORMS.items()},
    score=_scores,
    steps=STEPS,
    model={
        **{"dim": 64, "layers": 2, "heads": 4, "hidden": 128, "tie": False},
        **{"positions": "t5_bias", "max_len": FORMS["scratchpad"].length},
    },
    training={"batch_size": 16, "learning_rate": 3e-3},
    baselines={
        "any table": lambda _: round(100 / fits(2).shape[1], 2),
        GUESS: guessed,
        f"{GUESS}, shallow": partial(guessed, shallow=True),
        f"{GUESS}, deep": partial(guessed, shallow=False),
    },
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
