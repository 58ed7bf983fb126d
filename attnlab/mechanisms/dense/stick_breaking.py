r"""Stick-breaking attention: the newest key takes its share, and older ones share what is left.

A softmax compares all keys at once. Here the keys are asked one after the other, the newest first,
as a stick is broken: each takes a share $\sigma(z_{ij})$ of what those after it have left.

$$o_i = \sum_{j < i} A_{ij}\, v_j,\qquad A_{ij} = \sigma(z_{ij}) \prod_{j < t < i} \big(1 -
\sigma(z_{it})\big),\qquad z_{ij} = \frac{q_i \cdot k_j}{\sqrt d}$$

Of two keys that a query likes equally, the newer gets more, so the layer knows the order of its
tokens without positions. With all scores 0 the shares are 1/2, 1/4, 1/8 …; with huge scores the
newest key has all. What is left in the end is a share as well:

$$r_i = \prod_{t < i} \big(1 - \sigma(z_{it})\big) = 1 - \sum_{j < i} A_{ij}$$

A token does not attend to itself (``own="none"``): the first one gets zeros. With ``own="rest"`` it
takes the rest, $r_i\, v_i$; with ``own="key"`` it is a key like the others and the first to break.

Cost: $2 h n m (d + e)$ FLOPs, as full attention, and the same cache.

``naive``       the stick, key by key from the newest on.
``logarithms``  $\log A_{ij} = \log \sigma(z_{ij}) + \sum_{j < t < i} \log \sigma(-z_{it})$: one
                running sum for each query.

The paper's letters: $\beta_{ij}$ is our $\sigma(z_{ij})$.

Common mistakes: the own key among the factors of the product; products of many factors, which
underflow where their logarithms do not; a masked key whose share is left at 1/2.

Departures.
- dense; the released kernels go block by block and may stop where nothing of the stick is left
- the query's own key takes no part unless ``own`` says so

Gives up. Weights are no softmax: a row sums to less than one unless the rest goes to the token.

Tan, Yang, Courville, Panda, Shen. Scaling Stick-Breaking Attention: An Efficient Implementation and
In-depth Study. ICLR 2025, arXiv:2410.17980.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.attention import SelfAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Rotation
from attnlab.core.probe import note
from attnlab.core.shapes import Keys, Outputs, Queries, Values, checked


@dataclass(frozen=True, kw_only=True)
class StickBreakingOptions(Options):
    """Whether a token attends to itself.

    ``own``  "none": never; "rest": it takes what is left of its stick; "key": it is a key like the
             others, and the first that is asked.
    """

    own: Literal["none", "rest", "key"] = "none"


DEFAULT = StickBreakingOptions()

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, *, mask: Mask = None, options: StickBreakingOptions = DEFAULT
) -> Outputs:
    """The stick, key by key from the newest on. What comes after a query is always masked."""
    asked, own = _asked(mask, q, k, options)
    share = torch.sigmoid(note("scores", q @ k.mT * q.shape[-1] ** -0.5)) * asked
    left, columns = torch.ones_like(share[..., 0]), []
    for j in reversed(range(k.shape[2])):
        columns.append(left * share[..., j])
        left = left * (1 - share[..., j])
    weights = torch.stack(columns[::-1], dim=-1)
    return note("weights", weights + _taken(left[..., None], own)) @ v


def _taken(rest: Tensor, own: Tensor) -> Tensor:
    """The rest, for the query's own key; or for nobody, which is noted as "sink"."""
    note("sink", rest * ~own.any(-1, keepdim=True))
    return rest * own


def _asked(
    mask: Mask, q: Tensor, k: Tensor, options: StickBreakingOptions
) -> tuple[Tensor, Tensor]:
    """Which keys break the stick of each query, and which key takes the rest."""
    n, m = q.shape[2], k.shape[2]
    past = patterns.causal().dense(n, m, q.device)
    own = past & ~past.tril(m - n - 1)
    allowed = patterns.dense_of(mask, q, k)
    if allowed is not None:
        past, own = past & allowed, own & allowed
    nobody = torch.zeros_like(own)
    if options.own == "key":
        return past, nobody
    return past & ~own, own if options.own == "rest" else nobody


# ---- logarithms


@form
def logarithms(
    q: Queries, k: Keys, v: Values, *, mask: Mask = None, options: StickBreakingOptions = DEFAULT
) -> Outputs:
    """Sums of logarithms, from the newest key on."""
    asked, own = _asked(mask, q, k, options)
    scores = note("scores", q @ k.mT * q.shape[-1] ** -0.5)
    kept = F.logsigmoid(-scores).masked_fill(~asked, 0)  # what each key leaves
    left = kept.flip(-1).cumsum(-1).flip(-1)  # by it and all newer ones
    weights = (F.logsigmoid(scores) + (left - kept)).masked_fill(~asked, -torch.inf).exp()
    return note("weights", weights + _taken(left[..., :1].exp(), own)) @ v


FORMS = {"naive": naive, "logarithms": logarithms}

# ---- module


class StickBreakingAttention(SelfAttention):
    """Multi-head stick-breaking attention, causal: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        form: Literal["naive", "logarithms"] = "logarithms", bias: bool = False,
        options: StickBreakingOptions = DEFAULT, positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dim, heads, causal=True, bias=bias, positions=positions)
        self.form, self.options = form, options

    def attend(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """By the form that was chosen."""
        mask = patterns.visible(True, padding)
        return FORMS[self.form](q, k, v, mask=mask, options=self.options)


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="stick_breaking",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="always",
    causal_reason="keys are asked from the newest to the oldest",
    options=StickBreakingOptions,
    time=2 * h * n * m * (d + e),
    launches={"naive": n},
    memory=h * n * m,
    notes=dict.fromkeys(FORMS, ("scores", "weights", "sink")),
    variants=({"own": "rest"}, {"own": "key"}),
    build=StickBreakingAttention,
)
