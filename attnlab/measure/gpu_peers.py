"""Kernels of other packages that need a GPU, each as a layer beside one of our mechanisms.

FlexAttention comes with PyTorch; flash-attn and flash-linear-attention (fla) are measured where
they can be imported. `attnlab.measure.peers` has the packages that run on a CPU.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.measure.peers import Made, Peer, projected


def flex_attention(n: int, dim: int, heads: int) -> Made:
    """All pairs, by the kernel that FlexAttention compiles."""
    from torch.nn.attention.flex_attention import flex_attention as uncompiled

    compiled = torch.compile(uncompiled, fullgraph=True, dynamic=False)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = compiled(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return out.transpose(1, 2)

    return projected(dim, heads, attend)


def flash_attention(n: int, dim: int, heads: int) -> Made:
    """All pairs; the package takes half precision alone."""
    from flash_attn import flash_attn_func

    return projected(dim, heads, flash_attn_func)


def _fla(layer: str, **fixed: Any) -> Callable[[int, int, int], Made]:
    """A layer of fla by name; its result is a tuple of which the output is the first."""

    def make(n: int, dim: int, heads: int) -> Made:
        import fla.layers

        made: nn.Module = getattr(fla.layers, layer)(hidden_size=dim, num_heads=heads, **fixed)
        return made, lambda x: made(x)[0]

    return make


GPU_PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "FlexAttention", "torch", "full", flex_attention,
            "all n keys seen and computed, by a compiled kernel",
        ),
        Peer(
            "flash-attn", "flash_attn", "full", flash_attention,
            "all n keys seen and computed, in half precision alone",
        ),
        Peer(
            "fla MultiScaleRetention", "fla", "retention", _fla("MultiScaleRetention"),
            "all keys of the past in a state; values twice as wide",
        ),
        Peer(
            "fla GatedLinearAttention", "fla", "gated_linear", _fla("GatedLinearAttention"),
            "all keys of the past in a state; queries and keys half as wide",
        ),
        Peer(
            "fla DeltaNet", "fla", "deltanet", _fla("DeltaNet"),
            "all keys of the past in a state; a short convolution before it",
        ),
        Peer(
            "fla GatedDeltaNet", "fla", "gated_deltanet", _fla("GatedDeltaNet", head_dim=64),
            "all keys of the past in a state; heads of 64, values twice as wide",
        ),
    )
}  # fmt: skip
