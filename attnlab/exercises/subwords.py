"""Checks of lesson 43: a text as the ids of its bytes, and the calibration of GBST."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- bytes

END, FIRST = 1, 3


def _ids(text: str) -> Tensor:
    return torch.tensor([byte + FIRST for byte in text.encode()] + [END])


check_byte_ids = Exercise(
    "Are these the ids of ByT5? `byte_ids(text) -> (n,)`: each byte of UTF-8 plus 3, then 1.",
    right=_ids,
    cases=lambda: [{"text": text} for text in ("hello", "naïve", "日本", "")],
    axes="n",
    mistakes={
        (lambda text: _ids(text)[:-1]): "The end is missing: id 1 stands behind the last byte.",
        (lambda text: torch.tensor([ord(letter) + FIRST for letter in text] + [END])): (
            "These are characters, not bytes: `ord` gives one number for ï, UTF-8 has two bytes. "
            "Use `text.encode()`."
        ),
        (lambda text: torch.tensor([*text.encode(), END])): (
            "The bytes are not moved by 3: ids 0, 1 and 2 are padding, end and unknown."
        ),
        (lambda text: torch.tensor([byte + FIRST for byte in (*text.encode(), END)])): (
            "The end is moved by 3 as well: it is id 1 itself, no byte."
        ),
        (lambda text: torch.tensor([byte + FIRST - 1 for byte in text.encode()] + [END])): (
            "The bytes are moved by 2: padding, end and unknown are three ids."
        ),
        (lambda text: torch.tensor([byte + FIRST for byte in text.encode()] + [0])): (
            "The text ends with padding, id 0; the end is id 1."
        ),
    },
    praise="One id per byte of UTF-8, none of them made from a text corpus, and an end.",
)


# ---- calibration


def _calibrated(weights: Tensor) -> Tensor:
    return (weights @ weights.mT).softmax(-1) @ weights


def _calibrate_cases() -> Iterator[Arguments]:
    for n, sizes in ((7, 3), (5, 4), (1, 2)):
        yield {"weights": random_tensors((n, sizes))[0].mul(2).softmax(-1)}


check_calibrate = Exercise(
    """Is this the calibration? `calibrate(weights) -> (n, M)` of `weights` (n, M): each row becomes
    a mean of all rows, more of those that are like it: softmax(P Pᵀ) P.""",
    right=_calibrated,
    cases=_calibrate_cases,
    axes="n M",
    mistakes={
        (lambda p: p @ p.mT @ p): "The softmax is missing: P Pᵀ is not a mean yet.",
        (lambda p: (p @ p.mT).softmax(0) @ p): (
            "The softmax goes down the columns (dim 0). Each row is one character's mean over all "
            "others: dim −1."
        ),
        (lambda p: (p @ p.mT).softmax(-1)): (
            "That is the n × n map. Its rows are to average the weights: @ P."
        ),
        (lambda p: p @ (p.mT @ p).softmax(-1)): (
            "It compares sizes (PᵀP) instead of characters (P Pᵀ), so nothing is exchanged between "
            "characters."
        ),
        (lambda p: (p @ p.mT * p.shape[-1] ** -0.5).softmax(-1) @ p): (
            "It divides by √M as attention does. The paper has no scale here."
        ),
        (lambda p: _calibrated(p).softmax(-1)): (
            "A second softmax over the sizes is too many: means of rows that sum to one sum to one."
        ),
        (lambda p: p + _calibrated(p)): (
            "The weights are added to their calibration; here they are replaced."
        ),
    },
    praise="Every character has taken advice from all others, and rows still sum to one.",
)


# ---- the width of a factorized table

check_table_width = NumberExercise(
    "Is it the largest r for which 1600 r + 48 r is less than 1600 · 48?",
    right=1600 * 48 // (1600 + 48),
    tolerance=1e-3,
    unit="numbers per row",
    mistakes={
        1600 * 48 / 1648: (
            "There both tables are equally large. r is a whole number, so it is the largest one "
            "below."
        ),
        47: "1600 · 47 + 48 · 47 is more than 1600 · 48: the matrix counts as well.",
        48: "With r = 48 the table alone is as large as before, and the matrix comes on top.",
        1599: "r is the width of a row, which is less than the width of the model.",
        24: "Half the width is fewer, but it is not the largest r.",
    },
)


# ---- subwords that do not depend on the place

Cut = Callable[[Tensor, int, int], Tensor]  # (x, size, offset) -> a candidate for each character


def _block_means(x: Tensor, size: int) -> Tensor:
    means = [block.mean(0, keepdim=True).expand_as(block) for block in x.split(size)]
    return torch.cat(means) if len(x) else x


def _from_offset(x: Tensor, size: int, offset: int) -> Tensor:
    return torch.cat([x[:offset], _block_means(x[offset:], size)])


def _full_size(x: Tensor, size: int, offset: int) -> Tensor:
    blocks = x[offset:].split(size)
    means = [(block.sum(0, keepdim=True) / size).expand_as(block) for block in blocks]
    return torch.cat([x[:offset], *means])


def _all_offsets(
    x: Tensor, w: Tensor, sizes: tuple[int, ...], *,
    cut: Cut = _from_offset, axis: int = -1, offsets: Callable[[int], range] = range,
    even: bool = False,
) -> Tensor:  # fmt: skip
    """The mixed characters; a known mistake replaces one of the steps or leaves one out."""
    candidates = torch.stack([cut(x, s, o) for s in sizes for o in offsets(s)], dim=1)
    weights = (candidates @ w * (0 if even else 1)).softmax(axis)
    return (weights[..., None] * candidates).sum(1)


def _offset_subwords_cases() -> Iterator[Arguments]:
    for n, sizes in ((11, (1, 2, 3, 4)), (7, (2, 3))):
        x, w = random_tensors((n, 5), (5,), seed=n)
        yield {"x": x, "w": w, "sizes": sizes}


check_offset_subwords = Exercise(
    """Are these subwords from blocks of every offset? `mixed(x, w, sizes) -> (n, dim)`.

    `x` (n, dim), `w` (dim,), and `sizes` a tuple. For each size s and each offset o < s the text is
    cut from character o on; the o characters before keep themselves. The softmax of candidate · w
    over all candidates of a character mixes them. Called with n = 11 and 7, sizes up to 4.
    """,
    right=_all_offsets,
    cases=_offset_subwords_cases,
    axes="n dim",
    mistakes={
        but(offsets=lambda s: range(1)): (
            "Only blocks from the start of the text are candidates: size s has s offsets, 0 … s − "
            "1."
        ),
        but(offsets=lambda s: range(1, s) if s > 1 else range(1)): (
            "Offset 0 is missing: size s has the offsets 0 … s − 1."
        ),
        but(offsets=lambda s: range(s + 1)): (
            "There is one offset too many: blocks of size s from character s on are those from 0 "
            "on."
        ),
        but(cut=lambda x, s, o: torch.cat([0 * x[:o], _block_means(x[o:], s)])): (
            "The characters before the offset are lost: they keep themselves."
        ),
        but(cut=lambda x, s, o: torch.cat([_block_means(x[:o], s), _block_means(x[o:], s)])): (
            "The characters before the offset are averaged: they keep themselves."
        ),
        but(cut=lambda x, s, o: _block_means(x.roll(-o, 0), s).roll(o, 0)): (
            "The text is closed to a ring (`roll`): its last characters are in a block with its "
            "first."
        ),
        but(cut=_full_size): (
            "The last block is short, and its sum is divided by the full size: divide by the "
            "characters that are there."
        ),
        but(axis=0): (
            "The softmax runs over the characters: each character chooses among its candidates."
        ),
        but(even=True): "All candidates have the same weight: the score is candidate · w.",
    },
    praise="Far from its ends, a text that moves by one place is mixed as before.",
)
