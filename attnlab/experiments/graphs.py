"""Graphs: how far layers reach, and what only positions can tell.

Nothing is timed: each row is a score of one training of a small model, the same steps, width and
learning rate for all of one question. Both tasks are ``attnlab.tasks.graph_questions``:

    distance    every node is asked how many edges it is away from the marked one, 1 to 6; the score
                is the per cent of right answers among the nodes of each distance
    rings       is the graph one ring or two? Every node has two neighbours and the same token, so
                half of the answers are right by chance

Lesson 52 draws what

    python -m attnlab.experiments graphs --threads 1 --json \\
        attnlab/experiments/assets/52_graphs.json

has written.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import UNSCORED
from attnlab.tasks.graph_questions import GraphQuestions
from attnlab.train import fit

DISTANCE = GraphQuestions("distance", nodes=18, fewest=14, most=6)
RINGS = GraphQuestions("rings", nodes=16, fewest=12, most=2)
SEEDS, GRAPHS = (0, 1, 2), 128
STEPS: Mapping[str, int] = {"distance": 150, "rings": 150}
MODEL: Mapping[str, Any] = {"dim": 32, "heads": 2, "hidden": 64, "positions": "none"}
TRAINING: Mapping[str, Any] = {"batch_size": 32, "learning_rate": 3e-3}
EDGES, WAVES = {"attention": "graph_transformer"}, {"positions": "laplacian"}
ARMS: Mapping[str, tuple[GraphQuestions, Mapping[str, Any]]] = {
    "1 layer": (DISTANCE, {**EDGES, "layers": 1}),
    "2 layers": (DISTANCE, {**EDGES, "layers": 2}),
    "4 layers": (DISTANCE, {**EDGES, "layers": 4}),
    "full attention, 4 layers": (DISTANCE, {**WAVES, "layers": 4}),
    "without positions": (RINGS, {**EDGES, "layers": 2}),
    "Laplacian positions": (RINGS, {**EDGES, **WAVES, "layers": 2}),
}
"""Of each model its task and its options; all with full attention have Laplacian positions."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """One row per training, and for the question of distances one per distance."""
    with thread_count(threads):
        for arm, (task, _) in ARMS.items():
            for seed in (0,) if quick else SEEDS:
                model, _ = train(arm, seed, steps=2 if quick else STEPS[task.question])
                for answer, share in score(model, task).items():
                    yield Row(f"{task.question}; {arm}; {answer}; seed {seed}", share, "%")


def build(arm: str, seed: int) -> TinyTransformer:
    """The untrained model."""
    task, options = ARMS[arm]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyTransformer(**{**task.model_options(), **MODEL, **options})


def train(arm: str, seed: int, *, steps: int | None = None) -> tuple[TinyTransformer, Any]:
    """The model and the history of its training."""
    task, model = ARMS[arm][0], build(arm, seed)
    steps = STEPS[task.question] if steps is None else steps
    history = fit(model, task, steps, seed=seed, progress=False, device="cpu", **TRAINING)
    return model.eval(), history


@torch.no_grad()
def score(model: TinyTransformer, task: GraphQuestions, graphs: int = GRAPHS) -> dict[str, float]:
    """Per cent of right answers on unseen graphs: for each distance, or of all."""
    batch = task.batch("validation", graphs, seed=0)
    right = (
        model(batch.inputs, batch.padding, structure=batch.structure).argmax(-1) == batch.targets
    )
    if task.question != "distance":
        return {"all": _percent(right)}
    asked = [batch.targets == away for away in range(1, task.most + 1)]
    shares = {f"{away + 1} away": _percent(right[each]) for away, each in enumerate(asked)}
    return shares | {"all": _percent(right[batch.targets != UNSCORED])}


def _percent(right: torch.Tensor) -> float:
    return round(100 * right.double().mean().item(), 1)
