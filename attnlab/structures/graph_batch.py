"""A batch of graphs as tensors: what a layer is told beside its sequence of tokens.

Every token of a sequence is a node of its graph; shorter graphs are padded. All edges of the batch
stand in one list, so that what a layer does for each edge costs as much as there are edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.structures.edge_sums import Edges
from attnlab.structures.graph import Graph
from attnlab.structures.structure import Structure, cached

EXAMPLE_FEATURES = 2
"""How many features the edges of an example have."""


@dataclass(frozen=True, eq=False)
class GraphBatch(Structure):
    """b graphs of up to n nodes and up to c edges each, with m edges in all, made by ``of``.

    The tokens of a batch are counted in one row, 0 … b · n - 1: node i of graph r is r · n + i.
    Edges are ordered by their target, then by their source; what a target attends to is the sources
    of the edges that lead to it.
    """

    padding: Bool[Tensor, "b n"]  # True = a node
    sources: Int[Tensor, "m"]
    targets: Int[Tensor, "m"]
    kinds: Int[Tensor, "m"]
    features: Float[Tensor, "m f"]  # f may be 0
    edge_padding: Bool[Tensor, "b c"]  # True = an edge, where edges are tokens themselves
    places: Int[Tensor, "m"]  # of each edge among those b · c

    missing = "the graphs of the sequences are missing: give structure=GraphBatch.of(graphs)"

    @classmethod
    def of(cls, graphs: Sequence[Graph], length: int | None = None) -> "GraphBatch":
        """Graph r is row r. With ``length`` every row has so many tokens, otherwise as many as the
        largest graph has nodes."""
        _check_graphs(graphs)
        largest = max(graph.nodes for graph in graphs)
        length = largest if length is None else check_integer("length", length, at_least=1)
        if largest > length:
            index = next(i for i, graph in enumerate(graphs) if graph.nodes > length)
            raise ValueError(
                f"graph {index} has {graphs[index].nodes} nodes, which is more than length={length}"
            )
        nodes = torch.tensor([graph.nodes for graph in graphs])
        return cls._ordered(
            torch.arange(length) < nodes[:, None],
            torch.cat([graph.edges + row * length for row, graph in enumerate(graphs)]),
            torch.cat([graph.kinds for graph in graphs]),
            torch.cat([graph.features for graph in graphs]),
        )

    @classmethod
    def _ordered(
        cls, padding: Tensor, edges: Tensor, kinds: Tensor, features: Tensor
    ) -> "GraphBatch":
        """From edges (m, 2) between tokens counted in one row."""
        b, n = padding.shape
        sources, targets = edges.unbind(1)
        order = (targets * max(b * n, 1) + sources).argsort(stable=True)
        sources, targets = sources[order], targets[order]
        row = targets // max(n, 1)
        counts = torch.bincount(row, minlength=b)
        most = int(counts.max()) if b else 0
        first = counts.cumsum(0) - counts
        places = row * most + torch.arange(len(row), device=row.device) - first[row]
        edge_padding = torch.arange(most, device=row.device) < counts[:, None]
        return cls(padding, sources, targets, kinds[order], features[order], edge_padding, places)

    @classmethod
    def example(cls, padding: Bool[Tensor, "b n"]) -> "GraphBatch":
        """Over the tokens that ``padding`` marks a path in both directions, of kind 0, and an edge
        from the i-th to the (2i + 1)-th, of kind 1: two edges lead from the first to the second.
        """
        b, n = padding.shape
        device = padding.device
        edges, kinds, features = [], [], []
        for row in range(b):
            places = row * n + padding[row].nonzero().squeeze(1)
            first = torch.arange(max(len(places) - 1, 0), device=device)
            half = torch.arange(len(places) // 2, device=device)
            path = torch.stack((first, first + 1, first + 1, first), 1).view(-1, 2)
            pairs = torch.cat((path, torch.stack((half, 2 * half + 1), 1)))
            kind = (torch.arange(len(pairs), device=device) >= len(path)).long()
            edges.append(places[pairs])
            kinds.append(kind)
            i, j = pairs.double().unbind(1)
            features.append(torch.stack((0.5 + kind, 1 / (1 + i % 3 + j % 2)), 1))
        none = torch.zeros(0, 2, dtype=torch.long, device=device)
        return cls._ordered(
            padding,
            torch.cat([none, *edges]),
            torch.cat([none[:, 0], *kinds]),
            torch.cat([none.double(), *features]).to(torch.get_default_dtype()),
        )

    def read_features(self, count: int) -> Float[Tensor, "m f"]:
        """The features of the edges, for a layer that reads ``count`` of each; ValueError if there
        are not so many."""
        found = self.features.shape[1]
        if found != count:
            raise ValueError(
                f"the edges of the structure have {found} features, but this layer was built with "
                f"edge_features={count}"
            )
        return self.features

    def __repr__(self) -> str:
        b, n = self.padding.shape
        return f"<GraphBatch of {b} graphs of up to {n} nodes, {len(self.sources)} edges in all>"

    def __getitem__(self, rows: slice) -> "GraphBatch":
        b, n = self.padding.shape
        kept = torch.arange(b, device=self.padding.device)[rows]
        new = kept.new_full((b,), -1)
        new[kept] = torch.arange(len(kept), device=kept.device)
        row = new[self.targets // max(n, 1)]
        own = row >= 0
        ends = torch.stack([self.sources, self.targets], 1)[own]
        moved = ends % max(n, 1) + row[own, None] * n
        return self._ordered(self.padding[rows], moved, self.kinds[own], self.features[own])

    def graph(self, row: int) -> Graph:
        """Graph ``row`` alone, its nodes numbered as they stand, padding left out."""
        own = self[row : row + 1] if row >= 0 else self[row : row + 1 or None]
        if len(own) != 1:
            raise ValueError(f"there are {len(self)} graphs, got row {row}")
        number = own.padding[0].cumsum(0) - 1
        edges = number[torch.stack([own.sources, own.targets], 1)]
        return Graph(int(own.padding.sum()), edges, own.kinds, own.features)

    def pooled(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b dim"]:
        """The mean over the nodes; zeros where all is padding."""
        real = self.padding[..., None]
        return x.masked_fill(~real, 0).sum(1) / real.sum(1).clamp(min=1)

    # ---- all pairs of nodes

    @cached
    def counts(self) -> Int[Tensor, "b n n"]:
        """How many edges lead to the first node from the second."""
        b, n = self.padding.shape
        ones = torch.ones_like(self.targets)
        return ones.new_zeros(b * n * n).index_add(0, self._pairs, ones).view(b, n, n)

    @cached
    def slots(self) -> Int[Tensor, "b n n r"]:
        """Which edges lead to the first node from the second, of which there are up to r; -1 where
        there are fewer."""
        b, n = self.padding.shape
        pairs = self._pairs
        index = torch.arange(len(pairs), device=pairs.device)
        repeats = index - torch.searchsorted(pairs, pairs)
        most = int(repeats.max()) + 1 if len(pairs) else 1
        found = index.new_full((b * n * n, most), -1)
        found[pairs, repeats] = index
        return found.view(b, n, n, most)

    def spread(self, values: Float[Tensor, "m h"]) -> Float[Tensor, "b h n n"]:
        """On all pairs, what the edges that lead to the first node from the second have in all."""
        b, n = self.padding.shape
        total = values.new_zeros(b * n * n, values.shape[1]).index_add(0, self._pairs, values)
        return total.view(b, n, n, values.shape[1]).permute(0, 3, 1, 2)

    @property
    def _pairs(self) -> Int[Tensor, "m"]:
        """The index of each edge's pair among all b · n · n pairs, in ascending order."""
        n = self.padding.shape[1]
        return self.targets * n + self.sources % max(n, 1)

    # ---- sums over the edges that lead to a node

    def summed(self, values: Float[Tensor, "m ..."]) -> Float[Tensor, "bn ..."]:
        """For each of the b · n tokens the sum of what the edges that lead to it have."""
        total = values.new_zeros(self.padding.numel(), *values.shape[1:])
        return total.index_add(0, self.targets, values)

    @cached
    def by_ends(self) -> Edges:
        """The edges as ``edge_sums.products`` and ``edge_sums.collected`` take them."""
        return Edges.of(self.targets, self.sources, self.padding.numel())

    def softmax(self, scores: Float[Tensor, "m h"]) -> Float[Tensor, "m h"]:
        """Weights that sum to 1 over the edges that lead to the same node."""
        index = self.targets[:, None].expand_as(scores)
        largest = scores.new_full((self.padding.numel(), scores.shape[1]), -torch.inf)
        largest = largest.scatter_reduce(0, index, scores.detach(), "amax")
        powers = torch.exp(scores - largest.index_select(0, self.targets))
        return powers / self.summed(powers).index_select(0, self.targets)


def _check_graphs(graphs: Sequence[Graph]) -> None:
    if not isinstance(graphs, Sequence) or not all(isinstance(each, Graph) for each in graphs):
        raise TypeError(
            "graphs should be a list of Graph (of networkx: Graph.of_networkx, of PyTorch "
            f"Geometric: Graph.of_data), got {graphs!r}"
        )
    if not graphs:
        raise ValueError("a batch of graphs has at least one graph, got none")
    widths = [graph.features.shape[1] for graph in graphs]
    if len(set(widths)) > 1:
        other = next(i for i, width in enumerate(widths) if width != widths[0])
        raise ValueError(
            "the edges of a batch have equally many features, but those of graph 0 have "
            f"{widths[0]} and those of graph {other} {widths[other]}"
        )
    dtypes = {graph.features.dtype for graph in graphs}
    if len(dtypes) > 1:
        raise ValueError(
            "the features of a batch have one dtype, but those of these graphs have "
            f"{', '.join(sorted(map(str, dtypes)))}"
        )
