"""Cross-attention to the last layers of an encoder, not to its output alone.

A decoder layer that reads the last k encoder layers has their vectors side by side as its source:
k·m keys and values in the place of m. So it can take from an earlier layer what later ones have
changed, and the parameters stay the same for every k, as one matrix makes the keys of all.

Wang, Wu, Liu, Cai, Zhu, Gan, Han. HAT: Hardware-Aware Transformers for Efficient Natural Language
Processing. ACL 2020, arXiv:2005.14187, section 3.1 (arbitrary encoder-decoder attention). As in its
authors' code, the last layer's vectors are normalised, if the stack has a last norm, and those of
earlier layers are not.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.architecture.depth.plain import Plain
from attnlab.models.layers import Given, Stack


class LayersOfStack(Stack):
    """A stack whose output has the vectors of its last layers side by side in the width.

    most: how many of them; the last one comes first.
    """

    def __init__(self, stack: Stack, most: int) -> None:
        nn.Module.__init__(self)
        self.blocks, self.norm, self.depth, self.most = stack.blocks, stack.norm, stack.depth, most
        if not isinstance(self.depth, Plain):
            raise ValueError(
                "a decoder that reads several encoder layers needs depth='plain', whose layers run "
                f"one after the other, got {type(self.depth).__name__}"
            )

    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None,
        *source: Any, structure: Any = None, checkpoint: bool = False,
    ) -> Float[Tensor, "b n wide"]:  # fmt: skip
        seen: list[Tensor] = []
        for block in self.blocks:
            layer = Given(block, padding, None, None, structure)  # type: ignore[arg-type]
            layer.recomputed = checkpoint
            seen.append(x := layer(x))
        earlier = seen[-2 : -self.most - 1 : -1]
        return torch.cat([self.norm(x), *earlier], dim=-1)


class ReadsLayers(nn.Module):
    """Cross-attention that reads the first ``layers`` of several vectors of each source token."""

    def __init__(self, attention: nn.Module, dim: int, layers: int) -> None:
        super().__init__()
        self.attention, self.dim, self.layers = attention, dim, layers

    def extra_repr(self) -> str:
        return f"layers={self.layers}"

    def forward(
        self, x: Float[Tensor, "b n dim"], *, context: Float[Tensor, "b m wide"],
        context_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:  # fmt: skip
        parts = context.split(self.dim, dim=-1)[: self.layers]
        padding = None if context_padding is None else context_padding.repeat(1, self.layers)
        out: Tensor = self.attention(x, context=torch.cat(parts, dim=1), context_padding=padding)
        return out


def read_several(model: Any, layers: Sequence[int], most: int) -> None:
    """Let layer i of the decoder of ``model`` read the last ``layers[i]`` encoder layers; the
    encoder hands on ``most`` of them."""
    model.encoder = LayersOfStack(model.encoder, most)
    model.memory_dim = most * model.dim
    for block, number in zip(model.decoder.blocks, layers, strict=True):
        block.cross = ReadsLayers(block.cross, model.dim, number)
