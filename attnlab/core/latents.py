r"""Attention through l latent vectors: the sequence is read into them, and read out of them.

$$H = \mathrm{softmax}\left(\frac{I K^\top}{\sqrt d}\right) V,\qquad
O = \mathrm{softmax}\left(\frac{Q K_H^\top}{\sqrt d}\right) V_H$$

The queries I of the latents do not depend on the sequence; $K_H$ and $V_H$ are made of H. Both
attentions compare l vectors with n: no n × n map is made.

``naive``  both attentions by the equation.
``fused``  both by PyTorch's ``scaled_dot_product_attention``.

These are the forms of all mechanisms whose tokens meet in latents; on their pages stands what the
mechanisms differ in, which is what they do before, between and after.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import Queries, checked
from attnlab.core.softmax import masked_softmax

LatentQueries = Float[Tensor, "b h l d"]
LatentKeys = Float[Tensor, "b h m d"]
Real = Bool[Tensor, "b m"] | None
Form = Literal["naive", "fused"]


class Attend(Protocol):
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
        """Queries (b, h, n, d) over m keys and values, those of real tokens: (b, h, n, d)."""


def _by_equation(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
    allowed = None if padding is None else padding[:, None, None]
    scores = note("scores", upcast(q) @ upcast(k).mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, allowed))
    return (weights @ upcast(v)).to(v.dtype)


def _by_torch(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None = None) -> Tensor:
    allowed = None if padding is None else padding[:, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


ATTEND: dict[Form, Attend] = {"naive": _by_equation, "fused": _by_torch}
"""One of the two attentions, for the modules; that of ``naive`` notes scores and weights."""


@checked
def naive(
    q: Queries, i: LatentQueries, k: LatentKeys, v: LatentKeys, *, padding: Real = None
) -> Queries:
    """The latents attend to the tokens, and q to what they have read, H as keys and values."""
    read = _by_equation(upcast(i), upcast(k), upcast(v), padding)
    return _by_equation(upcast(q), read, read).to(v.dtype)


@checked
def fused(
    q: Queries, i: LatentQueries, k: LatentKeys, v: LatentKeys, *, padding: Real = None
) -> Queries:
    """``naive`` by PyTorch's ``scaled_dot_product_attention``."""
    read = _by_torch(upcast(i), upcast(k), upcast(v), padding)
    return _by_torch(upcast(q), read, read).to(v.dtype)


FORMS: dict[str, Callable[..., Tensor]] = {"naive": naive, "fused": fused}
