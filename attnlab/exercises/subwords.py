"""Checks of lesson 43: a text as the ids of its bytes, and the candidates of one block size."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.verdict import Function, returns_verdict

# ---- bytes

END, FIRST = 1, 3


def _ids(text: str) -> Tensor:
    return torch.tensor([byte + FIRST for byte in text.encode()] + [END])


_IDS_MISTAKEN: tuple[KnownMistake, ...] = (
    ("The end is missing: id 1 stands behind the last byte.", lambda text: _ids(text)[:-1]),
    (
        "These are characters, not bytes: `ord` gives one number for ï, UTF-8 has two bytes. Use "
        "`text.encode()`.",
        lambda text: torch.tensor([ord(letter) + FIRST for letter in text] + [END]),
    ),
    (
        "The bytes are not moved by 3: ids 0, 1 and 2 are padding, end and unknown.",
        lambda text: torch.tensor([*text.encode(), END]),
    ),
    (
        "The end is moved by 3 as well: it is id 1 itself, no byte.",
        lambda text: torch.tensor([byte + FIRST for byte in (*text.encode(), END)]),
    ),
    (
        "The bytes are moved by 2: padding, end and unknown are three ids.",
        lambda text: torch.tensor([byte + FIRST - 1 for byte in text.encode()] + [END]),
    ),
    (
        "The text ends with padding, id 0; the end is id 1.",
        lambda text: torch.tensor([byte + FIRST for byte in text.encode()] + [0]),
    ),
)


@returns_verdict
def check_byte_ids(function: Function) -> str:
    """Are these the ids of ByT5? `byte_ids(text) -> (n,)`: each byte of UTF-8 plus 3, then 1."""
    for text in ("hello", "naïve", "日本", ""):
        require(function, {"text": text}, _ids, shape="n", known_mistakes=_IDS_MISTAKEN)
    return "One id per byte of UTF-8, none of them made from a text corpus, and an end."


# ---- candidates


def _places(n: int, size: int) -> Tensor:
    """(n, n): 1 where two characters stand in one block."""
    block = torch.arange(n) // size
    return (block[:, None] == block).double()


def _mean_over(rows: Tensor, x: Tensor) -> Tensor:
    return (rows / rows.sum(1, keepdim=True)).to(x.dtype) @ x


def _candidates(x: Tensor, size: int) -> Tensor:
    return _mean_over(_places(len(x), size), x)


def _near(n: int, before: int, after: int) -> Tensor:
    gap = torch.arange(n) - torch.arange(n)[:, None]
    return ((gap >= -before) & (gap <= after)).double()


_CANDIDATES_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "These are the blocks, one mean each. Every character needs a candidate: repeat each mean "
        "`size` times and cut what is beyond the end.",
        lambda x, size: torch.stack([part.mean(0) for part in x.split(size)]),
    ),
    (
        "The means are repeated as a whole (1 2 1 2), not each by itself (1 1 2 2): use "
        "`repeat_interleave`.",
        lambda x, size: torch.stack([part.mean(0) for part in x.split(size)]).repeat(size, 1)[
            : len(x)
        ],
    ),
    (
        "The last block is divided by `size`, though fewer characters are there.",
        lambda x, size: (_places(len(x), size) / size).to(x.dtype) @ x,
    ),
    (
        "The last block is missing: its characters are too few, but they need a candidate, too.",
        lambda x, size: _candidates(x, size)[: len(x) // size * size],
    ),
    (
        "These are sums: divide by the number of characters.",
        lambda x, size: _places(len(x), size).to(x.dtype) @ x,
    ),
    (
        "The windows slide: each character has the mean of itself and those before it. Blocks lie "
        "side by side, and all characters of a block share its mean.",
        lambda x, size: _mean_over(_near(len(x), size - 1, 0), x),
    ),
    (
        "The windows slide: each character has the mean of itself and those after it. Blocks lie "
        "side by side, and all characters of a block share its mean.",
        lambda x, size: _mean_over(_near(len(x), 0, size - 1), x),
    ),
    (
        "A block holds every ⌈n / size⌉-th character, not neighbours: character i stands in block "
        "i // size.",
        lambda x, size: _mean_over(_interleaved(len(x), size), x),
    ),
)


def _interleaved(n: int, size: int) -> Tensor:
    block = torch.arange(n) % -(-n // size)
    return (block[:, None] == block).double()


@returns_verdict
def check_candidates(function: Function) -> str:
    """Are these the candidates of one size? `candidates(x, size) -> (n, dim)`: for each character
    the mean of its block; blocks of `size` lie side by side, the last one may be shorter."""
    for n, size in ((11, 4), (12, 3), (7, 2), (3, 5), (5, 1)):
        given = {"x": random_tensors((n, 3))[0], "size": size}
        require(function, given, _candidates, shape="n dim", known_mistakes=_CANDIDATES_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "All characters of a block share its mean, those of the short last block, too."
