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

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.structure.token_gt import GraphTokens, Identified
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

SEEDS, TASKS = (0, 1, 2), ("degree", "neighbours")
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
    task: str,
    size: int,
    seed: int,
    *,
    split: str = "train",
    nodes: tuple[int, int] = (FEWEST, MOST),
) -> Graphs:
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
        self.tokens = GraphTokens(DIM, Identified(identifiers=chosen, width=WIDTH))
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


def build(task: str, arm: str, seed: int) -> Reader:
    """The untrained model."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Reader(CLASSES[task], arm.split(",")[0], edges=arm not in HIDDEN)


def train(task: str, arm: str, seed: int, *, steps: int | None = None) -> Reader:
    """The model after training, on new graphs in every step."""
    model = build(task, arm, seed).train()
    steps = STEPS[task] if steps is None else steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the identifiers
        for step in range(steps):
            batch = graphs(task, 32, seed=1000 * seed + step)
            logits = model(batch.structure, batch.marked)
            loss = F.cross_entropy(logits.flatten(0, 1), batch.answers.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def right(model: Reader, batch: Graphs) -> float:
    """The share of nodes with the right answer, in per cent."""
    found = model(batch.structure, batch.marked).argmax(-1)
    scored = batch.answers >= 0
    return round(100 * (found == batch.answers)[scored].double().mean().item(), 1)


def unseen(task: str, size: int = 512, nodes: tuple[int, int] = (FEWEST, MOST)) -> Graphs:
    """The graphs of the scores."""
    return graphs(task, size, seed=10**6, split="validation", nodes=nodes)


def figures(*, quick: bool) -> list[str]:
    """The names of all rows: the guesses, each arm seed by seed, then the longer trainings."""
    seeds = SEEDS[: 1 if quick else None]
    every = [(task, arm) for task in TASKS for arm in (*ARMS, *HIDDEN)]
    return [
        *(f"{task}, guess" for task in TASKS),
        *(f"{task}, {arm}, seed {seed}" for task, arm in every for seed in seeds),
        *(f"{task}, {arm}, {LONG} steps, seed {seed}" for task, arm in LONGER for seed in seeds),
    ]


def row(figure: str, *, quick: bool, threads: int) -> Row:
    """The row of one figure: a training, or the share of the most frequent answer."""
    task, rest = figure.split(", ", 1)
    batch = unseen(task, 16 if quick else 512)
    if rest == "guess":
        answers = batch.answers[batch.answers >= 0]
        often = torch.bincount(answers).max() / len(answers)
        return Row(figure, round(100 * often.item(), 2), "%")
    arm, seed = rest.split(", seed ")
    longer = f", {LONG} steps"
    steps = LONG if arm.endswith(longer) else None
    with thread_count(threads):
        model = train(task, arm.removesuffix(longer), int(seed), steps=2 if quick else steps)
        return Row(figure, right(model, batch), "%")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A row for each figure."""
    for figure in figures(quick=quick):
        yield row(figure, quick=quick, threads=threads)
