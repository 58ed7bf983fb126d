r"""Memory-compressed attention: a strided convolution shortens keys and values.

To write an article from its many sources, Liu et al. read sequences of 11,000 tokens. Two layers
that are cheaper than full attention alternate (local, compressed, local, compressed, local).

**Compressed.** After their projection, a convolution of width w and stride s (3 and 3 in the paper)
is applied to keys and values, not to queries. Its $\lceil m / s \rceil$ outputs are called slots;
slot t stands for the positions $s t, \dots, s t + w - 1$:

$$\tilde k_t = \sum_{u < w} k_{s t + u}\, A_u,\qquad \tilde v_t = \sum_{u < w} v_{s t + u}\, B_u,
\qquad O = \mathrm{softmax}\!\left(\frac{Q \tilde K^\top}{\sqrt d}\right) \tilde V$$

with matrices $A_u$ and $B_u$ for each head.

**Local** (``kind="local"``, in ``local.py``). The sequence is cut into blocks of 256 positions, and
each position attends to its own block.

Time: $2 h \lceil m/s \rceil\, (w (d^2 + e^2) + n (d + e))$: quadratic like full attention, with a
third of its pairs for s = 3.

``naive``  the equations.
``fused``  each convolution as one matrix product over flattened windows; then PyTorch's
           ``scaled_dot_product_attention`` over the slots. Local layers: block by block.

Readings, where the paper is silent. "Masking is added to prevent the queries from attending to
future keys": query i attends to slot t if its *last* position, s t + w − 1, is not after i;
otherwise the slot would contain positions after i. So the first w − 1 queries have no slot: their
output is zero. With ``null=True`` there is one more slot, learned (it starts as zero), that all
queries attend to.

An incomplete window at the end is padded with zeros, so that no token is lost (for a causal query
such a slot is always in the future). Padded keys and values are zero before the convolution, and a
slot is allowed if one of its positions is valid, so padding does not change the output. The
convolution has no bias, and mixes the channels of one head.

A width and a stride of 1 with identity matrices give full attention, causal or not.

``step`` decodes. Its state is the slots so far and the last positions, which do not fill a window
yet: a third of a cache of keys and values.

Departures.
- an incomplete window at the end is padded with zeros
- queries attend to a slot from its last position on; before the first, their outputs are zero, or
  they attend to a learned null slot
- one kernel per head, without a bias

Gives up. A query attends only to mixtures of neighbouring tokens, never to a single token.

Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser, Shazeer. Generating Wikipedia by Summarizing Long
Sequences. ICLR 2018, arXiv:1801.10198, section 4.2.4.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.shapes import (
    KeyPadding,
    Keys,
    NewTokens,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.fixed.memory_compressed.local import LocalAttention
from attnlab.mechanisms.fixed.memory_compressed.options import (
    MemoryCompressedOptions,
    flops,
    naive_flops,
    scores,
)
from attnlab.mechanisms.fixed.memory_compressed.products import convolved, fused, sdpa
from attnlab.mechanisms.fixed.memory_compressed.slots import (
    KeyKernel,
    NullKey,
    NullValue,
    ValueKernel,
    refuse_gaps,
    unfolded,
    visible_slots,
    with_null,
    without_padded,
)

__all__ = [
    "CARD", "FORMS", "LocalAttention", "MemoryCompressedAttention", "MemoryCompressedOptions",
    "fused", "naive",
]  # fmt: skip

# ---- naive


@form
def naive(
    q: Queries, k: Keys, v: Values, key_kernel: KeyKernel, value_kernel: ValueKernel, *,
    causal: bool = False, padding: KeyPadding = None, stride: Size = 3,
    null_key: NullKey = None, null_value: NullValue = None,
) -> Outputs:  # fmt: skip
    """The equations (Liu et al., section 4.2.4); kernels (h, width, in, out), a matrix for each
    place of a window."""
    width = key_kernel.shape[1]
    refuse_gaps(width, stride)
    keys = _convolved(without_padded(k, padding), key_kernel, stride)
    values = _convolved(without_padded(v, padding), value_kernel, stride)
    seen = visible_slots(
        q.shape[2], k.shape[2], width=width, stride=stride,
        causal=causal, padding=padding, device=q.device,
    )  # fmt: skip
    return _weighted(q, *with_null(keys, values, seen, null_key, null_value))


def _convolved(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """The sum over the places of a window, term by term."""
    windows = unfolded(x, kernel.shape[1], stride)
    out = windows[..., 0] @ kernel[:, 0]
    for u in range(1, kernel.shape[1]):
        out = out + windows[..., u] @ kernel[:, u]
    return out


@form
def _weighted(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """softmax over the slots."""
    scores = note("scores", q @ keys.mT * q.shape[-1] ** -0.5)
    weights = note("weights", masked_softmax(scores, seen))
    return weights @ values


FORMS = {"naive": naive, "fused": fused}

# ---- module


class Compressed(NamedTuple):
    """The decoding state: the complete slots, the positions that later slots need, and the number
    of positions so far."""

    slots: KeyValueCache | None
    open: KeyValueCache
    length: int


class MemoryCompressedAttention(Layer):
    """Multi-head attention over compressed keys and values: (b, n, dim) → (b, n, dim).

    The kernels have h·kernel·(d² + e²) parameters.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, *,
        causal: bool = False, form: Literal["naive", "fused"] = "fused",
        options: MemoryCompressedOptions = MemoryCompressedOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        if options.kind == "local":
            raise ValueError(
                "kind='local' compresses nothing and is a layer of its own, "
                f"LocalAttention({dim}, {heads}, block={options.block})"
            )
        self.heads = Heads(dim, heads)
        self.causal, self.form, self.options = causal, form, options
        self.key_kernel = self._kernel(self.heads.head_dim)
        self.value_kernel = self._kernel(self.heads.value_dim)
        if options.null:
            self.null_key = nn.Parameter(torch.zeros(heads, self.heads.head_dim))
            self.null_value = nn.Parameter(torch.zeros(heads, self.heads.value_dim))

    def _kernel(self, size: int) -> nn.Parameter:
        shape = (self.heads.heads, self.options.kernel, size, size)
        return nn.Parameter(torch.randn(shape) / (self.options.kernel * size) ** 0.5)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self.heads.project(x, padding=padding)
        out = FORMS[self.form](
            q, k, v, self.key_kernel, self.value_kernel,
            causal=self.causal, padding=padding, stride=self.options.stride, **self._nulls(),
        )  # fmt: skip
        return self.heads.merge(out)

    def _nulls(self) -> dict[str, Tensor]:
        return (
            {"null_key": self.null_key, "null_value": self.null_value} if self.options.null else {}
        )

    @checked
    def step(self, x: NewTokens, state: Compressed | None = None) -> tuple[NewTokens, Compressed]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self.heads.project(x)
        new = self._extended(k, v, state)
        return self.heads.merge(self._attend(q, new)), new

    def _extended(self, k: Tensor, v: Tensor, state: Compressed | None) -> Compressed:
        """The state after more keys and values; complete windows become slots."""
        slots, rest, length = state or (None, None, 0)
        rest = KeyValueCache.extended(rest, k, v)
        full = max(0, (rest.keys.shape[2] - self.options.kernel) // self.options.stride + 1)
        if full:
            end = (full - 1) * self.options.stride + self.options.kernel
            keys = convolved(rest.keys[:, :, :end], self.key_kernel, self.options.stride)
            values = convolved(rest.values[:, :, :end], self.value_kernel, self.options.stride)
            made = (x[:, :, :full].to(k.dtype) for x in (keys, values))
            slots = KeyValueCache.extended(slots, *made)
        rest = KeyValueCache(*(x[:, :, full * self.options.stride :] for x in rest))
        return Compressed(slots, rest, length + k.shape[2])

    def _attend(self, q: Tensor, state: Compressed) -> Tensor:
        keys, values = state.slots or (q[:, :, :0], state.open.values[:, :, :0])
        last = (
            torch.arange(keys.shape[2], device=q.device) * self.options.stride
            + self.options.kernel
            - 1
        )
        i = torch.arange(state.length - q.shape[2], state.length, device=q.device)
        keys, values, seen = with_null(keys, values, last <= i[:, None], **self._nulls())
        if not keys.shape[2]:
            return values.new_zeros(*q.shape[:-1], values.shape[-1])
        return (_weighted if self.form == "naive" else sdpa)(q, keys, values, seen)


@checked
def layer(
    dim: Size, heads: Size, *,
    causal: bool = False, form: Literal["naive", "fused"] = "fused",
    options: MemoryCompressedOptions = MemoryCompressedOptions(),
) -> MemoryCompressedAttention | LocalAttention:  # fmt: skip
    """The layer of one kind: a compressed one, or the local one that it alternates with."""
    if options.kind == "local":
        return LocalAttention(dim, heads, causal=causal, form=form, block=options.block)
    return MemoryCompressedAttention(dim, heads, causal=causal, form=form, options=options)


# ---- card

CARD = Card(
    __doc__,
    name="memory_compressed",
    family="fixed",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=MemoryCompressedOptions,
    letters={"s": "stride", "w": "kernel", "c": "block"},
    positions_reason="a compressed key is made of several tokens and stands at no one position",
    time={"naive": naive_flops, "fused": flops},
    memory={"naive": scores, "fused": scores},
    notes={"naive": ("scores", "weights")},
    variants=(
        {"kernel": 2, "stride": 2, "null": True},
        {"kernel": 5, "stride": 2},
        {"kernel": 1, "stride": 1},
        {"kind": "local", "block": 4},
    ),
    build=layer,
)
