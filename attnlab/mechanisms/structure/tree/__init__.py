r"""Tree attention: the value of a phrase is gathered from its words, all phrases at once.

A sentence comes with its tree: n tokens, of which some are leaves (words) and the others are nodes
(phrases), each with a query, a key and a value of its own. A recursive network computes a node
after its children, so a tree of depth D takes D steps. Hierarchical accumulation instead replaces
the value $v_i$ of each node by

$$\bar v_i = \frac{1}{|L_i|} \sum_{j \in L_i} w_j \hat S_{ij}, \qquad \hat S_{ij} =
\frac{v_j + \sum_{t \in B_{ij}} (v_t + E_{tj})}{1 + |B_{ij}|}, \qquad E_{tj} = a_{|B_{tj}|} +
c_{|H_{tj}|}$$

$L_i$ are the leaves below node i and $B_{ij}$ the nodes on the branch from i down to leaf j, both
of them included for i: $\hat S_{ij}$ is the mean of all that stands on the branch, and $w_j = u
\cdot x_j$ is a learned number for each leaf. $E$ says where a leaf is below a node: $a$ is a vector
for the length of the branch and $c$ one for the place of the leaf among the node's, where $H_{tj}$
are the leaves of t up to j. Then softmax attention follows with the new values under a mask: a node
attends to its subtree, itself included, and a leaf to all leaves (not to nodes). As
cross-attention, every query attends to all leaves and nodes.

Cost: attention takes $2 h n^2 (d + e)$ FLOPs. Accumulation takes $O(h e \sum_j D_j)$, where $D_j$
is the depth of leaf j: $O(h e n \log n)$ for balanced trees; in deep trees ``parallel`` takes up to
$\frac{3}{2} h e n^2$, which the card states. How many steps follow one another does not grow with
the tree. The mask has $n^2$ entries; ``parallel`` holds $h e \sum_j D_j$ numbers in shallow trees
and, in deep ones, $h$ times the nodes times the tokens; ``dense`` $h e$ times the nodes times the
leaves.

``naive``     the definition, one node after the other from the leaves up.
``dense``     the paper's three operations on a tensor of nodes × leaves: ``interpolate``,
              ``upward_average``, ``aggregate``.
``parallel``  the same for all nodes at once, without the entries that are zero: along the path of
              each leaf to the root, or in deep trees by the share that each token of a subtree has
              in the node's value, a matrix.

The paper's letters: our $v_j$ of leaves and nodes are $l_j$ and $n_i$, $\bar v$ is
$\overline{N}$, ``interpolate``, ``upward_average`` and ``aggregate`` are F (which gives S), U and
V, $a$ and $c$ are $e^v$ and $e^h$, $B$ and $H$ are $V$ and $H$ of its equation 9.

Readings. Equation 6 is read as its text says: the mean runs over the branch from i to j alone, not
over all nodes of the subtree. The concatenation $[e^v; e^h]$ is the sum of two tables, each zero in
the other's half. Indices beyond a table take its last row.

The traps: what is outside a subtree is decided by the tree, not by whether a vector is zero; of two
nodes with the same leaves (one has a single child) the upper one has the other in its subtree, not
the reverse.

Departures.
- branch means count the leaf, as the paper's equation 6 does and its code does not. The code's
  divisor counts the nodes of the branch and not the leaf.
- the vertical index is the length of the branch, as printed; the code takes the depth. That is the
  depth of node i below the root. Nodes must be sorted from the bottom up there, and by default the
  scores are accumulated, too.

Gives up. Each sentence needs its tree, and a phrase attends only to the nodes below it.

Nguyen, Joty, Hoi, Socher. Tree-Structured Attention with Hierarchical Accumulation. ICLR 2020,
arXiv:2002.08046, equations 5 to 24.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import sdpa
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import Context, SelfValues, TokenPadding, Tokens, checked
from attnlab.mechanisms.structure.tree.dense import dense
from attnlab.mechanisms.structure.tree.parallel import parallel
from attnlab.mechanisms.structure.tree.tables import Horizontal, TreeOptions, Vertical, Weights, row
from attnlab.structures.tree_batch import TreeBatch

# ---- naive


@form
def naive(
    v: SelfValues, weights: Weights, vertical: Vertical, horizontal: Horizontal, *,
    structure: TreeBatch,
) -> SelfValues:  # fmt: skip
    """The values with those of nodes accumulated, one node after the other (eq. 6, 7, 9)."""
    structure.check_fits(len(v), v.shape[2], v.device)
    rows = [
        _one_tree(v[i], weights[i], vertical, horizontal, structure.children(i))
        for i in range(len(v))
    ]
    return torch.stack(rows) if rows else v


def _one_tree(
    v: Tensor, weights: Tensor, vertical: Tensor, horizontal: Tensor, tree: dict[int, list[int]]
) -> Tensor:
    """Each node takes the branches of its children, and makes them longer by itself."""
    values, branches = list(v.unbind(1)), dict[int, Branches]()
    for token, children in tree.items():
        if not children:
            branches[token] = Branches(v[:, [token]], weights[:, [token]], v.new_zeros(1).long())
            continue
        below = Branches.side_by_side([branches[child] for child in children])
        lengths = below.lengths + 1
        places = torch.arange(1, len(lengths) + 1, device=v.device)
        embedded = row(vertical, lengths) + row(horizontal, places)
        sums = below.sums + v[:, [token]] + embedded
        averages = sums / (lengths + 1)[:, None]
        values[token] = (below.weights[..., None] * averages).mean(1)
        branches[token] = Branches(sums, below.weights, lengths)
    return torch.stack(values, 1)


class Branches(NamedTuple):
    """From one node down to each of its l leaves: sums of all that stands on the branch
    (h, l, e), the weight of the leaf (h, l), and the number of nodes on the branch (l,)."""

    sums: Tensor
    weights: Tensor
    lengths: Tensor

    @classmethod
    def side_by_side(cls, parts: list["Branches"]) -> "Branches":
        sums, weights, lengths = zip(*parts, strict=True)
        return cls(torch.cat(sums, 1), torch.cat(weights, 1), torch.cat(lengths))


FORMS = {"naive": naive, "dense": dense, "parallel": parallel}

# ---- module


class TreeAttention(Layer):
    """Attention over the leaves and nodes of trees: (b, n, dim) → (b, n, dim).

    ``structure`` says which tokens are leaves and which nodes, and what is below what. Called with
    a ``context`` (b, m, dim) it is cross-attention to the tokens of a tree, whose structure it then
    is: all of them may be attended to.
    """

    adds_constant = True  # what the tables add to the values

    @checked
    def __init__(
        self, dim: Size, heads: Size, options: TreeOptions | None = None, *,
        form: Literal["naive", "dense", "parallel"] = "parallel", bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        options = TreeOptions() if options is None else options
        self.heads, self.form = Heads(dim, heads, bias=bias), form
        self.weights = nn.Linear(dim, heads, bias=False)
        width = self.heads.value_dim
        self.vertical = nn.Parameter(torch.randn(options.max_vertical, width // 2) * 0.02)
        self.horizontal = nn.Parameter(
            torch.randn(options.max_horizontal, width - width // 2) * 0.02
        )

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *,
        structure: TreeBatch | None = None, context: Context = None,
    ) -> Tokens:  # fmt: skip
        """What each token takes from the tree: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n), if given, is that of the structure.
        """
        read = x if context is None else context
        if context is not None and padding is not None:
            raise ValueError("with a context its structure says what is padding: leave it out")
        structure = TreeBatch.fitting(structure, read, padding if context is None else None)
        q, k, v = self.heads.project(x, context, padding=structure.padding)
        weights = self.weights(zero_nonfinite_padding(read, structure.padding)).transpose(1, 2)
        halves = self.vertical.shape[1], self.horizontal.shape[1]
        vertical, horizontal = (
            F.pad(self.vertical, (0, halves[1])),
            F.pad(self.horizontal, (halves[0], 0)),
        )
        v = FORMS[self.form](v, weights, vertical, horizontal, structure=structure)
        mask = structure.subtree_mask if context is None else structure.padding[:, None, None]
        return self.heads.merge(
            sdpa.attend(q, k, v, mask=note("mask", mask), bias=None, scale=None)
        )


# ---- card

h, n, d, e = letters("h n d e")

CARD = Card(
    __doc__,
    name="tree",
    family="structure",
    role="attend",
    forms=FORMS,
    options=TreeOptions,
    structure=TreeBatch,
    causal="never",
    causal_reason="a phrase is gathered from all of its words, the last ones included",
    positions_reason="the nodes of a tree stand in no one order",
    time={
        "naive": 2 * h * n**2 * (d + e),
        "dense": 2 * h * n**2 * (d + e),
        "parallel": 2 * h * n**2 * (d + e) + 3 * h * n**2 * e / 2,  # of deep trees
    },
    launches={"naive": n},
    memory={"naive": n**2, "dense": h * e * n**2 / 4, "parallel": h * n**2 / 2},  # nodes: n / 2
    notes={"dense": ("interpolated", "averages")},
    variants=({"max_vertical": 2, "max_horizontal": 3},),
    build=TreeAttention,
)
