"""Alignments: rows of words and blanks, and the target that each of them is read as."""

from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

from attnlab.objectives.batches import UNSCORED


def collapse(symbols: Sequence[int], blank: int) -> tuple[int, ...]:
    """The words of an alignment: equal neighbours are one, and blanks are left out."""
    kept = [s for t, s in enumerate(symbols) if t == 0 or s != symbols[t - 1]]
    return tuple(s for s in kept if s != blank)


def alignments(target: Sequence[int], length: int, blank: int) -> list[tuple[int, ...]]:
    """All rows of so many symbols that collapse to the target."""
    wanted, found = tuple(target), [()]
    for _ in range(length):
        longer = [(*each, s) for each in found for s in sorted({*wanted, blank})]
        found = [each for each in longer if _begins(wanted, collapse(each, blank))]  # type: ignore[misc]
    return [each for each in found if collapse(each, blank) == wanted]


def _begins(whole: Sequence[int], part: Sequence[int]) -> bool:
    return whole[: len(part)] == part


def repeats(targets: Int[Tensor, "b n"]) -> Int[Tensor, "b"]:
    """How many words of each target equal the word before."""
    return ((targets[:, 1:] == targets[:, :-1]) & (targets[:, 1:] != UNSCORED)).sum(-1)
