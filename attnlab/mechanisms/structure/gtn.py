r"""Graph Transformer Network: which paths to follow is learned.

The edges of a graph are of K kinds: who wrote a paper, where it appeared, what it cites. Two nodes
may belong together because a path of certain kinds leads from one to the other, such as author,
paper, author. Such a meta-path is a product of adjacencies. With $A_k$ the adjacency of kind k,
$(A_k)_{ij}$ counting the edges of kind k from j to i, and the identity as one more kind (no step at
all), a channel makes s = l + 1 soft choices of a kind, and multiplies what it has chosen:

$$Q_t = \sum_{k=1}^{K+1} \mathrm{softmax}(w_t)_k\, A_k,\qquad A = D^{-1} Q_1 Q_2 \cdots Q_s$$

where D are the row sums of the product. The channel then averages over the nodes to which its paths
lead, and the node itself,

$$Z = \mathrm{relu}\left(\tilde D^{-1} (A + I)\, X W\right)$$

with $\tilde D$ the row sums of $A + I$. The channels stand side by side, as heads do, and share W.
Nothing is compared: the weights do not depend on the vectors of the nodes. After training the
choices can be read as meta-paths (``meta_paths``), a path of s kinds from right to left; with the
identity among them, paths of every length up to s.

Cost, with $n_E$ edges: ``naive`` multiplies matrices, $2 h l n^3$ FLOPs; ``edges`` multiplies the
vectors by one $Q_t$ after another, $2 h s n_E e$ FLOPs, and never makes a product of matrices.

``naive``  the equations, on n × n matrices, normalised after each product as printed.
``edges``  the same applied to vectors, from the last matrix to the first.

The paper's letters: our h (channels) is its C, our l the same.

Readings. The row sums of every product but the last cancel: $D_1^{-1}$ only scales rows, and the
last D scales them again; that is why ``edges`` may leave them out. A row of zeros stays zero. Of
several edges of one kind between two nodes each counts.

The trap: a softmax gives no zeros. A node that has no edge of the chosen kind has, through a weight
of $10^{-26}$, edges of the others, and $D^{-1}$ makes a full row of them. So both forms compute in
float64 where the device has it: in float32 a product of two such weights is zero.

Departures.
- the diagonal is kept and rows are normalised between products, as printed. The first released code
  removes the diagonal and normalises columns between the products, which does not cancel.
- an output projection follows the channels. It is as after heads.

Gives up. The weights do not depend on what the nodes hold, only on the kinds of the edges.

Yun, Jeong, Kim, Kang, Kim. Graph Transformer Networks. NeurIPS 2019, arXiv:1911.06455, section 3.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.precision import exact_dtype
from attnlab.core.probe import note
from attnlab.core.shapes import Outputs, SelfValues, TokenPadding, Tokens, checked
from attnlab.structures.edge_sums import collected
from attnlab.structures.graph_batch import GraphBatch

Choices = Float[Tensor, "h s t"]  # w of each channel, of the t = K + 1 kinds; the last is I
MOST_PATHS = 100_000


@dataclass(frozen=True, kw_only=True)
class GTNOptions(Options):
    """What paths there are.

    ``kinds``  K, of how many kinds edges may be.
    ``steps``  s, how many choices a channel makes: a path has up to so many edges.
    """

    kinds: Size = 2
    steps: Size = 2


# ---- naive


@form
def naive(v: SelfValues, choices: Choices, *, structure: GraphBatch) -> Outputs:
    """The mean over the nodes that the paths of each channel lead to, and the node itself."""
    structure.check_fits(len(v), v.shape[2], v.device)
    check_kinds(structure, choices.shape[2] - 1)
    chosen = note("choices", _chosen(choices))
    kinds = adjacencies(structure, choices.shape[2]).to(chosen.dtype)
    first, *others = torch.einsum("hst,btij->sbhij", chosen, kinds)
    product = first
    for each in others:
        product = by_row_sums(product @ each)
    reached = by_row_sums(product)
    own = torch.eye(v.shape[2], device=v.device).to(reached.dtype)
    weights = note("weights", by_row_sums(reached + own))
    return weights @ v.to(weights.dtype)


def _chosen(choices: Tensor) -> Tensor:
    """The softmax in float64: products of its smallest weights are too small for float32, and
    normalised they count."""
    return choices.to(exact_dtype(choices.device)).softmax(-1)


def adjacencies(structure: GraphBatch, count: int) -> Float[Tensor, "b t n n"]:
    """How many edges of each kind lead to the first node from the second; the last is I."""
    n = structure.padding.shape[1]
    kinds = torch.nn.functional.one_hot(structure.kinds, count).to(torch.get_default_dtype())
    found = structure.spread(kinds)
    found[:, -1] = torch.eye(n, device=found.device)
    return found


def by_row_sums(matrix: Tensor) -> Tensor:
    """Rows that sum to 1; rows of zeros stay."""
    sums = matrix.sum(-1, keepdim=True)
    return matrix / (sums + (sums == 0))


def check_kinds(structure: GraphBatch, kinds: int) -> None:
    """A ValueError where an edge is of a kind that has no choice."""
    if torch.compiler.is_compiling() or structure.kinds.is_meta or not len(structure.kinds):
        return
    largest = int(structure.kinds.max())
    if largest >= kinds:
        raise ValueError(
            f"an edge of the structure is of kind {largest}, but there are choices for kinds "
            f"0 … {kinds - 1}; build the layer with kinds={largest + 1}"
        )


# ---- edges


@form(autocast=True)
def edges(v: SelfValues, choices: Choices, *, structure: GraphBatch) -> Outputs:
    """``naive`` without a product of matrices: $Q_1 (Q_2 (\\cdots (Q_s V)))$ over D."""
    structure.check_fits(len(v), v.shape[2], v.device)
    check_kinds(structure, choices.shape[2] - 1)
    chosen = note("choices", _chosen(choices))
    own = v.to(chosen.dtype).transpose(1, 2).flatten(0, 1)  # (b · n, h, e)
    moved = torch.cat([own, torch.ones_like(own[..., :1])], -1)  # the last entry becomes D
    for step in reversed(chosen.unbind(1)):
        weights = step.mT.index_select(0, structure.kinds)  # (m, h)
        moved = collected(weights, moved, structure.by_ends) + step[:, -1:] * moved
    total, sums = moved[..., :-1], moved[..., -1:]
    reaches = (sums != 0).to(sums.dtype)
    out = (total / (sums + (sums == 0)) + own) / (1 + reaches)
    return out.unflatten(0, (len(v), v.shape[2])).transpose(1, 2)


FORMS = {"naive": naive, "edges": edges}

# ---- reading


@checked
def meta_paths(choices: Float[Tensor, "s t"]) -> list[tuple[tuple[int, ...], float]]:
    """The meta-paths of one channel with their weights, the largest first.

    A path is the kinds of its edges in the order in which it is walked, from the node that is
    attended to: the last choice comes first. The identity is left out, so that paths are shorter
    where it is chosen; the weights of equal paths are added, and all sum to 1. Raises ValueError
    where there would be more than 100,000.
    """
    s, t = choices.shape
    if t**s > MOST_PATHS:
        raise ValueError(
            f"{s} choices among {t} kinds are {t**s} paths, more than {MOST_PATHS}; look at the "
            "choices themselves"
        )
    chosen = choices.detach().double().softmax(-1).tolist()
    found: dict[tuple[int, ...], float] = {}
    for kinds in itertools.product(range(t), repeat=s):
        weight = 1.0
        for step, kind in zip(chosen, kinds, strict=True):
            weight *= step[kind]
        path = tuple(kind for kind in reversed(kinds) if kind < t - 1)
        found[path] = found.get(path, 0.0) + weight
    return sorted(found.items(), key=lambda each: -each[1])


# ---- module


class GTN(Layer):
    """Averages along learned paths: (b, n, dim) → (b, n, dim); a head is a channel."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "edges"] = "edges",
        options: GTNOptions = GTNOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, kv_heads=1, queries=False)
        self.form, self.options = form, options
        self.choices = nn.Parameter(torch.randn(heads, options.steps, options.kinds + 1))

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *, structure: GraphBatch | None = None
    ) -> Tokens:
        """``structure`` is the graphs; ``padding`` (b, n), if given, is that of the structure."""
        structure = GraphBatch.fitting(structure, x, padding)
        self.heads.check_input(x, "x")
        v = self.heads.values(zero_nonfinite_padding(x, structure.padding))
        v = v.expand(-1, self.heads.heads, -1, -1)
        out = FORMS[self.form](v, self.choices.to(v.dtype), structure=structure)
        return self.heads.merge(out.relu())


# ---- card

h, n, n_E, e, s = letters("h n n_E e s")

CARD = Card(
    __doc__,
    name="gtn",
    family="structure",
    role="mix",
    forms=FORMS,
    options=GTNOptions,
    structure=GraphBatch,
    letters={"s": "steps"},
    causal="never",
    causal_reason="paths lead from any node of a graph to any other",
    time={"naive": 2 * h * s * n**3, "edges": 2 * h * s * n_E * e},
    memory={"naive": h * s * n**2, "edges": 2 * h * n_E * e},
    notes={"naive": ("choices", "weights"), "edges": ("choices",)},
    variants=({"kinds": 3, "steps": 3},),
    build=GTN,
    aliases=("graph_transformer_network",),
)
