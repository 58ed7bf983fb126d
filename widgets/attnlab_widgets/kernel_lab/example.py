"""Given words as tokens and as names of heads."""

from collections.abc import Sequence

import torch

from attnlab_widgets.kernel_lab import KernelLab


def hostile(words: Sequence[str]) -> KernelLab:
    pair = torch.randn(2, len(words), 5, generator=torch.Generator().manual_seed(0))
    heads = dict.fromkeys(words[:2], (pair[0], pair[1]))
    return KernelLab(heads, [*words], length=64)
