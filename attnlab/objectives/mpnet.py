r"""Masked and permuted language model: tokens are predicted in a random order, and all are seen.

For each text an order $z$ is drawn, and the last 15 % of its tokens are predicted, as in the
permutation language model. There a query does not know that tokens come after it, nor where: it
sees t - 1 positions of n. In a masked language model it sees all positions, but no token that is
predicted beside it. Here it sees both: the tokens before it in the order, and for itself and those
after it a mask M at the position of each:

$$\ell = -\sum_{t > c} \log p(x_{z_t} \mid x_{z_{<t}}, M_{z_{\ge t}})$$

The layers read the text, the masks, and the queries, which begin as masks. Every row sees each of
the n positions exactly once, as a token or as a mask:

================================  ===================  ====================
row                               sees the tokens      sees the masks
================================  ===================  ====================
token of the context              $z_{\le c}$          $z_{> c}$
mask                              $z_{\le c}$          $z_{> c}$
predicted token, the t-th in z    $z_{\le t}$          $z_{> t}$
query of the t-th                 $z_{< t}$            $z_{\ge t}$
================================  ===================  ====================

The columns of tokens alone are those of ``xlnet`` with an open context.

``naive``       the table, pair by pair.
``vectorised``  one comparison of ranks for the batch.

Common mistakes: the mask of a token that is seen already, which shows a position twice; masks and
queries at positions after the text, not at those of their tokens.

Departures.
- single tokens, not whole words; positions as the model has them, where the paper's are relative

Song, Tan, Qin, Lu, Liu. MPNet: Masked and Permuted Pre-training for Language Understanding. NeurIPS
2020, arXiv:2004.09297, sections 2.2 and 2.3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size, check_share
from attnlab.core.probe import note
from attnlab.objectives.batches import Batch, CrossEntropy, logits_of, one_by_one
from attnlab.objectives.hiding import check_tokens
from attnlab.objectives.permuted import Order, asked_beside, drawn, most_asked

# ---- options


@dataclass(frozen=True, kw_only=True)
class MPNetOptions(Options):
    """rate: the share of the real tokens of each row that is predicted, at least one token."""

    rate: float = 0.15

    def check(self) -> None:
        check_share("rate", self.rate)


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: MPNetOptions = MPNetOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-Σ log p(x_{z_t} | x_{z_<t}, M_{z_≥t}) over the last tokens of each order z."""
    order = drawn(batch, options.rate, generator)
    allowed = torch.stack(
        [
            _table(rank, [rank[token] for token in asked], first)
            for rank, asked, (first,) in zip(
                order.rank.tolist(), order.asked.tolist(), order.first.tolist(), strict=True
            )
        ]
    )
    asked = asked_beside(batch, order, allowed, vocab, copies=2)
    return one_by_one(logits_of(model, asked), asked.targets)


def _table(rank: list[int], asked: list[int], c: int) -> Tensor:
    """Who sees whom, for the ranks of the tokens, and of those that are asked."""
    of_tokens = [{j for j in rank if j < c or j <= t} for t in rank]
    of_masks = [{j for j in rank if j < c} for _ in asked]
    of_queries = [{j for j in rank if j < t} for t in asked]
    return torch.tensor(
        [
            [*[j in seen for j in rank], *[j not in seen for j in asked], *[False for _ in asked]]
            for seen in (*of_tokens, *of_masks, *of_queries)
        ]
    )


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: MPNetOptions = MPNetOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return MPNet(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}

# ---- module


class MPNet(CrossEntropy):
    """Predicts the last tokens of each row in a random order, with masks at all that is hidden.

    vocab: how many tokens the text has. The mask is the token after them, so the model needs one
        more, and room for masks and queries behind the text.
    """

    models = ("token_classifier",)
    orders = "placed"
    specials = 1

    def __init__(self, vocab: Size, options: MPNetOptions = MPNetOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def longest(self, length: int) -> int:
        return length + 2 * most_asked(length, self.options.rate)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The text, its masks and queries, and who sees whom.

        Notes ``hidden``, the tokens of the text that are predicted (b, n), and ``order``, the place
        of each in z.
        """
        check_tokens("mpnet", batch, self.vocab)
        order = drawn(batch, self.options.rate, generator)
        note("hidden", order.predicted)
        note("order", order.rank)
        return asked_beside(batch, order, _allowed(order), self.vocab, copies=2)


def _allowed(order: Order) -> Tensor:
    """Each row sees the tokens up to a rank, and of all after it the mask."""
    asked, context = order.rank_of_asked, order.first - 1
    last = torch.cat([order.rank.maximum(context), context.expand_as(asked), asked - 1], 1)
    tokens = order.rank[:, None] <= last[:, :, None]
    masks = asked[:, None] > last[:, :, None]
    return torch.cat([tokens, masks, torch.zeros_like(masks)], -1)


# ---- card

(n,) = letters("n")

CARD = Card(
    __doc__,
    name="mpnet",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=0.15 * n,
        hidden="15 % of the tokens, from queries that see those before it in a random order",
        models=MPNet.models,
    ),
    options=MPNetOptions,
    build=MPNet,
    variants=({"rate": 0.5}, {"rate": 1}),
    aliases=("masked_permuted_lm",),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> tokens = torch.arange(20)[None]
    >>> asked = attnlab.build("mpnet", vocab=20).prepare(Batch(tokens, tokens))
    >>> asked.inputs[0, 20:].tolist()  # three masks and three queries stand behind the text
    [20, 20, 20, 20, 20, 20]
    >>> asked.structure.allowed[0].sum(-1).unique().tolist()  # each row sees every position once
    [20]
    """,
)
