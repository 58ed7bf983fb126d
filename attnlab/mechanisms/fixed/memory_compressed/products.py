"""The fused form: one matrix product for all places of a window, PyTorch's SDPA over the slots."""

from torch import Tensor
from torch.nn import functional as F

from attnlab.core.forms import form
from attnlab.core.options import Size
from attnlab.core.shapes import KeyPadding, Keys, Outputs, Queries, Values
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


@form(autocast=True)
def fused(
    q: Queries, k: Keys, v: Values, key_kernel: KeyKernel, value_kernel: ValueKernel, *,
    causal: bool = False, padding: KeyPadding = None, stride: Size = 3,
    null_key: NullKey = None, null_value: NullValue = None,
) -> Outputs:  # fmt: skip
    """One product for all places of a window; PyTorch's SDPA over the slots.

    Half precisions are summed in float32.
    """
    width = key_kernel.shape[1]
    refuse_gaps(width, stride)
    keys = convolved(without_padded(k, padding), key_kernel, stride)
    values = convolved(without_padded(v, padding), value_kernel, stride)
    seen = visible_slots(
        q.shape[2], k.shape[2], width=width, stride=stride,
        causal=causal, padding=padding, device=q.device,
    )  # fmt: skip
    return sdpa(q, *with_null(keys, values, seen, null_key, null_value))


@form(autocast=True)
def convolved(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    windows = unfolded(x, kernel.shape[1], stride).mT  # (b, h, slots, width, d)
    return windows.flatten(-2) @ kernel.flatten(1, 2)


def sdpa(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    out = F.scaled_dot_product_attention(q.to(keys.dtype), keys, values, attn_mask=seen)
    return out.to(q.dtype)
