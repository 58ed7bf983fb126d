"""Learned paths: a Graph Transformer Network finds the meta-path that decides a label.

Nothing is timed: each row comes from one small model. A graph has 16 authors, 40 papers, 8 venues
and 4 cities, drawn at random, and edges of six kinds. Each venue has one of four fields. The label
of an author is the most frequent field of the venues of its papers, counted along the meta-path

    venue → paper → author

and that of a city the most frequent one along venue → paper → author → city. Authors and cities
have no features. Papers are the distractor: each has a topic, which is written in the same numbers
as a field. With the probability ``agree`` it is the field of the paper's venue, otherwise it is
drawn at random; where it is always random, a path that ends at papers tells nothing.

The model is one GTN layer of one channel and a linear classifier. Choices begin nearly equal, at a
tenth of the layer's own beginning, and learn ten times as fast as the matrices. Rows, for three
seeds: right answers (%) on unseen graphs with random topics, and the weight of the right meta-path.

    author, s choices      s = 1, 2, 3; right are paths of two edges
    city, s choices        s = 2, 3; right are paths of three edges
    author, agree a        s = 2, with topics that agree in training, a = 0.5, 0.9, 1
    author, all kinds alike    the choices stay equal, only matrices are trained
    author, agree 1.0, far apart    with choices that begin as the layer makes them

Lesson 54 draws what

    python -m attnlab.experiments learned_paths --threads 1 --json \
        attnlab/experiments/assets/54_learned_paths.json

has written.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.experiments.grid import SEEDS, percent, seeded
from attnlab.experiments.loop import descend
from attnlab.measure.report import Row
from attnlab.measure.timing import thread_count
from attnlab.mechanisms.structure.gtn import GTN, GTNOptions, meta_paths
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

TRAINING, SPREAD = 200, 0.1
VENUES, PAPERS, AUTHORS, CITIES = 8, 40, 16, 4
FIELDS, DIM = 4, 16
KINDS = (
    *("author → paper", "paper → author", "paper → venue"),
    *("venue → paper", "author → city", "city → author"),
)
PATHS: Mapping[str, tuple[int, ...]] = {"author": (3, 1), "city": (3, 1, 4)}
"""The meta-path that decides the label, by the numbers of its kinds, as it is walked."""
CHOICES: Mapping[str, tuple[int, ...]] = {"author": (1, 2, 3), "city": (2, 3)}
AGREE = (0.5, 0.9, 1.0)


class Libraries(NamedTuple):
    """Graphs, the features of their nodes, and a label at some of them; -100 at all others."""

    x: Tensor  # (b, n, DIM)
    structure: GraphBatch
    labels: Tensor  # (b, n)


def libraries(task: str, size: int, seed: int, agree: float = 0.0) -> Libraries:
    """Nodes are numbered venues, papers, authors, cities. Ties have no label."""
    draw = torch.Generator().manual_seed(seed)
    papers = VENUES + torch.arange(PAPERS)
    authors = VENUES + PAPERS + torch.arange(AUTHORS)
    nodes = VENUES + PAPERS + AUTHORS + CITIES
    x, labels = torch.zeros(size, nodes, DIM), torch.full((size, nodes), -100)
    listed = []
    for row in range(size):
        field = torch.randperm(VENUES, generator=draw) % FIELDS
        venue = torch.randint(VENUES, (PAPERS,), generator=draw)
        writers = torch.rand(PAPERS, AUTHORS, generator=draw).argsort(1)[:, :2]
        home = VENUES + PAPERS + AUTHORS + torch.randint(CITIES, (AUTHORS,), generator=draw)
        other = torch.randint(FIELDS, (PAPERS,), generator=draw)
        agrees = torch.rand(PAPERS, generator=draw) < agree
        topic = torch.where(agrees, field[venue], other)
        x[row, :VENUES, :FIELDS] = F.one_hot(field, FIELDS).float()
        x[row, papers, :FIELDS] = F.one_hot(topic, FIELDS).float()
        written = torch.stack([papers.repeat_interleave(2), authors[writers.flatten()]], 1)
        pairs = [written.flip(1), torch.stack([papers, venue], 1), torch.stack([authors, home], 1)]
        edges = torch.cat([each for pair in pairs for each in (pair, pair.flip(1))])
        lengths = [len(pair) for pair in pairs for _ in range(2)]
        listed.append(Graph(nodes, edges, torch.arange(6).repeat_interleave(torch.tensor(lengths))))
        fields = F.one_hot(field[venue].repeat_interleave(2), FIELDS)
        at = written[:, 1] if task == "author" else home[written[:, 1] - authors[0]]
        counts = torch.zeros(nodes, FIELDS, dtype=torch.long).index_add(0, at, fields)
        best = counts.topk(2, dim=1).values
        labels[row] = counts.argmax(1).where(best[:, 0] > best[:, 1], torch.tensor(-100))
    return Libraries(x, GraphBatch.of(listed), labels)


class Classifier(nn.Module):
    """One layer of one channel, and a linear classifier: (b, n, DIM) → (b, n, FIELDS)."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.paths = GTN(DIM, 1, options=GTNOptions(kinds=len(KINDS), steps=steps))
        self.answer = nn.Linear(DIM, FIELDS)

    def forward(self, x: Tensor, structure: GraphBatch) -> Tensor:
        out: Tensor = self.answer(self.paths(x, structure=structure))
        return out


