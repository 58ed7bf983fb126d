"""A small model that has not been trained, with one head silent."""

from collections.abc import Sequence

import torch

from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.head_switchboard import HeadSwitchboard


def example() -> HeadSwitchboard:
    return HeadSwitchboard(_model(), "attention" * 2, silent=[(0, 1)])


def hostile(words: Sequence[str]) -> HeadSwitchboard:
    return HeadSwitchboard(_model(), [*range(len(words))], tokens=[*words])


def _model() -> TinyTransformer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TinyTransformer(29, dim=8, layers=2, heads=2, max_len=32)
