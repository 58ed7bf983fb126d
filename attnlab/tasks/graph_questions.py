"""Questions about generated graphs, whose answers are exact.

    distance     how many edges is each node away from the marked one?
    triangles    how many triangles has the graph?
    rings        of how many rings does the graph consist?

The graphs have no directions, so each edge stands in both. Those of the first two questions are
like small molecules: a random tree, in which no node has more than three neighbours, and a few more
edges. Those of the third are rings alone, such as one ring of nine nodes, or one of four and one of
five. Every node of a ring has two neighbours. If all nodes begin with the same vector, a layer that
averages over neighbours gives all of them the same vector again, whatever the rings are. Xu, Hu,
Leskovec and Jegelka, "How Powerful are Graph Neural Networks?", ICLR 2019, arXiv:1810.00826, prove
that no network that collects the vectors of neighbours tells such graphs apart.

Tokens say nothing about the structure: 0 is a node, 1 the marked one. Nodes are numbered at random.
The edges decide the split; the same graph with its nodes numbered otherwise may be in the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np
import torch

from attnlab.core.suggest import check_choice
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.sequences import in_split

QUESTIONS = ("distance", "triangles", "rings")
MOST_NEIGHBOURS = 3  # of a node of the tree, before more edges are added
SMALLEST_RING = 3

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class GraphQuestions(Task):
    """Graphs of `fewest` to `nodes` nodes; answers up to `most`, which are the classes.

    "distance" is a question about each node (`kind` "token_classifier"): its target is its
    distance from the marked node, unscored where that is 0 or more than `most`. The others are
    questions about the graph (`kind` "classifier"), and all their answers are equally frequent.

    Args:
        question: "distance", "triangles" or "rings".
        nodes: the most nodes of a graph; at least 3 for each ring.
        fewest: the fewest nodes.
        most: the largest answer.
    """

    question: str = "distance"
    nodes: int = 18
    fewest: int = 12
    most: int = 4
    name: ClassVar[str] = "graph_questions"
    vocab: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_choice("question", self.question, QUESTIONS)
        self._check_sizes(nodes=7, fewest=7, most=2)
        if self.nodes < self.fewest:
            raise ValueError(f"nodes={self.nodes} should be at least fewest={self.fewest}")
        room = {"distance": self.fewest - 1, "triangles": self.fewest // 3}
        largest = room.get(self.question, self.fewest // SMALLEST_RING)
        if self.most > largest:
            raise ValueError(
                f"most should be at most {largest} with fewest={self.fewest}, so that the smallest "
                f"graph has room, got {self.most}"
            )

    @property
    def kind(self) -> str:
        return "token_classifier" if self.question == "distance" else "classifier"

    @property
    def length(self) -> int:
        return self.nodes

    @property
    def classes(self) -> int:
        return self.most if self.question == "rings" else self.most + 1

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        random = Random(int(generator.integers(2**63)))
        drawn: list[tuple[int, Pairs, int]] = []
        while len(drawn) < size:
            nodes, pairs, answer = self._sample(random)
            content = [nodes, *(end for pair in pairs for end in pair)]
            if in_split(np.array([content]), split)[0]:
                drawn.append((nodes, pairs, answer))
        graphs = [Graph(nodes, _both_ways(pairs)) for nodes, pairs, _ in drawn]
        structure = GraphBatch.of(graphs)
        inputs = torch.zeros(structure.padding.shape, dtype=torch.long)
        answers = [answer for *_, answer in drawn]
        if self.question != "distance":
            return Batch(inputs, torch.tensor(answers), structure.padding, structure=structure)
        targets = torch.full_like(inputs, UNSCORED)
        for row, (graph, start) in enumerate(zip(graphs, answers, strict=True)):
            inputs[row, start] = 1
            targets[row, : graph.nodes] = torch.tensor(distances(graph, start))
        targets[(targets < 1) | (targets > self.most)] = UNSCORED
        return Batch(inputs, targets, structure.padding, structure=structure)

    def _sample(self, random: Random) -> tuple[int, Pairs, int]:
        """Nodes, edges each once, and the marked node or the class."""
        nodes = random.randint(self.fewest, self.nodes)
        if self.question == "rings":
            answer = random.randrange(self.classes)
            return nodes, _numbered(_rings(nodes, answer + 1, random), nodes, random), answer
        if self.question == "distance":
            pairs = _molecule(nodes, random.randint(1, 3), random)
            return nodes, _numbered(pairs, nodes, random), random.randrange(nodes)
        answer = random.randrange(self.classes)
        while True:
            pairs = _molecule(nodes, random.randint(0, 2), random, triangles=answer)
            if _triangles(_neighbours(nodes, _both_ways(pairs))) == answer:
                return nodes, _numbered(pairs, nodes, random), answer

    def _describe(self, batch: Batch) -> Example:
        graph = batch.structure.graph(0)
        pairs = ", ".join(f"{u}-{v}" for u, v in graph.edges.tolist() if u < v)
        marked = batch.inputs[0].tolist()
        tokens = ["marked" if token else "node" for token in marked]
        listed = f"A graph of {graph.nodes} nodes with the edges {pairs}."
        if self.question == "distance":
            labels = ["" if x == UNSCORED else str(x) for x in batch.targets[0].tolist()]
            answers = ", ".join(f"{i}: {x}" for i, x in enumerate(labels) if x)
            return Example(
                title=f"Distances from node {marked.index(1)}",
                description=f"{listed} The distances from node {marked.index(1)}: {answers}.",
                tokens=tokens,
                labels=labels,
            )
        count = int(batch.targets[0]) + (self.question == "rings")
        unit = self.question[:-1] + "s" * (count != 1)
        return Example(
            title=f"A graph of {count} {unit}",
            description=f"{listed} It has {count} {unit}.",
            tokens=tokens,
            labels=[str(count)],
        )


# ---- the exact answers


def distances(graph: Graph, start: int) -> list[int]:
    """The number of edges on a shortest path from ``start`` to each node; -1 where none leads."""
    neighbours = _neighbours(graph.nodes, graph.edges.tolist())
    away = [-1] * graph.nodes
    front, step = {start}, 0
    while front:
        for node in front:
            away[node] = step
        front = {v for node in front for v in neighbours[node] if away[v] < 0}
        step += 1
    return away


def triangles(graph: Graph) -> int:
    """How many sets of three nodes are all joined to each other, in a graph without directions."""
    return _triangles(_neighbours(graph.nodes, graph.edges.tolist()))


def _triangles(neighbours: list[set[int]]) -> int:
    return sum(
        len([w for w in neighbours[u] & neighbours[v] if w > v])
        for u in range(len(neighbours))
        for v in neighbours[u]
        if v > u
    )


def _neighbours(nodes: int, edges: Iterable[Sequence[int]]) -> list[set[int]]:
    """Where the edges from each node lead."""
    found: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in edges:
        found[source].add(target)
    return found


# ---- the graphs


def _molecule(nodes: int, more: int, random: Random, triangles: int = 0) -> Pairs:
    """A random tree, ``more`` edges and ``triangles`` more that close a path of two edges."""
    neighbours: list[set[int]] = [set() for _ in range(nodes)]

    def join(u: int, v: int) -> None:
        neighbours[u].add(v)
        neighbours[v].add(u)

    for node in range(1, nodes):
        free = [v for v in range(node) if len(neighbours[v]) < MOST_NEIGHBOURS]
        join(random.choice(free), node)
    for kind in ["triangle"] * triangles + ["any"] * more:
        middle = random.randrange(nodes)
        ends = sorted(neighbours[middle]) if kind == "triangle" else range(nodes)
        u, v = random.choice(ends), random.choice(ends)
        if u != v:
            join(u, v)
    return [(u, v) for u in range(nodes) for v in sorted(neighbours[u]) if u < v]


def _rings(nodes: int, count: int, random: Random) -> Pairs:
    """``count`` rings of at least three nodes, of ``nodes`` in all."""
    free = nodes - SMALLEST_RING * count
    cuts = sorted(random.randint(0, free) for _ in range(count - 1))
    sizes = [b - a + SMALLEST_RING for a, b in zip([0, *cuts], [*cuts, free], strict=True)]
    pairs, first = [], 0
    for size in sizes:
        ring = range(first, first + size)
        pairs += [(node, first + (node - first + 1) % size) for node in ring]
        first += size
    return pairs


def _both_ways(pairs: Pairs) -> Pairs:
    return [*pairs, *((v, u) for u, v in pairs)]


def _numbered(pairs: Sequence[tuple[int, int]], nodes: int, random: Random) -> Pairs:
    """The edges with the nodes numbered at random, in ascending order, the smaller end first."""
    new = random.sample(range(nodes), nodes)
    return sorted((min(new[u], new[v]), max(new[u], new[v])) for u, v in pairs)
