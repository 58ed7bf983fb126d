"""Maps, weights of edges, a recording or a model, as weights of pairs of nodes.

A pair is a node that attends (the target of an edge) and one that it attends to (the source).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnlab.core.arrays import numbers
from attnlab.core.modes import mode
from attnlab.lens.sources.layers import layers_of
from attnlab.lens.watch import watch
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch

MOST_NODES, MOST_WEIGHTS = 500, 100_000
LEVELS = 65_535
"""Weights are sent in steps of 1 / 65,535."""
_LEAST = 1e-6
"""A pair without an edge counts as attended to from this weight on."""
_AXES = (
    "give weights (layers, heads, {n}, {n}), or (layers, heads, {m}) with one for each of the "
    "{m} edges"
)


@dataclass(frozen=True)
class Attended:
    """The pairs (P, 2), ordered by target and source, and of each layer the weights (h, P), in
    steps of 1 / 65,535; ``titles`` name the layers. Without weights there are no layers."""

    n: int
    pairs: NDArray[np.int64]
    layers: list[NDArray[np.uint16]]
    titles: list[str]

    def weights(self, layer: int, head: int | None) -> NDArray[np.float64]:
        """(P,) of one head, or the mean of all."""
        found = self.layers[layer] / LEVELS
        mean: NDArray[np.float64] = found.mean(0) if head is None else found[head]
        return mean


def attended(graph: Graph, weights: Any, batch: int) -> Attended:
    """The pairs of the edges, and those that a layer gives weight to without an edge."""
    own = graph.edges[:, 1].numpy() * graph.nodes + graph.edges[:, 0].numpy()
    maps: list[Any] = []
    titles: list[str] = []
    if weights is None:
        places = np.unique(own)
    elif _is_per_edge(weights, graph):
        places, maps = _of_edges(weights, own)
        titles = [f"layer {at}" for at in range(len(maps))]
    else:
        places, maps, titles = _of_pairs(weights, own, graph, batch)
    count = sum(map(np.size, maps))
    if count > MOST_WEIGHTS:
        raise ValueError(
            f"there are {count:,} weights, more than the {MOST_WEIGHTS:,} that a saved notebook "
            f"should hold; give fewer layers or heads, each of which has {len(places):,}"
        )
    for title, one in zip(titles, maps, strict=True):
        _check_range(title, one)
    coded = [np.rint(np.clip(one, 0, 1) * LEVELS).astype("<u2") for one in maps]
    return Attended(graph.nodes, np.stack(np.divmod(places, graph.nodes), 1), coded, titles)


def recorded(model: nn.Module, graph: Graph, inputs: Any) -> Any:
    """What the model attends to in this graph: a recording of ``attnlab.watch``."""
    if not isinstance(inputs, Tensor) or inputs.ndim not in (1, 2) or len(inputs) != graph.nodes:
        shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ValueError(
            f"`inputs` should be what the model reads at the {graph.nodes} nodes, tokens (n,) or "
            f"vectors (n, dim), got {shape}"
        )
    with mode(model, training=False), torch.no_grad(), watch(model) as seen:
        model(inputs[None], structure=GraphBatch.of([graph]))
    if not seen:
        raise ValueError(
            f"no attention was recorded in {type(model).__name__}; give its weights, (layers, "
            "heads, n, n)"
        )
    return seen


def _is_per_edge(weights: Any, graph: Graph) -> bool:
    shape = tuple(getattr(weights, "shape", ()))
    square = shape[1:] == (graph.nodes, graph.nodes)
    return len(shape) == 3 and shape[-1] == len(graph.edges) and not square


def _of_edges(weights: Any, own: NDArray[np.int64]) -> tuple[Any, list[Any]]:
    """The weights of the edges; those of parallel edges are summed."""
    given = numbers("weights", weights, "layers heads m")
    places, which = np.unique(own, return_inverse=True)
    maps = np.zeros((len(places), *given.shape[:2]))
    np.add.at(maps, which, np.moveaxis(given, -1, 0))
    return places, list(np.moveaxis(maps, 0, -1))


def _of_pairs(
    weights: Any, own: NDArray[np.int64], graph: Graph, batch: int
) -> tuple[Any, list[Any], list[str]]:
    found = list(layers_of(weights, batch))
    titles = [one.title or f"layer {at}" for at, one in enumerate(found)]
    maps = [_of_nodes(each, one.maps, graph) for each, one in zip(titles, found, strict=True)]
    attends = [np.flatnonzero((one > _LEAST).any(0)) for one in maps]
    places = np.unique(np.concatenate([own, *attends]))
    return places, [one.reshape(len(one), -1)[:, places] for one in maps], titles


def _of_nodes(title: str, maps: NDArray[np.float32], graph: Graph) -> NDArray[np.float32]:
    """The part (h, n, n) between nodes. Tokens of TokenGT are the graph, the nodes, the edges; what
    pads a graph in a batch has no weight."""
    n, m = graph.nodes, len(graph.edges)
    rows, columns = maps.shape[1:]
    if columns == 1 + n + m and rows in (n, columns):
        first = 0 if rows == n else 1
        return maps[:, first : first + n, 1 : 1 + n]
    beyond = np.concatenate([maps[:, n:].ravel(), maps[:, :, n:].ravel()])
    if min(rows, columns) >= n and (np.abs(beyond) <= _LEAST).all():
        return maps[:, :n, :n]
    raise ValueError(
        f"the weights of {title} are {rows} × {columns}, but the graph has {n} nodes; "
        f"{_AXES.format(n=n, m=m)}"
    )


def _check_range(title: str, maps: Any) -> None:
    if maps.size and (maps.min() < -1e-6 or maps.max() > 1.001):
        wrong = maps.min() if maps.min() < -1e-6 else maps.max()
        raise ValueError(
            f"weights should be from 0 to 1, as a softmax gives them; in {title} there is {wrong:g}"
        )
