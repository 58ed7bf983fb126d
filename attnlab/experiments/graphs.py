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

import torch

from attnlab.experiments.grid import Arm, Grid, Scores, Trained, percent
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import UNSCORED
from attnlab.tasks.graph_questions import GraphQuestions

DISTANCE = GraphQuestions("distance", nodes=18, fewest=14, most=6)
RINGS = GraphQuestions("rings", nodes=16, fewest=12, most=2)
GRAPHS = 128
EDGES, WAVES = {"attention": "graph_transformer"}, {"positions": "laplacian"}


@torch.no_grad()
def score(model: TinyTransformer, task: GraphQuestions, graphs: int = GRAPHS) -> dict[str, float]:
    """Per cent of right answers on unseen graphs: for each distance, or of all."""
    batch = task.batch("validation", graphs, seed=0)
    right = (
        model(batch.inputs, batch.padding, structure=batch.structure).argmax(-1) == batch.targets
    )
    if task.question != "distance":
        return {"all": percent(right, 1)}
    asked = [batch.targets == away for away in range(1, task.most + 1)]
    shares = {f"{away + 1} away": percent(right[each], 1) for away, each in enumerate(asked)}
    return shares | {"all": percent(right[batch.targets != UNSCORED], 1)}


def _score(trained: Trained) -> Scores:
    return score(trained.model, trained.arm.task)


GRID = Grid(
    arms={
        "1 layer": Arm(DISTANCE, {**EDGES, "layers": 1}),
        "2 layers": Arm(DISTANCE, {**EDGES, "layers": 2}),
        "4 layers": Arm(DISTANCE, {**EDGES, "layers": 4}),
        "full attention, 4 layers": Arm(DISTANCE, {**WAVES, "layers": 4}),
        "without positions": Arm(RINGS, {**EDGES, "layers": 2}),
        "Laplacian positions": Arm(RINGS, {**EDGES, **WAVES, "layers": 2}),
    },
    score=_score,
    steps=150,
    model={"dim": 32, "heads": 2, "hidden": 64, "positions": "none"},
    training={"batch_size": 32, "learning_rate": 3e-3},
    figure="{task.question}; {arm}; {what}; seed {seed}",
)
"""All models with full attention have Laplacian positions."""
ARMS, SEEDS = GRID.arms, GRID.seeds
build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
