"""The whole layer of the Graph Transformer, with its normalisations and its stream of edges."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.heads import Heads, check_input, zero_nonfinite_padding
from attnlab.core.options import Size
from attnlab.core.shapes import Tokens, checked
from attnlab.mechanisms.structure.graph_transformer import edges as attend
from attnlab.mechanisms.structure.graph_transformer import products
from attnlab.structures.graph_batch import GraphBatch

Norm = Literal["batch", "layer"]
Stream = Float[Tensor, "... dim"]  # one vector for each of the m edges of the structure


class GraphTransformerLayer(nn.Module):
    """Nodes x (b, n, dim), and with ``edges`` a vector for each edge, (m, dim); both go out.

    After the attention comes a feed-forward layer of width 2 · dim; each has a residual, and after
    that a normalisation: of ``batch`` (over the real nodes, or the edges, of the batch) or of each
    ``layer`` vector. The vectors of the edges gate the attention, and go on as those gated products
    (eq. 8 to 16).
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, edges: bool = False, norm: Norm = "batch"
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads)
        self.nodes = _Residual(dim, norm)
        self.gates = nn.Linear(dim, dim, bias=False) if edges else None
        self.edge_output = nn.Linear(dim, dim) if edges else None
        self.edges = _Residual(dim, norm) if edges else None

    @checked
    def forward(
        self, x: Tokens, e: Stream | None = None, *, structure: GraphBatch | None = None
    ) -> tuple[Tokens, Stream | None]:
        """The nodes and the edges one layer on; padding comes out as zeros."""
        structure = GraphBatch.fitting(structure, x, None)
        x = zero_nonfinite_padding(x, structure.padding)
        q, k, v = self.heads.project(x)
        gates = self._gates(e, structure)
        mixed = self.heads.merge(attend(q, k, v, structure=structure, gates=gates))
        if self.edge_output is not None and self.edges is not None:
            scores = products(q, k, structure, gates).to(x.dtype)
            e = self.edges(e, self.edge_output(scores.flatten(1)), None)
        return self.nodes(x, mixed, structure.padding), e

    def _gates(self, e: Tensor | None, structure: GraphBatch) -> Tensor | None:
        if self.gates is None:
            if e is not None:
                raise ValueError("this layer has no stream of edges; build it with edges=True")
            return None
        if e is None:
            raise ValueError(
                "this layer was built with edges=True: give `e`, a vector (m, dim) for each edge"
            )
        check_input(e, "e", self.heads.dim, self.gates.weight)
        made: Tensor = self.gates(e)
        return made.unflatten(-1, (self.heads.heads, -1))


class _Residual(nn.Module):
    """What follows the attention: x plus what was mixed, the feed-forward layer, two norms."""

    def __init__(self, dim: int, norm: Norm) -> None:
        super().__init__()
        kinds = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.norms = nn.ModuleList(kinds[norm](dim) for _ in range(2))
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x: Tensor, mixed: Tensor, real: Bool[Tensor, "b n"] | None) -> Tensor:
        at = slice(None) if real is None else real
        rows = (x + mixed)[at]
        if self.training and isinstance(self.norms[0], nn.BatchNorm1d) and len(rows) == 1:
            raise ValueError(
                'norm="batch" needs at least two nodes or edges in a batch in training; take '
                'norm="layer"'
            )
        rows = self.norms[0](rows)
        rows = self.norms[1](rows + self.feed_forward(rows))
        if real is None:
            return rows
        return torch.zeros_like(x).masked_scatter(real[..., None], rows)
