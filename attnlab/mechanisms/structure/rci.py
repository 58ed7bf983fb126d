r"""Row-column intersection (RCI): the answer is where the right row and the right column meet.

To find in a table the cell that answers a question, a model reads each row and each column as a
text of its own, with the question, and gives it two logits $z$: no, yes. Rows and columns have a
model each. The score of cell (i, j) is a sum, so a table of r rows and c columns takes r + c
readings, not r · c:

$$s_{ij} = \log p_i^{\mathrm{row}} + \log p_j^{\mathrm{column}},\qquad p = \frac{e^{z_1}}{e^{z_0} +
e^{z_1}}$$

The question and the text stand in one sequence of n tokens. In each layer of the encoder, token i
attends to the tokens $S_i$:

$$o_i = \sum_{j \in S_i} \frac{e^{q_i \cdot k_j / \sqrt d}}{\sum_{j' \in S_i} e^{q_i \cdot k_{j'} /
\sqrt d}}\, v_j$$

Interaction model: $S_i$ is the question and the text, and z is a linear map of the first token.

Representation model: $S_i$ is the question for its own tokens and the text for its own, each with
weights of its own, so the vectors of a table can be computed before anyone asks. Question and text
become one vector each, a and b, which meet in a last linear map:

$$z = W\,[a;\; b;\; a \odot b;\; (a - b)^2] + w_0$$

Cost of a layer: $2 h n^2 (d + e)$ FLOPs for each reading.

``naive``  softmax over the tokens of $S_i$.
``fused``  PyTorch's kernel, with $S_i$ as a mask.

``PairAttention`` is one layer of either model. ``joined`` and ``cell_scores`` are the last two
steps; ``attnlab.models.pair_readers`` holds a whole model of each kind.

Facts. The best cell is that of the best row and the best column. A new row changes no score of
another row, but the text of every column. As a row is read alone, no question that compares rows
(which one is the largest?) can be answered by reading.

Trap: where the answer of a question is known as a text alone, every row and column that holds this
text is marked as right, wherever it stands.

Departures.
- scores of cells are sums of log probabilities; score='logit' is the released sum. There a cell's
  score is the sum of the two logits of "yes". It leaves the logits of "no" out, and ranks the cells
  of two tables otherwise.

Gives up. A row is read without the other rows, so rows cannot be compared.

Glass, Canim, Gliozzo, Chemmengath, Kumar, Chakravarti, Sil, Pan, Bharadwaj, Fauceglia. Capturing
Row and Column Semantics in Transformer Based Question Answering over Tables. NAACL 2021,
arXiv:2104.08303.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnlab.core import sdpa
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Outputs,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.core.suggest import check_choice
from attnlab.structures.text_pairs import TextPairs


@dataclass(frozen=True, kw_only=True)
class RCIOptions(Options):
    """How a question and a text are read.

    ``model``  ``interaction``: together; ``representation``: each alone, by an encoder of its own.
    """

    model: Literal["interaction", "representation"] = "interaction"


# ---- naive


@form
def naive(
    q: Queries, k: SelfKeys, v: SelfValues, *,
    structure: TextPairs, options: RCIOptions = RCIOptions(),
) -> Outputs:  # fmt: skip
    """What each token takes from the tokens that it reads."""
    mask = _allowed(q, structure, options)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    weights = note("weights", masked_softmax(scores, mask))
    return weights @ v


# ---- fused


@checked
def fused(
    q: Queries, k: SelfKeys, v: SelfValues, *,
    structure: TextPairs, options: RCIOptions = RCIOptions(),
) -> Outputs:  # fmt: skip
    """``naive`` by PyTorch's ``scaled_dot_product_attention``."""
    return sdpa.attend(q, k, v, mask=_allowed(q, structure, options), bias=None, scale=None)


def _allowed(q: Tensor, structure: TextPairs, options: RCIOptions) -> Tensor:
    """S, as (b, 1, n, n)."""
    structure.check_fits(len(q), q.shape[2], q.device)
    mask: Tensor = structure.together if options.model == "interaction" else structure.apart
    return mask


FORMS = {"naive": naive, "fused": fused}

# ---- module


class PairAttention(Layer):
    """One layer that reads pairs of a question and a text: (b, n, dim) → (b, n, dim).

    In the representation model the text has projections of its own, ``text_heads``.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, form: Literal["naive", "fused"] = "fused",
        bias: bool = False, options: RCIOptions = RCIOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.form, self.options = form, options
        self.heads = Heads(dim, heads, bias=bias)
        apart = options.model == "representation"
        self.text_heads = Heads(dim, heads, bias=bias) if apart else None

    @checked
    def forward(
        self, x: Tokens, padding: TokenPadding = None, *, structure: TextPairs | None = None
    ) -> Tokens:
        """``structure`` is the pairs; ``padding`` (b, n), if given, is that of the structure."""
        structure = TextPairs.fitting(structure, x, padding)
        q, k, v = self.heads.project(x, padding=structure.padding)
        if self.text_heads is not None:
            in_text = structure.in_text[:, None, :, None]
            of_text = self.text_heads.project(x, padding=structure.padding)
            q, k, v = (
                torch.where(in_text, text, asked)
                for text, asked in zip(of_text, (q, k, v), strict=True)
            )
        out = FORMS[self.form](q, k, v, structure=structure, options=self.options)
        if self.text_heads is None:
            return self.heads.merge(out)
        merged = self.heads.merge(out), self.text_heads.merge(out)
        return torch.where(structure.in_text[..., None], merged[1], merged[0])


# ---- scores


@checked
def joined(
    a: Float[Tensor, "... dim"], b: Float[Tensor, "... dim"]
) -> Float[Tensor, "... four_dim"]:
    """[a; b; a ⊙ b; (a - b)²]: a question and a text, ready for the last linear map."""
    return torch.cat([a, b, a * b, (a - b).square()], -1)


@checked
def cell_scores(
    rows: Float[Tensor, "... r two"], columns: Float[Tensor, "... c two"],
    *, score: Literal["probability", "logit"] = "probability",
) -> Float[Tensor, "... r c"]:  # fmt: skip
    """The scores of all cells from the logits (no, yes) of r rows and c columns.

    ``score``  ``probability``: the sum of the log probabilities of "yes"; ``logit``: of its logits,
               as in the released code.
    """
    check_choice("score", score, ("probability", "logit"))
    if rows.shape[-1] != 2:
        raise ValueError(
            "rows (…, r, 2) and columns (…, c, 2) hold two logits each, no and yes, got "
            f"{tuple(rows.shape)} and {tuple(columns.shape)}"
        )
    if score == "probability":
        rows, columns = rows.log_softmax(-1), columns.log_softmax(-1)
    return rows[..., :, None, 1] + columns[..., None, :, 1]


# ---- card

h, n, d, e = letters("h n d e")

CARD = Card(
    __doc__,
    name="rci",
    family="structure",
    role="attend",
    forms=FORMS,
    options=RCIOptions,
    structure=TextPairs,
    causal="never",
    causal_reason="a question and a text attend to each other in both directions",
    positions_reason="a question and a text are two texts in one sequence, and their positions are "
    "added at the embedding",
    time=2 * h * n**2 * (d + e),
    memory={"naive": h * n**2, "fused": n**2},
    notes={"naive": ("weights",)},
    variants=({"model": "representation"},),
    build=PairAttention,
    aliases=("row_column_intersection",),
)
