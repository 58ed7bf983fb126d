"""A cache in pages: how many there are, how much of them is empty, and what a prefix saves.

A cache that grows in one piece has to be reserved for its longest text, or copied when it grows.
In pages of p tokens a text of n tokens takes ⌈n / p⌉ of them, from anywhere, and a table says
which: fewer than p places of the last page are empty, and the values are what they were. Texts that
begin with the same tokens share the pages that are full of them; keys that are turned by their
positions allow that at the beginning of the text only.

Kwon, Li, Zhuang, Sheng, Zheng, Yu, Gonzalez, Zhang, Stoica. Efficient Memory Management for Large
Language Model Serving with PagedAttention, SOSP 2023, arXiv:2309.06180.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer


@dataclass(frozen=True)
class Pages:
    """The pages of several texts: how many in all, and how many of their places are empty."""

    pages: int
    empty: int


def pages(lengths: Sequence[int], size: int, *, prefix: int = 0) -> Pages:
    """The pages of ``size`` tokens that texts of these ``lengths`` take.

    The first ``prefix`` tokens are the same in all texts. Full pages of them stand once; the rest
    of the prefix, which does not fill a page, stands in each text's own page.
    """
    size = check_integer("size", size, at_least=1)
    prefix = check_integer("prefix", prefix, at_least=0)
    lengths = [check_integer("a length", n, at_least=1) for n in lengths]
    if short := [n for n in lengths if n < prefix]:
        raise ValueError(f"a text of {short[0]} tokens does not begin with a prefix of {prefix}")
    shared = prefix // size if lengths else 0
    own = [_whole(n - shared * size, size) for n in lengths]
    kept = sum(lengths) - (len(lengths) - 1) * shared * size if lengths else 0
    count = shared + sum(own)
    return Pages(count, count * size - kept)


def _whole(n: int, size: int) -> int:
    return -(-n // size)


def read(
    store: Float[Tensor, "pages size ..."], table: Int[Tensor, "p"], length: int
) -> Float[Tensor, "length ..."]:
    """The tokens of one text, in order, from the pages that its table names."""
    length = check_integer("length", length, at_least=0)
    if length > table.numel() * store.shape[1]:
        raise ValueError(
            f"a table of {table.numel()} pages of {store.shape[1]} tokens holds no {length} tokens"
        )
    return store[table].flatten(0, 1)[:length]
