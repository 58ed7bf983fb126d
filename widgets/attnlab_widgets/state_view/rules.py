"""The recurrences that StateView switches between, as one rule whose transition differs.

S_t = A_t S_{t-1} + b_t k_t v_tᵀ: a rule says by what the state decays, and whether its key erases.
``rules.js`` computes the same on the page.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

SPREAD = 2.0
"""The last channel decays by the decay to this power, the first one by the power 0."""


@dataclass(frozen=True)
class Rule:
    """``decays``  not at all, by a constant, by a number of the token, or by one of each channel of
                the key
    ``erases``  what the key reads is not erased; or it reads the state after the decay, or before
                it
    ``formula`` of the transition A
    """

    title: str
    decays: Literal["none", "constant", "token", "channel"]
    erases: Literal["none", "after", "before"]
    formula: str


RULES = {
    "linear": Rule("Linear attention", "none", "none", "A = I"),
    "retention": Rule("Retention", "constant", "none", "A = a I, the same a at every token"),
    "mamba2": Rule("SSD (Mamba-2)", "token", "none", "A = aₜ I"),
    "gated_linear": Rule("Gated linear attention", "channel", "none", "A = diag(aₜ)"),
    "deltanet": Rule("DeltaNet", "none", "after", "A = I − b k kᵀ"),
    "gated_deltanet": Rule("Gated DeltaNet", "token", "after", "A = aₜ (I − b k kᵀ)"),
    "kimi_delta": Rule("Kimi Delta Attention", "channel", "after", "A = (I − b k kᵀ) diag(aₜ)"),
    "rwkv7": Rule("RWKV-7", "channel", "before", "A = diag(aₜ) − b k kᵀ"),
}
"""By the names of the catalogue."""


def decays(rule: Rule, width: int, decay: float, forget: float) -> Tensor:
    """The diagonal (width,) by which a token multiplies the rows of the state; float64."""
    powers = torch.ones(width, dtype=torch.float64)
    if rule.decays == "none":
        return powers
    if rule.decays == "channel":
        powers = torch.linspace(0, SPREAD, width, dtype=torch.float64)
    return decay ** (powers if rule.decays == "constant" else powers * forget)


def transition(rule: Rule, key: Tensor, diagonal: Tensor, step: float) -> Tensor:
    """A (d, d) of a token with this key (d,) and these decays (d,)."""
    kept = torch.diag(diagonal)
    if rule.erases == "none":
        return kept
    erased = step * torch.outer(key, key)
    return kept - erased * (diagonal if rule.erases == "after" else 1)


def eigenvalues(rule: Rule, key: Tensor, diagonal: Tensor, step: float) -> Tensor:
    """The eigenvalues of A, from the least to the largest. All are real: A is similar to a
    symmetric matrix, with the root of the decays on both sides of the erasure."""
    root = diagonal.sqrt() * key if rule.erases == "after" else key
    size = 0.0 if rule.erases == "none" else step
    return torch.linalg.eigvalsh(torch.diag(diagonal) - size * torch.outer(root, root))


def written(rule: Rule, step: float) -> float:
    """By what a rule multiplies k vᵀ: rules that erase write as much as they take out."""
    return 1.0 if rule.erases == "none" else step


def keys_of(count: int, overlap: float) -> Tensor:
    """(count, count): keys of unit length, any two of which have the dot product ``overlap``."""
    own = (1 - overlap) ** 0.5
    shared = ((1 - overlap + count * overlap) ** 0.5 - own) / count
    return own * torch.eye(count, dtype=torch.float64) + shared
