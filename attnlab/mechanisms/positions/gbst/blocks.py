"""The options of GBST, and the means over blocks of real characters for its fast form."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Count, Options, Size


@dataclass(frozen=True, kw_only=True)
class BlockOptions(Options):
    """The sizes to choose from, whether characters agree, and how many become one."""

    blocks: tuple[Size, ...] = (1, 2, 3, 4)
    calibrate: bool = False
    downsample: Size = 2

    def check(self) -> None:
        if not self.blocks or len(set(self.blocks)) < len(self.blocks):
            raise ValueError(f"blocks should be different sizes, at least one, got {self.blocks}")

    def length(self, n: int) -> int:
        """How many vectors n characters become: ⌈n / d_s⌉."""
        return -(-n // self.downsample)


@dataclass(frozen=True, kw_only=True)
class GBSTOptions(BlockOptions):
    """The options of the forms, and the width of the convolution before."""

    convolution: Count = 5


def real_first(x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
    """Real characters at the front, in their order, then zeros; and which are real, (b, n)."""
    if padding is None:
        return x, x.new_ones(x.shape[:2], dtype=torch.bool)
    order = (~padding).byte().argsort(dim=1, stable=True)
    real = padding.gather(1, order)
    moved = x.gather(1, order[..., None].expand_as(x))
    return moved.masked_fill(~real[..., None], 0), real


def block_means(x: Tensor, real: Tensor, size: int) -> Tensor:
    """(b, ⌈n / size⌉, dim): the mean of the real characters of each block; x is 0 at others."""
    size = min(size, x.shape[1])
    short = -x.shape[1] % size
    sums = F.pad(x, (0, 0, 0, short)).unflatten(1, (-1, size)).sum(2)
    counts = F.pad(real, (0, short)).unflatten(1, (-1, size)).sum(2)
    return sums / counts.clamp(min=1)[..., None]
