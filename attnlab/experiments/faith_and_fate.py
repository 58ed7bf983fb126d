"""Faith and Fate: answers of many steps, written at once or with every step before them.

Two tasks whose computation is known: products of two numbers of two digits (``products``), asked
for new pairs, and the largest sum without neighbours of lists of four and five numbers (``sums``),
asked for new lists of five numbers, and of six, seven and eight. The forms of the answers:

    answer      the answer alone
    scratchpad  all steps of the computation, then the answer
    filler      the control: as many tokens as the scratchpad, but all of them are "="; if the room
                to compute mattered and not what is written, it would help as much

All are language models of two layers of width 64, four heads, T5's bias by distance, the output
matrix apart from the embedding; the same updates, batches and peak learning rate. Answers are
written greedily, from the question alone. The scores, in per cent: whole answers that are right, in
products each digit of them, and of the steps of a scratchpad the four kinds
(`attnlab.structures.computation`): correct, restored, local, propagated.

Lesson 73 draws what

    python -m attnlab.experiments faith_and_fate --threads 1 --json \\
        attnlab/experiments/assets/73_faith_and_fate.json

has written; rows that the file holds are not trained again.

Dziri et al. Faith and Fate: Limits of Transformers on Compositionality. NeurIPS 2023,
arXiv:2305.18654. Pfau, Merrill, Bowman. Let's Think Dot by Dot. COLM 2024, arXiv:2404.15758, have
the control.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.models.generate import generate
from attnlab.structures.computation import KINDS, Computation
from attnlab.tasks.products import Products
from attnlab.tasks.spaced_sums import LONGEST, SpacedSums
from attnlab.tasks.worked import Question, Worked

STEPS, ASKED = 800, 256
TRAINED, LENGTHS = (4, 5), (5, 6, 7, 8)  # numbers of a list


class Filler(Worked):
    """A scratchpad without steps: "=" stands in each place of them."""

    def _solved(self, question: Sequence[int]) -> list[int]:
        made, sign = self.computation(question), self.names.index("=")
        own = {node: self.spelled(made, node, made.steps[node].value) for node in made.computed}
        for node in set(own) - {*self.answer(made)}:
            own[node] = [sign] * len(own[node])
        return [token for node in self.written(made) for token in own[node]]


@dataclass(frozen=True)
class FilledSums(Filler, SpacedSums):
    """Largest sums after a filler."""


@dataclass(frozen=True)
class FilledProducts(Filler, Products):
    """Products after a filler."""


FORMS: dict[str, tuple[type[SpacedSums], bool]] = {
    "answer": (SpacedSums, False),
    "filler": (FilledSums, True),
    "scratchpad": (SpacedSums, True),
}
TASKS: dict[str, Worked] = {
    **{f"sums, {form}": of(*TRAINED, scratchpad=pad) for form, (of, pad) in FORMS.items()},
    "products, answer": Products(),
    "products, filler": FilledProducts(scratchpad=True),
    "products, scratchpad": Products(scratchpad=True),
}


@torch.no_grad()
def written(model: Any, task: Worked, questions: Sequence[Question]) -> list[dict[str, int]]:
    """What a model states for each question, greedily; all questions of a length at once."""
    found: dict[int, dict[str, int]] = {}
    for n in sorted({*map(len, questions)}):
        own = [place for place, each in enumerate(questions) if len(each) == n]
        asked = torch.tensor([task.asked(questions[place]) for place in own])
        steps = len(task.of([questions[own[0]]]).targets[0]) + 1 - asked.shape[1]
        said = generate(model, asked, steps, temperature=0.0)[:, asked.shape[1] :]
        found |= {p: task.stated(questions[p], row) for p, row in zip(own, said, strict=True)}
    return [found[place] for place in range(len(questions))]


def kinds(made: Sequence[Computation], stated: Sequence[dict[str, int]]) -> dict[str, float]:
    """The per cent of all steps that are of each kind."""
    every = Counter(
        kind
        for graph, said in zip(made, stated, strict=True)
        for kind in graph.judged(said).values()
    )
    return {kind: round(100 * every[kind] / every.total(), 2) for kind in KINDS}


def scored(model: Any, task: Worked, questions: Sequence[Question]) -> dict[str, float]:
    """The per cent of right answers, of right tokens of the answer by name, and of kinds."""
    stated = written(model, task, questions)
    made = [task.computation(each) for each in questions]
    pairs = [*zip(questions, stated, strict=True)]
    found = {"right": share([task.right(each, said) for each, said in pairs])}
    if isinstance(task, Products):
        for node in task.answer(made[0]):
            own = [
                said[node] == graph.values[node] for graph, said in zip(made, stated, strict=True)
            ]
            found[f"{node} right"] = share(own)
    if task.scratchpad and not isinstance(task, Filler):
        found.update(kinds(made, stated))
    return found


def share(right: Sequence[bool]) -> float:
    """The share of what is right, in per cent."""
    return round(100 * sum(right) / len(right), 2)


def held_out(task: Worked, size: int = ASKED) -> list[Question]:
    """Questions that were not trained on, the same for all forms of a task."""
    return task.questions("validation", size, seed=0)


def _scores(trained: Trained) -> Scores:
    what, form = trained.name.split(", ")
    size = 8 if trained.quick else ASKED
    if what == "products":
        return scored(trained.model, trained.arm.task, held_out(trained.arm.task, size))
    found: dict[str, float] = {}
    for n in LENGTHS:
        of, pad = FORMS[form]
        task = of(n, n, scratchpad=pad)
        for name, share in scored(trained.model, task, held_out(task, size)).items():
            found[f"{n} numbers, {name}"] = share
    return found


GRID = Grid(
    arms={name: Arm(task) for name, task in TASKS.items()},
    score=_scores,
    steps=STEPS,
    model={
        **{"dim": 64, "layers": 2, "heads": 4, "hidden": 128, "tie": False},
        **{"positions": "t5_bias", "max_len": 3 * LONGEST + 20},
    },
    training={"batch_size": 16, "learning_rate": 3e-3},
    figure="{arm}; {what}; seed {seed}",
)
SEEDS = GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
