"""Two models, of which one sees a window, on a few texts of chance."""

from collections.abc import Sequence
from typing import Any

import torch

from attnlab.lens.far_context import FarContext, far_context
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.long_range_use import LongRangeUse


def example() -> LongRangeUse:
    return LongRangeUse(studies(), lambda ids: [chr(97 + token) * (1 + token % 5) for token in ids])


def hostile(words: Sequence[str]) -> LongRangeUse:
    return LongRangeUse(studies(), lambda ids: [words[token % len(words)] for token in ids])


def studies(n: int = 96, texts: int = 5, last: int = 24) -> dict[str, FarContext]:
    """Models that hardly fall short of each other: their logits depend on all, or on the newest."""
    tokens = torch.randint(29, (texts, n), generator=torch.Generator().manual_seed(3))
    found = {}
    kinds: dict[str, Any] = {
        "full": {"attention": "full"},
        "window": {"attention": "longformer", "attention_options": {"window": 16}},
    }
    for name, options in kinds.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = TinyTransformer(29, dim=8, layers=1, heads=2, positions="sinusoidal", **options)
        found[name] = far_context(model, tokens, last=last, distances=(4, 8, 16, 32))
    return found
