r"""Eigenvectors of the Laplacian: where a node stands in its graph, as sine waves do on a line.

With the adjacency A and the degrees D (its row sums), the normalised Laplacian is
$I - D^{-1/2} A D^{-1/2}$. It is symmetric, its eigenvalues lie between 0 and 2, and each component
of the graph has one eigenvector of eigenvalue 0, constant up to the roots of the degrees; these are
called trivial, for they tell no two nodes of one degree apart. On a path of n nodes the eigenvalues
are $1 - \cos(\pi k / (n - 1))$, on the complete graph 0 and, n - 1 times, n / (n - 1).

An eigenvector is known up to its sign, and those of a repeated eigenvalue up to a rotation among
themselves: only the subspace that they span is a property of the graph.

A counts the edges between two nodes; an edge whose reverse is missing counts half in each
direction, so that A is symmetric. A node without edges is a component of its own.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.options import Size
from attnlab.core.precision import normal
from attnlab.core.shapes import checked
from attnlab.structures.graph_batch import GraphBatch

DENSE = 400
"""Components of up to so many nodes are given to a dense solver."""

EQUAL = 1e-6
"""Eigenvalues that differ by less are taken for equal."""

Solver = Literal["auto", "dense", "sparse"]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The first eigenvectors of each graph of a batch, by ascending eigenvalue, in float64.

    They have length 1; what a small graph lacks, and padding, is zero.
    """

    values: Float[Tensor, "b k"]
    vectors: Float[Tensor, "b n k"]

    def flipped(self, generator: torch.Generator | None = None) -> Float[Tensor, "b n k"]:
        """The vectors, each with a sign drawn at random, as in training."""
        b, k = self.values.shape
        signs = torch.randint(0, 2, (b, 1, k), generator=generator).to(self.vectors) * 2 - 1
        return self.vectors * signs

    def turned(self, generator: torch.Generator | None = None) -> Float[Tensor, "b n k"]:
        """The eigenvectors, those of each repeated eigenvalue turned at random in their subspace;
        an eigenvector whose eigenvalue is not repeated gets a random sign."""
        found = self.vectors.clone()
        for row, groups in enumerate(self.groups.tolist()):
            for group in set(groups):
                columns = [i for i, each in enumerate(groups) if each == group]
                drawn = normal(len(columns), len(columns), generator=generator)
                basis, upper = torch.linalg.qr(drawn)
                basis = basis * upper.diagonal().sign()  # so that every rotation is equally likely
                found[row, :, columns] = self.vectors[row, :, columns] @ basis.to(found)
        return found

    @property
    def groups(self) -> Int[Tensor, "b k"]:
        """Columns of one row with the same number have the same eigenvalue."""
        apart = self.values.diff(dim=1).abs() > EQUAL
        return torch.nn.functional.pad(apart.long().cumsum(1), (1, 0))

    def projector(self, row: int, group: int) -> Float[Tensor, "n n"]:
        """The projection on the subspace of one group in graph ``row``, the same in any basis."""
        own = self.vectors[row][:, self.groups[row] == group]
        return own @ own.mT


@checked
def spectrum(
    structure: GraphBatch, count: Size, *, trivial: bool = False, solver: Solver = "auto"
) -> Spectrum:
    """The first ``count`` eigenvectors of each graph, without the trivial ones unless wanted.

    ``solver`` is ``dense`` (all eigenvectors by PyTorch), ``sparse`` (the first by scipy, which has
    to be installed; it may find another basis, or too few, where eigenvalues are repeated), or
    ``auto``: dense for components of up to 400 nodes or where scipy is missing.

    Where the last of them is one of a repeated eigenvalue, its subspace may be cut.
    """
    parts = structure.padding, structure.sources, structure.targets
    return Spectrum(*_solved(*parts, count, trivial, solver))


def eigenvectors(
    structure: GraphBatch, count: int, *, trivial: bool = False
) -> Float[Tensor, "b n k"]:
    """The vectors of ``spectrum``, kept with the structure, for layers that ask in every step."""
    if torch.compiler.is_compiling():
        parts = structure.padding, structure.sources, structure.targets
        found: Tensor = _compiled(*parts, count, trivial)
        return found
    name = f"eigenvectors {count} {trivial}"
    if name not in vars(structure):
        vars(structure)[name] = spectrum(structure, count, trivial=trivial).vectors
    kept: Tensor = vars(structure)[name]
    return kept


# To torch.compile the solver is one custom operator.


@torch.library.custom_op("attnlab::eigenvectors", mutates_args=())
def _compiled(
    padding: Tensor, sources: Tensor, targets: Tensor, count: int, trivial: bool
) -> Tensor:
    return _solved(padding, sources, targets, count, trivial, "auto")[1]


@_compiled.register_fake
def _shape(padding: Tensor, sources: Tensor, targets: Tensor, count: int, trivial: bool) -> Tensor:
    return padding.new_empty(*padding.shape, count, dtype=torch.float64)


