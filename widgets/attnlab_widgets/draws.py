"""The next letter drawn from the model's answer; ``draws.js`` draws the same one."""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
LARGEST_SEED = 2**31 - 1


def uniform(seed: int, place: int) -> float:
    """A number between 0 and 1 that depends on the seed and the place of the letter alone, so that
    a letter is the same however the text before it came about: the finalizer of MurmurHash3."""
    mixed = (seed ^ (place + 1) * 0x9E3779B1) & _WORD
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    return ((mixed ^ mixed >> 16) + 0.5) / 2**32


def drawn(logits: Tensor, temperature: float, top_k: int, chance: float) -> int:
    """A token of the ``top_k`` with the highest logits (vocab,), by softmax(logits / temperature);
    at temperature 0 the first of them."""
    order = torch.argsort(logits, descending=True, stable=True)[:top_k]
    if temperature == 0:
        return int(order[0])
    shares = (logits[order] / temperature).softmax(-1).cumsum(-1)
    at = int((shares <= chance).sum())
    return int(order[min(at, len(order) - 1)])
