"""Checks of lesson 67: a part of a logit by hand and as code, and a head from another text."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but

# ---- one part by hand

check_part_by_hand = NumberExercise(
    "Is it the part of head a in the logit, with the scale frozen?",
    right=1.0,
    tolerance=0.004,
    mistakes={
        2.0: "The scale is left out: the norm multiplies every part by 1/2.",
        3.0: "That is the whole logit. Only what head a adds is asked.",
        2.5: "That is the part of the embedding.",
        -0.5: "That is the part of head b.",
    },
)


# ---- all parts

_WIDTH = 11


def _parts(
    parts: Tensor, w: Tensor, *, centred: bool = True, each: bool = False, ddof: int = 0
) -> Tensor:
    """(p,) of p parts; every keyword is a mistake."""
    x = parts if each else parts.sum(0)
    deviation = x.var(-1, correction=ddof, keepdim=True).sqrt()
    middle = parts.mean(-1, keepdim=True) if centred else 0
    return ((parts - middle) / deviation) @ w


def _streams() -> Iterator[Arguments]:
    """Five parts, and three of which one is far longer than the others."""
    for count, seed in ((5, 67), (3, 68)):
        parts, w = random_tensors((count, _WIDTH), (_WIDTH,), seed=seed)
        yield {"parts": parts + torch.arange(count)[:, None] * 0.7, "w": w}


check_parts_of_logit = Exercise(
    """Who writes the logit? `parts_of_logit(parts, w)` with what p parts added to the stream.

    `parts` (p, dim) sum to the stream, which the last norm reads: LayerNorm without weight, bias
    and epsilon. `w` (dim,) is the row of the answer in the output matrix. It returns the part of
    each in the logit, (p,), with the scale of the norm frozen, so that they sum to the logit.
    """,
    right=_parts,
    cases=_streams,
    axes="p",
    mistakes={
        but(each=True): (
            "Each part is divided by its own deviation. The norm divides by that of their sum."
        ),
        but(centred=False): "LayerNorm also subtracts the mean over the width, from each part.",
        but(ddof=1): "The variance of LayerNorm divides by the width, not by the width less one.",
        (lambda parts, w: parts @ w): "The norm is left out: parts are centred and scaled first.",
    },
    praise="Their sum is the logit, whatever the norm divides by.",
)


# ---- one head from another text


def _patched(
    joined: Tensor, other: Tensor, output: Tensor, head: int, heads: int, *,
    zero: bool = False, swapped: bool = False, rows: bool = False,
) -> Tensor:  # fmt: skip
    """(n, dim); every keyword is a mistake."""
    here, there = (other, joined) if swapped else (joined, other)
    new = here.clone()
    width = joined.shape[1] // heads
    at = slice(head * width, (head + 1) * width)
    if rows:
        new[head] = there[head]
    else:
        new[:, at] = 0 if zero else there[:, at]
    return new @ output.mT


def _two_runs() -> Iterator[Arguments]:
    for (n, heads, width), head, seed in (((5, 2, 3), 1, 69), ((7, 3, 2), 0, 70)):
        joined, other, output = random_tensors(
            (n, heads * width), (n, heads * width), (_WIDTH, heads * width), seed=seed
        )
        yield {"joined": joined, "other": other, "output": output, "head": head, "heads": heads}


check_patched_head = Exercise(
    """What does the layer add, with one head from another text?
    `patched_head(joined, other, output, head, heads)`.

    `joined` and `other` (n, heads · e) are the outputs of all heads side by side, in the runs of
    two texts; `output` (dim, heads · e) is the output matrix. It returns what the layer adds to the
    stream of the first text, (n, dim), when the output of `head` is that of the second.
    """,
    right=_patched,
    cases=_two_runs,
    axes="n dim",
    mistakes={
        but(zero=True): "The head is silenced. Put what it gives in the other text in its place.",
        but(swapped=True): "That is the run of the other text with a head of the first.",
        but(rows=True): "A row is a position. The output of a head is a block of columns.",
        (lambda joined, other, output, head, heads: other @ output.mT): (
            "All heads are those of the other text. Only one is replaced."
        ),
    },
    praise="All else is as it was, so what changes in the answer is due to this head.",
)
