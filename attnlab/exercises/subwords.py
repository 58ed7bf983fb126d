"""Checks of lesson 43: a text as the ids of its bytes, and the calibration of GBST."""

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


# ---- calibration


def _calibrated(weights: Tensor) -> Tensor:
    return (weights @ weights.mT).softmax(-1) @ weights


_CALIBRATED_MISTAKEN: tuple[KnownMistake, ...] = (
    ("The softmax is missing: P Pᵀ is not a mean yet.", lambda p: p @ p.mT @ p),
    (
        "The softmax goes down the columns (dim 0). Each row is one character's mean over all "
        "others: dim −1.",
        lambda p: (p @ p.mT).softmax(0) @ p,
    ),
    ("That is the n × n map. Its rows are to average the weights: @ P.",
     lambda p: (p @ p.mT).softmax(-1)),
    (
        "It compares sizes (PᵀP) instead of characters (P Pᵀ), so nothing is exchanged between "
        "characters.",
        lambda p: p @ (p.mT @ p).softmax(-1),
    ),
    (
        "It divides by √M as attention does. The paper has no scale here.",
        lambda p: (p @ p.mT * p.shape[-1] ** -0.5).softmax(-1) @ p,
    ),
    (
        "A second softmax over the sizes is too many: means of rows that sum to one sum to one.",
        lambda p: _calibrated(p).softmax(-1),
    ),
    (
        "The weights are added to their calibration; here they are replaced.",
        lambda p: p + _calibrated(p),
    ),
)  # fmt: skip


@returns_verdict
def check_calibrate(function: Function) -> str:
    """Is this the calibration? `calibrate(weights) -> (n, M)` of `weights` (n, M): each row becomes
    a mean of all rows, more of those that are like it: softmax(P Pᵀ) P."""
    for n, sizes in ((7, 3), (5, 4), (1, 2)):
        given = {"weights": random_tensors((n, sizes))[0].mul(2).softmax(-1)}
        require(function, given, _calibrated, shape="n M", known_mistakes=_CALIBRATED_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Every character has taken advice from all others, and rows still sum to one."
