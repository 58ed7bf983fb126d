r"""Permutation language model: tokens are predicted one after the other, in a random order.

For each text of n tokens an order $z$ is drawn. Each of the last tokens in this order, one of K =
6, is predicted from those before it in the order, whichever side of it they stand on:

$$\ell = -\sum_{t > c} \log p(x_{z_t} \mid x_{z_1}, \dots, x_{z_{t-1}}),\qquad
  n - c = \mathrm{round}(n / K)$$

The text stays as it is, and so do the positions; only who sees whom follows the order. A model that
predicts the token at $z_t$ should know where that is, and not what it is. So there are two streams
through the same layers. The content $h$ of a token sees its own token; the query $g$ of a token
begins as one vector for all, a mask, at the position of the token:

$$h_{z_t} \leftarrow \mathrm{Attn}(h_{z_t};\; h_{z_1}, \dots, h_{z_t}),\qquad
  g_{z_t} \leftarrow \mathrm{Attn}(g_{z_t};\; h_{z_1}, \dots, h_{z_{t-1}})$$

Here a text is read with its queries behind it, and a mask of pairs says this. A masked language
model predicts its tokens independently of each other; this one sees those that came before in the
order. Of a text of two equal tokens, both predicted, it loses log V, where a masked language model
loses 2 log V. And it never reads a mask in the place of a token, so that texts look in training as
they do later. The last tokens alone are predicted, since the first have seen too little.

``naive``       who sees whom, pair by pair.
``vectorised``  one comparison of ranks for the batch.

Common mistakes: a query that sees its own content; the text itself permuted, whose positions are
then lost; masks in the content stream too, as a well-known collator writes them. Later queries then
see that something was predicted before them, but not what, and two equal tokens cost 2 log V.

Departures.
- ``context="open"``: tokens that are not predicted see each other all, as in the authors' code
- positions as the model has them; the paper's are relative. No memory of earlier segments
- single tokens in a random order, where the code predicts spans

Yang, Dai, Yang, Carbonell, Salakhutdinov, Le. XLNet: Generalized Autoregressive Pretraining for
Language Understanding. NeurIPS 2019, arXiv:1906.08237, sections 2.2 and 2.3.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.objectives.batches import Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens
from attnlab.objectives.permuted import Order, asked_beside, drawn, most_asked

# ---- options


@dataclass(frozen=True, kw_only=True)
class XLNetOptions(Options):
    """What is predicted, and from what.

    one_in: K, of so many tokens one is predicted, the last in the order.
    context: whether tokens that are not predicted see those before them in the order ("ordered"),
        or each other all ("open").
    """

    one_in: Size = 6
    context: Literal["ordered", "open"] = "ordered"


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: XLNetOptions = XLNetOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_{z_t} | x_{z_1} … x_{z_{t-1}}) over the last tokens of each order z."""
    order = drawn(batch, 1 / options.one_in, generator)
    width, queries = batch.inputs.shape[1], order.asked.shape[1]
    allowed = torch.zeros(len(batch), width + queries, width + queries, dtype=torch.bool)
    for row, rank in enumerate(order.rank.tolist()):
        for j in range(width):
            for i in range(width):
                context = max(rank[i], rank[j]) < order.first[row]
                open_to = options.context == "open" and context
                allowed[row, i, j] = rank[j] <= rank[i] or open_to
            for query, token in enumerate(order.asked[row].tolist()):
                allowed[row, width + query, j] = rank[j] < rank[token]
    asked = asked_beside(batch, order, allowed, vocab)
    return one_by_one(logits_of(model, asked), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: XLNetOptions = XLNetOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return XLNet(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class XLNet(CrossEntropy):
    """Predicts the last tokens of each row in a random order.

    vocab: how many tokens the text has. A query begins as the token after them, so the model needs
        one more, and room for the queries behind the text.
    """

    models = ("token_classifier",)
    orders = "placed"
    specials = 1

    def __init__(self, vocab: Size, options: XLNetOptions = XLNetOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        return length + most_asked(length, 1 / self.options.one_in)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The text, its queries, and who sees whom.

        Notes ``hidden``, the tokens of the text that are predicted (b, n), and ``order``, the place
        of each in z.
        """
        check_tokens("xlnet", batch, self.vocab)
        order = drawn(batch, 1 / self.options.one_in, generator)
        note("hidden", order.predicted)
        note("order", order.rank)
        return asked_beside(batch, order, self._allowed(order), self.vocab)

    def _allowed(self, order: Order) -> Tensor:
        """Each row sees the contents up to a rank, and no row sees a query."""
        contents = order.rank
        if self.options.context == "open":
            contents = contents.maximum(order.first - 1)
        last = torch.cat([contents, order.rank_of_asked - 1], 1)
        unseen = torch.full_like(order.asked, len(order.rank[0]))
        return torch.cat([order.rank, unseen], 1)[:, None] <= last[:, :, None]


# ---- card

(n,) = letters("n")

CARD = Card(
    __doc__,
    name="xlnet",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=n / 6,
        hidden="one token of 6, from its own query and from those before it in a random order",
        models=XLNet.models,
    ),
    options=XLNetOptions,
    build=XLNet,
    variants=({"context": "open"}, {"one_in": 1}, {"one_in": 2}),
    aliases=("permutation_lm",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(12)[None]
    >>> asked = attnlab.build("xlnet", vocab=12).prepare(Batch(tokens, tokens))
    >>> asked.inputs[0].tolist()  # the text, and a query for each of two tokens
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12]
    >>> asked.structure.allowed[0, 12:].sum(-1).tolist()  # tokens that they see
    [10, 11]
    >>> torch.equal(asked.structure.positions[0, 12:], asked.targets[0, 12:])  # of their own
    True
    """,
)
