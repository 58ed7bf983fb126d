r"""QK-norm: queries and keys are normalised before they are compared, so scores are bounded.

A score grows with the length of its query and of its key. In the training of large models both can
grow without end, until the softmax looks at one key alone and training diverges. Here both are
divided by their root mean square and multiplied by a learned gain, one number for each coordinate:

$$s_{ij} = \frac{R_i\,\hat q_i \cdot R_j\,\hat k_j}{\sqrt d},\qquad \hat q =
\frac{q}{\sqrt{\mathrm{mean}(q^2) + \epsilon}} \odot \gamma_q,\qquad \hat k =
\frac{k}{\sqrt{\mathrm{mean}(k^2) + \epsilon}} \odot \gamma_k$$

R_i is the rotation of position i, if there is one. With gains of 1 each row has the length √d, so
no score is larger than √d, and multiplying W_Q or W_K by a number changes nothing.

Models of today have three variants, and the weights of one mean something else in another:

``per_head``        the mean is that of one head, and all heads share the d gains (Qwen3, Gemma 3)
``whole``           the mean is that of all heads together, before they are split; h · d gains for
                    queries and g · d for keys (OLMo 2)
``after_rotation``  the mean is that of one head, the norm stands after the rotation and has no gain
                    (Llama 4, in the layers that rotate)

A rotation keeps the length of a row, so without gains the norm can stand on either side of it. With
gains it cannot, unless both coordinates of each rotated pair have the same gain.

Cost: $2 h n m (d + e)$ FLOPs, as full attention; the norms are linear in the length.

``naive``  the equation, of queries and keys that are normalised and turned.
``fused``  PyTorch's ``scaled_dot_product_attention``.

The papers' letters: Henry et al. scale rows of length 1 by a learned g instead of √d and gains.

Common mistakes: to normalise cached keys a second time, for the cache of ``step`` holds normalised
keys; to load the gains of Gemma or Qwen3-Next as they are, which are stored less 1.

Departures.
- RMSNorm, as in the models above, where one paper divides by the length and one takes LayerNorm
- a query without allowed keys gives zeros

Gives up. The length of a query can no longer say how sharply it looks.

Henry, Dachapally, Pawar, Chen. Query-Key Normalization for Transformers. Findings of EMNLP 2020,
arXiv:2010.04245. Dehghani et al. Scaling Vision Transformers to 22 Billion Parameters. ICML 2023,
arXiv:2302.05442.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns, sdpa
from attnlab.core.attention import DenseAttention
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, queries_per_key_head
from attnlab.core.norms import RMSNorm
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Mask
from attnlab.core.positions import Bias, PositionScheme, biased
from attnlab.core.probe import note
from attnlab.core.shapes import GroupKeys, GroupValues, Outputs, Queries, checked
from attnlab.core.softmax import masked_softmax

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class QKNormOptions(Options):
    """``norm``  over what the mean is taken, and when: per_head, whole or after_rotation."""

    norm: Literal["per_head", "whole", "after_rotation"] = "per_head"


# ---- naive


@form
def naive(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """The equation, dense. ``q`` and ``k`` are normalised and turned."""
    repeats = queries_per_key_head(q, k)
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = note("scores", biased(q @ k.mT * scale, bias))
    return note("weights", masked_softmax(scores, patterns.dense_of(mask, q, k))) @ v


# ---- fused


@checked
def fused(
    q: Queries, k: GroupKeys, v: GroupValues, *,
    mask: Mask = None, bias: Bias = None, scale: float | None = None,
) -> Outputs:  # fmt: skip
    """PyTorch's ``scaled_dot_product_attention`` of queries and keys that are normalised."""
    queries_per_key_head(q, k)
    return sdpa.attend(q, k, v, mask=mask, bias=bias, scale=scale)


FORMS = {"naive": naive, "fused": fused}

# ---- module


class NormedHeads(Heads):
    """Projections whose queries and keys are normalised, before they are turned or after."""

    def __init__(self, dim: int, heads: int, *, options: QKNormOptions, **given: Any) -> None:
        super().__init__(dim, heads, **given)
        self.norm = options.norm
        if self.norm != "after_rotation":
            q, k = (self.heads, self.kv_heads) if self.norm == "whole" else (1, 1)
            self.query_norm = RMSNorm(q * self.head_dim, eps=EPSILON)
            self.key_norm = RMSNorm(k * self.head_dim, eps=EPSILON)

    def compared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.norm == "after_rotation":
            return q, k
        return self._normed(self.query_norm, q), self._normed(self.key_norm, k)

    def projected(self, *args: Any, **given: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().projected(*args, **given)
        if self.norm == "after_rotation":
            q, k = (F.rms_norm(x, x.shape[-1:], eps=EPSILON) for x in (q, k))
        return q, k, v

    def _normed(self, norm: nn.Module, x: Tensor) -> Tensor:
        whole = self.split(norm(self.join(x)), x.shape[-1]) if self.norm == "whole" else norm(x)
        return whole.to(x.dtype)


class QKNormAttention(DenseAttention):
    """Multi-head attention with normalised queries and keys: (b, n, dim) → (b, n, dim)."""

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        kv_heads: Size | None = None, causal: bool = False,
        form: Literal["naive", "fused"] = "fused", bias: bool = False,
        options: QKNormOptions = QKNormOptions(), positions: PositionScheme | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, heads, FORMS[form], kv_heads=kv_heads, causal=causal, bias=bias,
            positions=positions, projections=partial(NormedHeads, options=options),
        )  # fmt: skip
        self.form, self.options = form, options


# ---- card

h, n, m, d, e = letters("h n m d e")

CARD = Card(
    __doc__,
    name="qk_norm",
    family="dense",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=QKNormOptions,
    time=2 * h * n * m * (d + e),
    memory={"naive": h * n * m, "fused": h * n * (d + e)},
    notes={"naive": ("scores", "weights")},
    variants=({"norm": "whole", "kv_heads": 2}, {"norm": "after_rotation"}, {"kv_heads": 2}),
    build=QKNormAttention,
    aliases=("query_key_norm", "query_key_normalization"),
)
