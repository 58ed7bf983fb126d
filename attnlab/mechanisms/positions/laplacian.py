r"""Laplacian positions: a node is told where it stands in its graph.

On a line, positions are waves of several lengths. On a graph, waves are the eigenvectors of its
Laplacian: the slowest ones change least along the edges. The first k, without those of eigenvalue 0
(one for each component, ``attnlab.structures.laplacian``), give each node i a row $\lambda_i$ of k
numbers, which is added to its vector:

$$x_i \leftarrow x_i + C \lambda_i + c$$

Numbering the nodes anew moves the rows with the nodes, but an eigenvector has no sign of its own:
in training each is multiplied by 1 or -1, drawn for each graph at every call, so that the layers
learn not to depend on it. With ``basis`` the eigenvectors of a repeated eigenvalue, which are known
up to a rotation only, are rotated among themselves at random, too; this takes a solver's step on
the processor for each graph.

Cost: $2 n k$ dim FLOPs; the eigenvectors are found once for each batch of graphs, and kept with it.

``naive``  the equation.

The paper's letters: our C and c are its $C^0$ and $c^0$, our k the same.

The released code, not followed here, drops the first eigenvector alone, so that a graph of several
components keeps eigenvectors of eigenvalue 0; it asks a solver for matrices that are not symmetric;
a node without edges divides by zero. What a graph of few nodes lacks of k eigenvectors is zero.

Departures.
- all eigenvectors of eigenvalue 0 are dropped, of which each component has one
- a node without edges is a component of its own

Dwivedi, Bresson. A Generalization of Transformer Networks to Graphs. AAAI Workshop on Deep Learning
on Graphs 2021, arXiv:2012.09699, section 2.2 and equation 2.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import check_input
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.shapes import Tokens, checked
from attnlab.structures.graph_batch import GraphBatch
from attnlab.structures.laplacian import eigenvectors, spectrum


@dataclass(frozen=True, kw_only=True)
class LaplacianOptions(Options):
    """The eigenvectors that are added.

    ``count``  k, how many.
    ``basis``  whether the basis of a repeated eigenvalue is drawn at random in training, beside the
               signs.
    """

    count: Size = 8
    basis: bool = False


# ---- naive


@form
def naive(
    x: Tokens, weight: Float[Tensor, "k dim"], bias: Float[Tensor, "dim"], *,
    structure: GraphBatch, vectors: Float[Tensor, "b n k"] | None = None,
) -> Tokens:  # fmt: skip
    """Each node with its rows added (eq. 2); ``vectors`` are those of the structure's Laplacian,
    with other signs or in another basis where they are given."""
    structure.check_fits(x.shape[0], x.shape[1], x.device)
    if vectors is None:
        vectors = eigenvectors(structure, len(weight))
    return x + vectors.to(x.dtype) @ weight + bias


FORMS = {"naive": naive}

# ---- module


class LaplacianPositions(Layer):
    """Adds to each node (b, n, dim) its rows of the first eigenvectors."""

    @checked
    def __init__(self, dim: Size, options: LaplacianOptions = LaplacianOptions()) -> None:
        super().__init__()
        self.dim, self.options = dim, options
        self.weight = nn.Parameter(torch.randn(options.count, dim) * 0.02)
        self.bias = nn.Parameter(torch.zeros(dim))

    @checked
    def forward(self, x: Tokens, *, structure: GraphBatch | None = None) -> Tokens:
        """The vectors of the nodes of graphs, with their positions."""
        structure = GraphBatch.fitting(structure, x, None)
        check_input(x, "x", self.dim, self.weight)
        vectors = self._drawn(structure) if self.training else None
        vectors = None if vectors is None else vectors.to(x.dtype)
        return naive(x, self.weight, self.bias, structure=structure, vectors=vectors)

    def _drawn(self, structure: GraphBatch) -> Tensor:
        count = self.options.count
        if self.options.basis:
            return spectrum(structure, count).turned()
        signs = torch.randint(2, (len(structure), 1, count), device=structure.padding.device)
        return eigenvectors(structure, count) * (signs * 2 - 1)


# ---- card

n, k, dim = letters("n k dim")

CARD = Card(
    __doc__,
    name="laplacian",
    family="positions",
    role="embed",
    forms=FORMS,
    options=LaplacianOptions,
    structure=GraphBatch,
    causal="optional",
    letters={"k": "count"},
    time=2 * n * k * dim,
    memory=n * dim,
    variants=({"count": 3, "basis": True},),
    build=LaplacianPositions,
)