def _solved(
    padding: Tensor, sources: Tensor, targets: Tensor, count: int, trivial: bool, solver: Solver
) -> tuple[Tensor, Tensor]:
    """Values (b, k) and vectors (b, n, k) of all graphs."""
    b, n = padding.shape
    values, vectors = torch.zeros(b, count).double(), torch.zeros(b, n, count).double()
    edges, real = torch.stack([sources, targets], 1).cpu(), padding.cpu()
    for row in range(b):
        own = edges[edges[:, 1] // n == row] % n
        smallest, basis = _of_graph(real[row], own, count, trivial, solver)
        found = len(smallest)
        values[row, :found], vectors[row, :, :found] = smallest, basis
    return values.to(padding.device), vectors.to(padding.device)


def _of_graph(
    real: Tensor, edges: Tensor, count: int, trivial: bool, solver: Solver
) -> tuple[Tensor, Tensor]:
    """Up to k values and vectors (n, k) of one graph, found component by component."""
    n = len(real)
    labels = components(n, edges)
    values, vectors = [torch.zeros(0).double()], [torch.zeros(n, 0).double()]
    for label in labels[real].unique():
        nodes = (labels == label).nonzero()[:, 0]
        number = torch.full((n,), -1)
        number[nodes] = torch.arange(len(nodes))
        inside = number[edges[labels[edges[:, 0]] == label]]
        smallest, basis = _of_component(inside, len(nodes), count, solver)
        start = 0 if trivial else 1
        values.append(smallest[start : start + count])
        spread = torch.zeros(n, len(values[-1])).double()
        spread[nodes] = basis[:, start : start + count]
        vectors.append(spread)
    every, columns = torch.cat(values), torch.cat(vectors, 1)
    order = every.argsort(stable=True)[:count]
    return every[order], columns[:, order]


def _of_component(edges: Tensor, nodes: int, count: int, solver: Solver) -> tuple[Tensor, Tensor]:
    """The trivial eigenvector and at least ``count`` others, if there are so many."""
    if nodes == 1:
        return torch.zeros(1).double(), torch.ones(1, 1).double()
    weights = torch.full((2 * len(edges),), 0.5).double()
    pairs = torch.cat([edges, edges.flip(1)])
    degrees = torch.zeros(nodes).double().index_add(0, pairs[:, 0], weights)
    roots = degrees.sqrt()
    entries = weights / (roots[pairs[:, 0]] * roots[pairs[:, 1]])
    wanted = min(count + 1, nodes)
    if solver == "sparse" or (solver == "auto" and nodes > DENSE and _scipy() is not None):
        values, vectors = _sparse(pairs, entries, nodes, wanted)
    else:
        dense = torch.zeros(nodes, nodes).double()
        dense = dense.index_put((pairs[:, 0], pairs[:, 1]), entries, accumulate=True)
        values, vectors = torch.linalg.eigh(torch.eye(nodes).double() - dense)
    vectors[:, 0] = roots / roots.norm()  # exactly
    values[0] = 0
    return values[:wanted], vectors[:, :wanted]


def _scipy() -> Any:
    try:
        import scipy.sparse.linalg
    except ImportError:
        return None
    return scipy.sparse


def _sparse(pairs: Tensor, entries: Tensor, nodes: int, wanted: int) -> tuple[Tensor, Tensor]:
    """By Lanczos iteration on $D^{-1/2} A D^{-1/2}$, of which the largest eigenvalues are wanted;
    where that does not converge, on the inverse of its distance from 1.001."""
    sparse = _scipy()
    if sparse is None:
        raise ImportError(
            'solver="sparse" needs scipy, which is not installed; install it with '
            '`pip install scipy`, or take solver="dense"'
        )
    if wanted >= nodes:
        raise ValueError(
            f'solver="sparse" finds fewer eigenvectors than nodes, but {wanted} are wanted of a '
            f"component of {nodes} nodes; take the dense one"
        )
    rows, columns = pairs.numpy().T
    matrix = sparse.csr_matrix((entries.numpy(), (rows, columns)), shape=(nodes, nodes))
    start = normal(nodes, generator=torch.Generator().manual_seed(0)).numpy()
    try:
        values, vectors = sparse.linalg.eigsh(
            matrix, wanted, which="LA", v0=start, ncv=min(nodes, max(4 * wanted, 40)), maxiter=300
        )
    except sparse.linalg.ArpackNoConvergence:
        values, vectors = sparse.linalg.eigsh(matrix, wanted, sigma=1.001, v0=start)
    order = (-values).argsort(kind="stable")
    return torch.from_numpy(1 - values[order]), torch.from_numpy(vectors[:, order].copy())


def components(nodes: int, edges: Int[Tensor, "m 2"]) -> Int[Tensor, "n"]:
    """A number for each node, the same for all that are connected: that of the first of them."""
    labels = torch.arange(nodes)
    while True:
        ends = labels[edges]
        joined = labels.scatter_reduce(0, ends.amax(1), ends.amin(1), "amin")
        while not torch.equal(joined, joined[joined]):
            joined = joined[joined]
        if torch.equal(joined, labels):
            return labels
        labels = joined
