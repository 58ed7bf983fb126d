r"""Attention through l latent vectors: the sequence is read into them, and read out of them.

$$H = \mathrm{softmax}\left(\frac{I K^\top}{\sqrt d}\right) V,\qquad
O = \mathrm{softmax}\left(\frac{Q K_H^\top}{\sqrt d}\right) V_H$$

The queries I of the latents do not depend on the sequence; $K_H$ and $V_H$ are made of H. Both
attentions compare l vectors with n: no n × n map is made.
"""

from collections.abc import Callable
from typing import Protocol

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import wide
from attnlab.core.probe import note
from attnlab.core.softmax import masked_softmax

LatentQueries = Float[Tensor, "b h l d"]
LatentKeys = Float[Tensor, "b h m d"]
Real = Bool[Tensor, "b m"] | None
Between = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From what the latents have read (b, h, l, d) to the keys and values that are read out."""


class Attend(Protocol):
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """Queries (b, h, n, d) over m keys and values, those of real tokens: (b, h, n, d)."""


def dense(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
    """By the equation; notes scores and weights."""
    allowed = None if padding is None else padding[:, None, None]
    scores = note("scores", wide(q) @ wide(k).mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, allowed))
    return (weights @ wide(v)).to(v.dtype)


def fused(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
    """By PyTorch's ``scaled_dot_product_attention``."""
    allowed = None if padding is None else padding[:, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


ATTEND: dict[str, Attend] = {"naive": dense, "fused": fused}


def through(
    attend: Attend, q: Tensor, i: Tensor, k: Tensor, v: Tensor, padding: Tensor | None
) -> Tensor:
    """The two attentions one after the other, with H itself as keys and values."""
    read = attend(wide(i), wide(k), wide(v), padding)
    return attend(wide(q), read, read).to(v.dtype)
