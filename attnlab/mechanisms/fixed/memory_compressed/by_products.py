"""The fast form: one product for all places of a window, PyTorch's SDPA over the slots."""

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Size
from attnlab.core.precision import wide
from attnlab.core.shapes import checked
from attnlab.mechanisms.fixed.memory_compressed.slots import (
    refuse_gaps,
    unfolded,
    visible_slots,
    with_null,
    without_padded,
)


@checked
def fused(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    key_kernel: Float[Tensor, "h k d d"],
    value_kernel: Float[Tensor, "h k e e"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    stride: Size = 3,
    null_key: Float[Tensor, "h d"] | None = None,
    null_value: Float[Tensor, "h e"] | None = None,
) -> Float[Tensor, "b h n e"]:
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


def convolved(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    windows = unfolded(wide(x), kernel.shape[1], stride).mT  # (b, h, slots, width, d)
    return windows.flatten(-2) @ wide(kernel).flatten(1, 2)


def sdpa(q: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    out = F.scaled_dot_product_attention(q.to(keys.dtype), keys, values, attn_mask=seen)
    return out.to(q.dtype)
