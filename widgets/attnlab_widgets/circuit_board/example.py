"""The shipped copier; and a small model that nobody has trained, whose tokens are hostile words."""

from collections.abc import Sequence

import torch

from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.circuit_board import CircuitBoard


def example() -> CircuitBoard:
    return CircuitBoard()


def hostile(words: Sequence[str]) -> CircuitBoard:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = TinyTransformer(len(words), dim=8, layers=2, heads=2, max_len=16)
    return CircuitBoard(model, "".join(words), names=words)
