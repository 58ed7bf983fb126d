r"""Child-sum Tree-LSTM: an LSTM whose past is the children of a node, from the leaves up.

An LSTM reads a sequence and passes its state from one token to the next. The child-sum Tree-LSTM
passes states from children to their parent. Node j with the children C(j) and the input $x_j$ takes
the sum of their hidden states, and forgets each child's memory by a gate of its own:

$$\tilde h_j = \sum_{k \in C(j)} h_k, \qquad i_j, o_j, u_j = \sigma, \sigma, \tanh (W x_j + U \tilde
h_j + b), \qquad f_{jk} = \sigma(W_f x_j + U_f h_k + b_f)$$

$$c_j = i_j \odot u_j + \sum_{k \in C(j)} f_{jk} \odot c_k, \qquad h_j = o_j \odot \tanh c_j$$

A leaf has no children: its sums are zero. In a tree that is a chain this is an LSTM. A node waits
for its children, so a tree of depth D takes D + 1 steps one after the other, however many nodes
could be computed together: what tree attention was made to avoid.

Cost: $8 n d^2$ FLOPs for $U \tilde h$ and $U_f h$ of all nodes, in d = dim; those of W are linear
maps of the input. The states are n × d numbers.

``naive``   one node at a time.
``levels``  all nodes of a batch whose children are done, together: as many steps as the highest
            tree has levels.

The paper's letters are ours.

Readings. Nothing departs from the child-sum equations. The order of the children does not matter;
the paper's N-ary variant, which uses it, is not built.

Gives up. A node depends only on the nodes below it, and is computed after its children.

Tai, Socher, Manning. Improved Semantic Representations From Tree-Structured Long Short-Term Memory
Networks. ACL 2015, arXiv:1503.00075, section 3.1, equations 2 to 8.
"""

from collections.abc import Callable
from typing import Literal

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import check_input, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import TokenPadding, Tokens, checked
from attnlab.structures.tree_batch import TreeBatch

Gates = Float[Tensor, "b n 4 d"]  # W x + b of i, o, u and f
Recurrent = Float[Tensor, "4 d d"]  # U of i, o, u and f, each applied as h U
States = Float[Tensor, "b n d"]

# ---- naive


@form
def naive(x: Gates, recurrent: Recurrent, *, structure: TreeBatch) -> States:
    """The hidden states, one node after its children (eq. 2 to 8)."""
    structure.check_fits(x.shape[0], x.shape[1], x.device)
    trees = [_one_tree(x[i], recurrent, structure.children(i)) for i in range(len(x))]
    return torch.stack(trees) if trees else x[:, :, 0]


def _one_tree(x: Tensor, recurrent: Tensor, tree: dict[int, list[int]]) -> Tensor:
    hidden, memory = list(torch.zeros_like(x[:, 0])), list(torch.zeros_like(x[:, 0]))
    for token, children in tree.items():
        i_o_u, forget = x[token, :3], x[token, 3]
        kept = torch.zeros_like(forget)
        for child in children:
            gate = torch.sigmoid(forget + recurrent[3].mT @ hidden[child])
            kept = kept + gate * memory[child]
        sums = sum((hidden[child] for child in children), torch.zeros_like(forget))
        i_o_u = i_o_u + torch.einsum("d,gde->ge", sums, recurrent[:3])
        hidden[token], memory[token] = _cell(i_o_u, kept)
    return torch.stack(hidden)


def _cell(i_o_u: Float[Tensor, "... 3 d"], kept: Tensor) -> tuple[Tensor, Tensor]:
    """The hidden state and the memory of nodes (eq. 3, 5 to 8)."""
    gate, out, update = i_o_u.unbind(-2)
    memory = torch.sigmoid(gate) * torch.tanh(update) + kept
    return torch.sigmoid(out) * torch.tanh(memory), memory


# ---- levels


@form(autocast=True)
def levels(x: Gates, recurrent: Recurrent, *, structure: TreeBatch) -> States:
    """``naive`` for all nodes of one height together."""
    b, n, _, d = x.shape
    structure.check_fits(b, n, x.device)
    inputs = x.flatten(0, 1)
    of_node = recurrent[:3].transpose(0, 1).flatten(1)
    hidden, memory = _cell(inputs[:, :3], inputs.new_zeros(b * n, d))
    for level in structure.levels:
        h, c = hidden[level.children], memory[level.children]
        kept = torch.sigmoid(inputs[level.nodes, 3][level.parents] + h @ recurrent[3]) * c
        sums = h.new_zeros(len(level.nodes), 2 * d)
        sums = sums.index_add(0, level.parents, torch.cat([h, kept], 1))
        i_o_u = inputs[level.nodes, :3] + (sums[:, :d] @ of_node).unflatten(1, (3, d))
        h, c = _cell(i_o_u, sums[:, d:])
        hidden = hidden.index_copy(0, level.nodes, h)
        memory = memory.index_copy(0, level.nodes, c)
    return hidden.view(b, n, d) * structure.padding[..., None]


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "levels": levels}

# ---- module


class TreeLSTM(Layer):
    """The hidden state of every leaf and node: (b, n, dim) → (b, n, dim); zeros at padding."""

    @checked
    def __init__(self, dim: Size, *, form: Literal["naive", "levels"] = "levels") -> None:
        super().__init__()
        self.form = form
        self.inputs = nn.Linear(dim, 4 * dim)
        self.recurrent = nn.Parameter(torch.empty(4, dim, dim).uniform_(-1, 1) * dim**-0.5)

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *, structure: TreeBatch | None = None
    ) -> Tokens:
        """``structure`` is the trees; ``padding`` (b, n), if given, is that of the structure."""
        structure = TreeBatch.fitting(structure, x, padding)
        check_input(x, "x", self.inputs.in_features, self.inputs.weight)
        gates = self.inputs(zero_nonfinite_padding(x, structure.padding)).unflatten(-1, (4, -1))
        states = FORMS[self.form](gates, self.recurrent, structure=structure)
        return note("state", states)


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="tree_lstm",
    family="structure",
    role="mix",
    forms=FORMS,
    structure=TreeBatch,
    causal="never",
    causal_reason="a node is computed from its children, which may stand anywhere",
    time=8 * n * dim**2,
    launches={"naive": n, "levels": sympy.log(n)},
    memory=4 * n * dim,
    build=TreeLSTM,
    aliases=("child_sum_tree_lstm",),
)