def build(steps: int, seed: int) -> Classifier:
    """The untrained model."""
    with seeded(seed):
        return Classifier(steps)


class Trained(NamedTuple):
    """A model, and the choices (s, K + 1) before the softmax, each tenth step."""

    model: Classifier
    choices: list[Tensor]


def train(
    task: str, steps: int, seed: int, *, agree: float = 0.0, spread: float = SPREAD,
    training: int = TRAINING,
) -> Trained:  # fmt: skip
    """Trained on new graphs in every step. The choices begin at ``spread`` times those of the
    layer; with 0 all kinds have the same weight, and keep it."""
    model = build(steps, seed)
    choices = model.paths.choices
    with torch.no_grad():
        choices.mul_(spread)
    matrices = [each for each in model.parameters() if each is not choices]
    groups = [{"params": matrices}] + [{"params": [choices], "lr": 0.3}] * (spread > 0)
    kept = [choices[0].detach().clone()]

    def loss(step: int) -> Tensor:
        batch = libraries(task, 4, seed=10_000 * (seed + 1) + step, agree=agree)
        logits = model(batch.x, batch.structure)
        return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())

    def keep(step: int) -> None:
        if step % 10 == 0:
            kept.append(choices[0].detach().clone())

    descend(torch.optim.Adam(groups, lr=0.03), loss, training, after=keep)
    return Trained(model.eval(), kept)


def unseen(task: str, size: int = 64) -> Libraries:
    """The graphs of the scores; their topics are random."""
    return libraries(task, size, seed=7)


@torch.no_grad()
def right(model: Classifier, batch: Libraries) -> float:
    """The share of labelled nodes with the right answer, in per cent."""
    found = model(batch.x, batch.structure).argmax(-1)
    labelled = batch.labels >= 0
    return percent((found == batch.labels)[labelled])


def path_weight(choices: Tensor, path: tuple[int, ...]) -> float:
    """The weight of a meta-path, 0 where there are too few choices for it."""
    return dict(meta_paths(choices)).get(path, 0.0)


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """A score and a weight for each model."""
    arms = [(f"{task}, {s} choices", task, s, 0.0, SPREAD) for task in PATHS for s in CHOICES[task]]
    arms += [(f"author, agree {agree}", "author", 2, agree, SPREAD) for agree in AGREE]
    arms += [("author, agree 1.0, far apart", "author", 2, 1.0, 1.0)]
    arms += [("author, all kinds alike", "author", 2, 0.0, 0.0)]
    with thread_count(threads):
        tests = {task: unseen(task, 2 if quick else 64) for task in PATHS}
        for name, task, s, agree, spread in arms:
            for seed in (0,) if quick else SEEDS:
                training = 2 if quick else TRAINING
                model = train(task, s, seed, agree=agree, spread=spread, training=training).model
                yield Row(f"{name}, seed {seed}", right(model, tests[task]), "%")
                weight = path_weight(model.paths.choices[0], PATHS[task])
                yield Row(f"{name}, weight, seed {seed}", round(weight, 4))
