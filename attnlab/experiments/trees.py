"""Trees: models that are told a tree in four ways, on four tasks with trees, and on larger trees.

Nothing is timed: each row is a score of one training of a tiny classifier from scratch. Four models
read the same trees:

    tree attention               phrases gather the values of their words (`attention="tree"`)
    Transformer, brackets        the tree as text with brackets, and the place in that text
    Transformer, tree positions  leaves and nodes with the path from the root, full attention
    Tree-LSTM                    one state passed from children to their parent, from the leaves up

and a baseline, which learns what the tokens alone tell:

    flat trees                   the Tree-LSTM, trained and scored on trees in which every token is
                                 directly below the root: the sum over tokens in no order

One budget: the same steps, batches, width and learning rate for all, chosen for none of them, and
about as many parameters, to which end the feed-forward layer of the Tree-LSTM, which has one layer
and not two, is wider. Four tasks, scored on trees of the sizes seen in training and on larger ones,
in per cent of right answers among 500 unseen trees:

    listops       the value of nested MAX and MIN; deeper expressions
    logic         the truth value of a formula under an assignment; deeper formulas
    agreement     is the hidden verb singular or plural; more attractors before it
    python types  the type of a part of a real Python expression; deeper expressions

Lesson 51 draws what

    python -m attnlab.experiments trees --threads 1 --json attnlab/experiments/assets/51_trees.json

has written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import nn

from attnlab.experiments import grid
from attnlab.experiments.grid import Grid, Scores, Trained, parameters, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch, Task
from attnlab.tasks.agreement import Agreement
from attnlab.tasks.flat import Flat, flattened
from attnlab.tasks.listops import ListOps
from attnlab.tasks.logic import Logic
from attnlab.tasks.python_types import PythonTypes

__all__ = ["flattened"]

DIM, UNSEEN = 48, 500
TWO_LAYERS: Mapping[str, Any] = {"dim": DIM, "hidden": 2 * DIM, "layers": 2, "heads": 4}
ONE_LAYER: Mapping[str, Any] = {"dim": DIM, "hidden": 224, "layers": 1}

Sizes = tuple[int, int]
"""From the smallest to the largest: depths, or numbers of attractors."""


class Arm(NamedTuple):
    """A model: the form in which it reads trees, and its options."""

    form: str
    options: Mapping[str, Any]


ARMS: Mapping[str, Arm] = {
    "tree attention": Arm("tree", {**TWO_LAYERS, "attention": "tree", "positions": "none"}),
    "Transformer, brackets": Arm("brackets", {**TWO_LAYERS, "positions": "sinusoidal"}),
    "Transformer, tree positions": Arm("tree", {**TWO_LAYERS, "positions": "tree_positions"}),
    "Tree-LSTM": Arm("tree", {**ONE_LAYER, "attention": "tree_lstm", "positions": "none"}),
}


BASELINE = "flat trees"
FLAT = ARMS["Tree-LSTM"]._replace(form="flat")
MODELS: Mapping[str, Arm] = {**ARMS, BASELINE: FLAT}
"""The four models and the baseline."""


@dataclass(frozen=True)
class Plan:
    """A task of a form and of sizes, and the sizes that are scored; the first are those of
    training."""

    task: Callable[[str, Sizes], Task]
    size: str
    scored: tuple[Sizes, ...]

    def told(self, form: str, sizes: Sizes) -> Any:
        """The task of these sizes in a form of ``Arm``."""
        return Flat(self.task("tree", sizes)) if form == "flat" else self.task(form, sizes)


def _listops(form: str, depths: Sizes) -> Task:
    sizes = {"shallowest": depths[0], "deepest": depths[1], "leaves": 12, "arguments": 3}
    return ListOps(form, **sizes, operators=("MAX", "MIN"))


def _logic(form: str, depths: Sizes) -> Task:
    sizes = {"shallowest": depths[0], "deepest": depths[1], "leaves": 8, "variables": 3}
    return Logic("value", form, **sizes)


def _agreement(form: str, attractors: Sizes) -> Task:
    return Agreement(form, fewest=attractors[0], most=attractors[1], words=5 * attractors[1] + 10)


def _python_types(form: str, depths: Sizes) -> Task:
    return PythonTypes("part", form, shallowest=depths[0], deepest=depths[1])


PLANS: Mapping[str, Plan] = {
    "listops": Plan(_listops, "depth", ((1, 2), (3, 3), (4, 4))),
    "logic": Plan(_logic, "depth", ((1, 2), (3, 3), (4, 4))),
    "agreement": Plan(_agreement, "attractors", ((0, 1), (2, 2), (3, 3))),
    "python types": Plan(_python_types, "depth", ((1, 3), (4, 4), (5, 6))),
}


def written(plan: Plan, sizes: Sizes) -> str:
    """A range of sizes as the rows name it: "depth 1–2", "depth 3"."""
    low, high = sizes
    return f"{plan.size} {low}" if low == high else f"{plan.size} {low}–{high}"


def problem(name: str, arm: str) -> Any:
    """The task that a model is trained on."""
    return _problem(name, MODELS[arm].form)


@cache
def _problem(name: str, form: str) -> Any:
    plan = PLANS[name]
    return plan.told(form, plan.scored[0])


def _model(plan: Plan, form: str, **options: Any) -> TinyTransformer:
    """With room for the largest trees that are scored."""
    longest = max(plan.told(form, sizes).length for sizes in plan.scored)
    return TinyTransformer(**{**options, "max_len": longest})


@lru_cache(maxsize=32)
def unseen(task: Task | Flat) -> Batch:
    """The trees that are scored: the same for all models that read this form."""
    return task.batch("validation", UNSEEN, 0)


@torch.no_grad()
def right(model: nn.Module, task: Task | Flat) -> float:
    """Per cent of right answers on unseen trees."""
    batch = unseen(task)
    given = {} if batch.structure is None else {"structure": batch.structure}
    return percent(model(batch.inputs, batch.padding, **given).argmax(-1) == batch.targets)


def _scores(trained: Trained) -> Scores:
    name, form = trained.name.split(", ", 1)[0], trained.arm.model["form"]
    plan, note = PLANS[name], f"{parameters(trained.model):,} parameters"
    return {
        written(plan, sizes): (right(trained.model, plan.told(form, sizes)), "%", note)
        for sizes in plan.scored
    }


def _arm(name: str, arm: str) -> grid.Arm:
    form, options = MODELS[arm]
    return grid.Arm(partial(problem, name, arm), {"plan": PLANS[name], "form": form, **options})


GRID = Grid(
    arms={f"{name}, {arm}": _arm(name, arm) for name in PLANS for arm in MODELS},
    score=_scores,
    steps=400,
    make=_model,
    training={"batch_size": 32, "learning_rate": 3e-3},
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def build(name: str, arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    model: TinyTransformer = GRID.build(f"{name}, {arm}", seed)
    return model


def train(name: str, arm: str, seed: int, **more: Any) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training."""
    return GRID.train(f"{name}, {arm}", seed, **more)
