"""Nodes and edges as tokens: a plain Transformer reads graphs, with and without identifiers.

Nothing is timed: each row is the share of right answers (%) of one small model on unseen graphs. A
graph has 6 to 10 nodes and edges drawn at random, each of them one way and the other. One node is
marked. Two questions about every node:

    degree       how many neighbours has it: 0, 1, 2, 3, 4, or more?
    neighbours   is there an edge between it and the marked node?

The tokens of nodes and edges go through a plain Transformer of two layers:

    none                     without identifiers of nodes
    orthogonal               random orthogonal identifiers, drawn anew in each step
    laplacian                eigenvectors of the Laplacian, with random signs
    orthogonal, edges hidden
    laplacian, edges hidden  the control: no token attends to an edge, in training and in the test,
                             so that what is right comes from the identifiers of the nodes

"guess" is the share of the most frequent answer. The steps are chosen for the task and equal for
all arms; the arms that still learn then are trained anew with more of them. Lesson 53 draws what

    python -m attnlab.experiments node_tokens --threads 1 --json \
        attnlab/experiments/assets/53_node_tokens.json

has written.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import OneCycleLR

from attnlab.experiments.grid import Arm, Grid, Measured, Scores, Trained, percent, seeded
from attnlab.experiments.loop import descend
from attnlab.mechanisms.structure.token_gt import GraphTokens, TokenGTOptions
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

TASKS = ("degree", "neighbours")
FEWEST, MOST, DEGREE = 6, 10, 2.4
WIDTH, DIM, LAYERS = 10, 64, 2
CLASSES: Mapping[str, int] = {"degree": 6, "neighbours": 2}
STEPS: Mapping[str, int] = {"degree": 350, "neighbours": 500}
ARMS = ("none", "orthogonal", "laplacian")
HIDDEN = ("orthogonal, edges hidden", "laplacian, edges hidden")
LONG = 1500
LONGER = (
    ("degree", "orthogonal"),
    ("degree", "laplacian, edges hidden"),
    ("neighbours", "orthogonal"),
)


class Graphs(NamedTuple):
    """Graphs, the marked node of each, and the answer at every node; -100 at padding."""

    structure: GraphBatch
    marked: Tensor  # (b, n) bool
    answers: Tensor  # (b, n)


def graphs(
    task: str, size: int, seed: int, *,
    split: str = "train", nodes: tuple[int, int] = (FEWEST, MOST),
) -> Graphs:  # fmt: skip
    """``size`` graphs drawn at random; a split and a seed have graphs of their own."""
    draw = torch.Generator().manual_seed(2 * seed + (split != "train"))
    counts = torch.randint(nodes[0], nodes[1] + 1, (size,), generator=draw)
    real = torch.arange(nodes[1]) < counts[:, None]
    joined = torch.rand(size, nodes[1], nodes[1], generator=draw).triu(1)
    joined = (joined > 0) & (joined < DEGREE / (counts[:, None, None] - 1))
    joined = (joined | joined.mT) & real[:, None] & real[..., None]
    marked = torch.arange(nodes[1]) == (torch.rand(size, generator=draw) * counts).long()[:, None]
    beside = joined.sum(-1).clamp(max=CLASSES["degree"] - 1)
    found = beside if task == "degree" else (joined & marked[:, None]).any(-1).long()
    listed = [Graph(int(n), own.nonzero()) for n, own in zip(counts, joined, strict=True)]
    answers = found.masked_fill(~real, -100)
    return Graphs(GraphBatch.of(listed, length=nodes[1]), marked, answers)


class Reader(nn.Module):
    """Tokens of nodes and edges, a plain Transformer, an answer at each node: (b, n, classes)."""

    def __init__(self, classes: int, identifiers: str, *, edges: bool = True) -> None:
        super().__init__()
        self.edges = edges  # may tokens attend to edges?
        self.kinds = nn.Embedding(2, DIM)  # of nodes: plain, marked
        nn.init.normal_(self.kinds.weight, std=DIM**-0.5)  # as large as what GraphTokens adds
        chosen: Any = "orthogonal" if identifiers == "none" else identifiers
        self.tokens = GraphTokens(DIM, TokenGTOptions(identifiers=chosen, width=WIDTH))
        with torch.no_grad():  # a token begins as identifiers above all
            self.tokens.identify.weight.mul_(0 if identifiers == "none" else 3)
        self.tokens.identify.weight.requires_grad_(identifiers != "none")
        self.transformer = TinyTransformer(
            features=DIM, classes=classes, kind="classifier", positions="none", dim=DIM, heads=2,
            hidden=2 * DIM, layers=LAYERS, max_len=1024,
        )  # fmt: skip
        self.answer = nn.Linear(DIM, classes)

    def forward(self, structure: GraphBatch, marked: Tensor) -> Tensor:
        tokens, exist = self.tokens(self.kinds(marked.long()), structure=structure)
        if not self.edges:
            tokens, exist = (part[:, : 1 + marked.shape[1]] for part in (tokens, exist))
        read = self.transformer.encode(tokens, exist)
        out: Tensor = self.answer(read[:, 1 : 1 + marked.shape[1]])
        return out


def _model(task: str, arm: str) -> Reader:
    return Reader(CLASSES[task], arm.split(",")[0], edges=arm not in HIDDEN)


def _train(model: Reader, task: str, steps: int, *, seed: int) -> None:
    """On new graphs in every step."""

    def loss(step: int) -> Tensor:
        batch = graphs(task, 32, seed=1000 * seed + step)
        logits = model(batch.structure, batch.marked)
        return F.cross_entropy(logits.flatten(0, 1), batch.answers.flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 2))
    with seeded(seed):  # of the identifiers
        descend(optimizer, loss, steps, schedule=schedule)


@torch.no_grad()
def right(model: Reader, batch: Graphs) -> float:
    """The share of nodes with the right answer, in per cent."""
    found = model(batch.structure, batch.marked).argmax(-1)
    scored = batch.answers >= 0
    return percent((found == batch.answers)[scored], 1)


def unseen(task: str, size: int = 512, nodes: tuple[int, int] = (FEWEST, MOST)) -> Graphs:
    """The graphs of the scores."""
    return graphs(task, size, seed=10**6, split="validation", nodes=nodes)


def _score(trained: Trained) -> Scores:
    return {"": right(trained.model, unseen(trained.arm.task, 16 if trained.quick else 512))}


def _guess(task: str) -> Callable[[bool], Measured]:
    """The share of the most frequent answer."""

    def share(quick: bool) -> float:
        batch = unseen(task, 16 if quick else 512)
        answers = batch.answers[batch.answers >= 0]
        often = torch.bincount(answers).max() / len(answers)
        return round(100 * often.item(), 2)

    return share


def _arm(task: str, arm: str, steps: int | None = None) -> Arm:
    return Arm(task, {"task": task, "arm": arm}, steps=steps or STEPS[task])


GRID = Grid(
    arms={
        **{f"{task}, {arm}": _arm(task, arm) for task in TASKS for arm in (*ARMS, *HIDDEN)},
        **{f"{task}, {arm}, {LONG} steps": _arm(task, arm, LONG) for task, arm in LONGER},
    },
    score=_score,
    baselines={f"{task}, guess": _guess(task) for task in TASKS},
    make=_model,
    loop=_train,
    figure="{arm}, seed {seed}",
)
SEEDS = GRID.seeds
rows, batches = GRID.rows, GRID.batches


def build(task: str, arm: str, seed: int) -> Reader:
    """The untrained model."""
    model: Reader = GRID.build(f"{task}, {arm}", seed)
    return model


def train(task: str, arm: str, seed: int, *, steps: int | None = None) -> Reader:
    """The model after training, on new graphs in every step."""
    model: Reader = GRID.train(f"{task}, {arm}", seed, steps=steps)[0]
    return model
