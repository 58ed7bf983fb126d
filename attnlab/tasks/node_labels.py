"""Labels of the nodes of a real graph: some are shown, the others are to be found from the edges.

    imports      modules of Python's standard library, joined where one imports the other
                 (`attnlab.tasks.import_graph`): in which package is a module? Packages of fewer
                 than four modules, and modules of none, have no label
    calls        functions of some of its modules, joined where one calls the other
                 (`attnlab.tasks.call_graph`): is a function public, private (its own name begins
                 with `_`) or special, which Python calls (`__init__`)? Nearly half of the edges
                 join different labels, so the direction of calls tells more than a vote of the
                 neighbours
    karate_club  34 members of a karate club, joined by how often they met: in which of the two
                 clubs was a member after the split? W. W. Zachary, "An Information Flow Model for
                 Conflict and Fission in Small Groups", Journal of Anthropological Research, 1977
    miserables   77 characters of "Les Misérables", joined by the chapters that they share: to which
                 community does a character belong? D. E. Knuth, "The Stanford GraphBase", 1993. The
                 communities are no facts of the novel: they are those that A. Clauset, M. Newman
                 and C. Moore's greedy modularity finds in the whole graph (Physical Review E, 2004)

The last two come with networkx, which has to be installed.

**The split is by nodes.** There is one graph, and every row is the whole of it. A quarter of the
nodes of each label, chosen by a hash of their names, belongs to validation; their labels are never
shown and never scored in training. In each row a random half of the other labels is shown. In
training the other half is to be found, in validation the quarter.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.suggest import check_choice
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.tasks import UNSCORED, Batch, Example, Task
from attnlab.tasks.call_graph import calls
from attnlab.tasks.import_graph import imports
from attnlab.tasks.sequences import display_names
from attnlab.tasks.standard_library import NamedGraph

GRAPHS = ("imports", "calls", "karate_club", "miserables")
FEWEST_MODULES = 4
FUNCTIONS = ("public", "private", "special")
"""The labels of "calls"."""
HIDDEN = "?"
_VALIDATION = 4  # of the nodes of a label one in so many


class Labelled(NamedTuple):
    """A graph, the names of its nodes, their labels (n,), -1 where a node has none, and what the
    labels are called."""

    graph: Graph
    nodes: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class NodeLabels(Task):
    """Tokens (b, n): 0 where no label is shown, otherwise the label plus 1; targets are labels.

    Edges stand in both directions. Those of "imports" and "calls" have the kind 0 from the module
    that imports, or the function that calls, and 1 back, and two features that say the same; those
    of the others have one feature, how often the two met. In "calls" a function that calls itself
    has one loop, of kind 0.

    Args:
        graph: "imports", "calls", "karate_club" or "miserables".
    """

    graph: str = "imports"
    name: ClassVar[str] = "node_labels"
    kind: ClassVar[str] = "token_classifier"

    def __post_init__(self) -> None:
        check_choice("graph", self.graph, GRAPHS)

    @property
    def labelled(self) -> Labelled:
        """The graph with all labels."""
        return _LOADERS[self.graph]()

    @property
    def length(self) -> int:
        return self.labelled.graph.nodes

    @property
    def vocab(self) -> int:
        return 1 + self.classes

    @property
    def classes(self) -> int:
        return len(self.labelled.classes)

    @property
    def for_validation(self) -> np.ndarray:
        """True at the nodes (n,) whose labels are kept for validation."""
        return _for_validation(self.labelled)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The labels that are shown; `?` where none is."""
        return display_names(ids, [HIDDEN, *self.labelled.classes])

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        labels, kept = np.array(self.labelled.labels), self.for_validation
        known = np.flatnonzero((labels >= 0) & ~kept)
        order = np.argsort(generator.random((size, len(known))), axis=1)
        shown = known[order[:, : len(known) // 2]]
        asked = known[order[:, len(known) // 2 :]]
        if split == "validation":
            asked = np.broadcast_to(np.flatnonzero(kept), (size, kept.sum()))
        inputs = np.zeros((size, len(labels)), dtype=np.int64)
        targets = np.full_like(inputs, UNSCORED)
        rows = np.arange(size)[:, None]
        inputs[rows, shown] = labels[shown] + 1
        targets[rows, asked] = labels[asked]
        structure = GraphBatch.of([self.labelled.graph] * size)
        return Batch(from_numpy(inputs), from_numpy(targets), structure=structure)

    def _describe(self, batch: Batch) -> Example:
        tokens, targets = self.tokens(batch.inputs[0]), batch.targets[0].tolist()
        classes = self.labelled.classes
        labels = ["" if label == UNSCORED else classes[label] for label in targets]
        shown = sum(token != HIDDEN for token in tokens)
        first = next(place for place, label in enumerate(labels) if label)
        return Example(
            title=f"{self.graph}: {shown} labels shown",
            description=f"Of {len(tokens)} nodes {shown} show their label, and those of "
            f"{sum(map(bool, labels))} others are to be found; that of "
            f"{self.labelled.nodes[first]} is {labels[first]}.",
            tokens=tokens,
            labels=labels,
        )


# ---- the graphs


@lru_cache
def _imports() -> Labelled:
    found = imports()
    members = defaultdict(list)
    for module in found.names:
        members[module.partition(".")[0]].append(module)
    classes = tuple(name for name, own in members.items() if len(own) >= FEWEST_MODULES)
    number = {name: index for index, name in enumerate(classes)}
    labels = tuple(number.get(module.partition(".")[0], -1) for module in found.names)
    return Labelled(_and_back(found), found.names, labels, classes)


@lru_cache
def _calls() -> Labelled:
    found = calls()
    labels = tuple(FUNCTIONS.index(_function_label(name)) for name in found.names)
    return Labelled(_and_back(found), found.names, labels, FUNCTIONS)


def _function_label(name: str) -> str:
    own = name.rpartition(".")[2]
    if own.startswith("__") and own.endswith("__"):
        return "special"
    return "private" if own.startswith("_") else "public"


def _and_back(found: NamedGraph) -> Graph:
    """With each edge in both directions, which their kinds and features tell apart."""
    back = [(v, u) for u, v in found.pairs if u != v]
    kinds = [0] * len(found.pairs) + [1] * len(back)
    features = [[1.0 - kind, float(kind)] for kind in kinds]
    return Graph(len(found.names), [*found.pairs, *back], kinds, features)


@lru_cache
def _karate_club() -> Labelled:
    found = _networkx().karate_club_graph()
    clubs = tuple(sorted(set(dict(found.nodes(data="club")).values())))
    labels = tuple(clubs.index(club) for _, club in found.nodes(data="club"))
    graph = Graph.of_networkx(found, features=("weight",))
    return Labelled(graph, tuple(f"member {node + 1}" for node in found), labels, clubs)


@lru_cache
def _miserables() -> Labelled:
    networkx = _networkx()
    found = networkx.les_miserables_graph()
    communities = networkx.community.greedy_modularity_communities(found, weight="weight")
    classes = tuple(max(own, key=lambda node: (found.degree(node), node)) for own in communities)
    of = {node: label for label, own in enumerate(communities) for node in own}
    graph = Graph.of_networkx(found, features=("weight",))
    labels = tuple(of[node] for node in found)
    return Labelled(graph, tuple(found), labels, tuple(f"that of {name}" for name in classes))


_LOADERS = {
    "imports": _imports,
    "calls": _calls,
    "karate_club": _karate_club,
    "miserables": _miserables,
}


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError(
            "this graph comes with networkx, which is not installed; install it with "
            '`pip install networkx`, or take graph="imports" or "calls"'
        ) from error
    return networkx


@lru_cache
def _for_validation(labelled: Labelled) -> np.ndarray:
    kept = np.zeros(labelled.graph.nodes, dtype=bool)
    for label in range(len(labelled.classes)):
        own = [place for place, found in enumerate(labelled.labels) if found == label]
        own.sort(key=lambda place: sha256(labelled.nodes[place].encode()).digest())
        kept[own[: len(own) // _VALIDATION]] = True
    return kept
