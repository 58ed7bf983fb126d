r"""eXtra hop attention (Transformer-XH): linked texts tell each other what they hold.

Pages link to pages. Each text is read by a Transformer of its own, whose attention stays inside the
text; its first token, the hub ([CLS]), gathers what the text says. Extra hop attention then lets
the hub $h_\tau$ of a text attend to the hubs $h_\eta$ of the texts from which a link leads to it,
$N_\tau$, and joins what it finds to what it was:

$$\hat h_\tau = \sum_{\eta \in N_\tau} \frac{e^{s_{\tau\eta}}}{\sum_{\eta' \in N_\tau}
e^{s_{\tau\eta'}}}\, v_\eta,\qquad \tilde h_\tau = W\,[h_\tau;\, \hat h_\tau]$$

In the next layer the tokens of a text attend to its hub, and so learn of the other texts; L such
layers follow L links. The scores are

$$s_{\tau\eta} = \frac{q_\tau \cdot k_\eta}{\sqrt d} \quad\text{(dot)},\qquad s_{\tau\eta} =
\mathrm{LeakyReLU}\Big(\sum_c (q_{\tau c} + k_{\eta c})\Big) \quad\text{(additive)}$$

the first as printed, the second in the authors' released code, which is that of graph attention
networks (the slope below zero is 0.2).

Cost, with $n_E$ links: ``naive`` $2 h n^2 (d + e)$ FLOPs for n texts, ``edges``
$2 h n_E (d + e)$.

``naive``  softmax over all pairs of hubs under the adjacency.
``edges``  over the list of links.

``ExtraHop`` is a layer of hubs: each token of its sequence is the hub of a text. ``at_hubs``
applies it to whole texts.

The paper's letters: our $s_{\tau\eta}$, $q$, $k$ and $v$ have hats there; W is its Linear.

Readings. A text without links gets zeros for $\hat h$. Both scores have projections of their own,
with an output projection of the heads before W.

The released code, beyond the score, makes queries, keys and values by one map for each head, joins
as [found; own], and adds a ReLU and a residual. It is not followed here.

Departures.
- queries, keys and values have projections of their own with both scores
- no ReLU and no residual follow, as the released code has them

Gives up. Texts meet only in their first tokens, and only along links.

Zhao, Xiong, Rosset, Song, Bennett, Tiwary. Transformer-XH: Multi-Evidence Reasoning with eXtra Hop
Attention. ICLR 2020, equations 7 to 9.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.shapes import (
    Outputs,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.structures.edge_sums import products
from attnlab.structures.graph_attention import of_tokens, over_edges, over_pairs
from attnlab.structures.graph_batch import GraphBatch

SLOPE = 0.2


@dataclass(frozen=True, kw_only=True)
class ExtraHopOptions(Options):
    """How two hubs are compared.

    ``score``  ``dot``, as printed, or ``additive``, as in the released code.
    """

    score: Literal["dot", "additive"] = "dot"


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, *,
    structure: GraphBatch, options: ExtraHopOptions = ExtraHopOptions(),
) -> Outputs:  # fmt: skip
    """What each hub takes from the hubs from which a link leads to it (eq. 8)."""
    structure.check_fits(len(q), q.shape[2], q.device)
    if options.score == "dot":
        return over_pairs(q @ k.mT * q.shape[-1] ** -0.5, v, structure)
    sums = q.sum(-1)[..., :, None] + k.sum(-1)[..., None, :]
    return over_pairs(F.leaky_relu(sums, SLOPE), v, structure)


# ---- edges


@form(autocast=True)
def edges(
    q: Queries, k: SelfKeys, v: SelfValues, *,
    structure: GraphBatch, options: ExtraHopOptions = ExtraHopOptions(),
) -> Outputs:  # fmt: skip
    """``naive`` over the list of links."""
    structure.check_fits(len(q), q.shape[2], q.device)
    own, keys = of_tokens(q), of_tokens(k)
    if options.score == "dot":
        scores = products(own, keys, structure.by_ends) * q.shape[-1] ** -0.5
    else:
        sums = own.sum(-1)[structure.targets] + keys.sum(-1)[structure.sources]
        scores = F.leaky_relu(sums, SLOPE)
    return over_edges(scores, v, structure)


FORMS = {"naive": naive, "edges": edges}

# ---- module


class ExtraHop(Layer):
    """The hubs of linked texts, one layer on: (b, n, dim) → (b, n, dim)."""

    adds_constant = True  # what a hub was itself is joined to what it finds

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "edges"] = "edges",
        bias: bool = False, options: ExtraHopOptions = ExtraHopOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads, self.form, self.options = Heads(dim, heads, bias=bias), form, options
        self.joined = nn.Linear(2 * dim, dim)

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *, structure: GraphBatch | None = None
    ) -> Tokens:
        """``structure`` is the links; ``padding`` (b, n), if given, is that of the structure."""
        structure = GraphBatch.fitting(structure, x, padding)
        q, k, v = self.heads.project(x, padding=structure.padding)
        found = FORMS[self.form](q, k, v, structure=structure, options=self.options)
        own = zero_nonfinite_padding(x, structure.padding)
        out: Tensor = self.joined(torch.cat([own, self.heads.merge(found)], -1))
        return out


@checked
def at_hubs(
    layer: nn.Module, x: Float[Tensor, "b n t dim"], *, structure: GraphBatch
) -> Float[Tensor, "b n t dim"]:
    """n linked texts of t tokens in each row: the first token of each goes through ``layer``, the
    others stay as they are."""
    return torch.cat([layer(x[:, :, 0], structure=structure)[:, :, None], x[:, :, 1:]], 2)


# ---- card

h, n, n_E, d, e = letters("h n n_E d e")

CARD = Card(
    __doc__,
    name="extra_hop",
    family="structure",
    role="attend",
    forms=FORMS,
    options=ExtraHopOptions,
    structure=GraphBatch,
    causal="never",
    causal_reason="links lead from any text to any other",
    positions_reason="linked texts have no order",
    time={"naive": 2 * h * n**2 * (d + e), "edges": 2 * h * n_E * (d + e)},
    memory={"naive": 2 * h * n**2, "edges": 2 * h * n_E * (d + e)},
    notes={"naive": ("weights",), "edges": ("edge_weights", "weights")},
    variants=({"score": "additive"},),
    build=ExtraHop,
    aliases=("transformer_xh",),
)
