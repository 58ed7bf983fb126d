"""Checks of lesson 10: the aligned pattern, the keys of strided, the summary columns of a head, and
the fixed pattern computed block by block.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, sizes
from attnlab.exercises.exercise import Exercise, but, drawn
from attnlab.exercises.skipping import attend_in_blocks, require_skipped
from attnlab.exercises.verdict import Function

# ---- the aligned predicate

Rule = Callable[[Tensor, Tensor, int], Tensor]


def _aligned(i: Tensor, j: Tensor, s: int) -> Tensor:
    back = i - j
    return (back >= 0) & ((back <= s) | ((back + 1) % s == 0))


def _past(rule: Rule) -> Rule:
    return lambda i, j, s: (j <= i) & rule(i, j, s)


def _aligned_cases() -> Iterator[Arguments]:
    for n, s in sizes((23, 5), (17, 3)):
        yield _positions(n, s)


check_aligned = Exercise(
    """Is it the aligned pattern? `aligned_pairs(i, j, s) -> (n, m)`, True = may attend.

    `i` (n, 1) and `j` (1, m) are integer positions and `s` the stride; a query attends to itself,
    the last s positions and those that hold the pixels above the one that it predicts, i + 1 − s,
    i + 1 − 2 s, … Called with n = m = 23, s = 5, and with n = m = 17, s = 3.
    """,
    right=_aligned,
    cases=_aligned_cases,
    axes="n m",
    mistakes={
        _past(lambda i, j, s: (i - j <= s) | ((i - j) % s == 0)): (
            "That is strided: its column holds the pixels above pixel i − 1. Above pixel i is "
            "pixel i − s, and position i − s + 1 holds it."
        ),
        _past(lambda i, j, s: (i - j <= s) | ((i - j) % s == 1)): (
            "The column is moved the other way: it holds the pixels above i − 2. The column "
            "through position i + 1 is wanted, (i + 1 − j) % s == 0."
        ),
        (lambda i, j, s: ((i - j) <= s) & (j <= i) | ((i + 1 - j) % s == 0)): (
            "Later keys are included: (i + 1 − j) % s == 0 is true for j = i + 1 as well. Add j ≤ "
            "i."
        ),
        (lambda i, j, s: ((i - j) <= s) | ((i + 1 - j) % s == 0)): (
            "Later keys are included: for them i − j is negative, and a negative number is ≤ s. "
            "Add j ≤ i."
        ),
        (lambda i, j, s: ((i - j).abs() <= s) | ((i + 1 - j) % s == 0)): (
            "Later keys are included: with `.abs()` the next s keys are near as well. Add j ≤ i."
        ),
        _past(lambda i, j, s: ((i - j) <= s) & ((i + 1 - j) % s == 0)): (
            "That is the intersection: a key must be near AND in the column. The union is wanted, "
            "`|`."
        ),
        _past(lambda i, j, s: (i - j) <= s): (
            "That is only the window: the column, (i + 1 − j) % s == 0, is missing."
        ),
        _past(lambda i, j, s: (i + 1 - j) % s == 0): (
            "That is only the column: the last s positions are missing."
        ),
        _past(lambda i, j, s: ((i - j) <= s) | (j % s == 0)): (
            "The column does not move with the query: j % s alone gives the same keys to all "
            "queries. Use the distance."
        ),
        _past(lambda i, j, s: (i // s == j // s) | ((i + 1 - j) % s == 0)): (
            "The window is a block, as in `fixed`: here it moves with i, i − j ≤ s."
        ),
        (lambda i, j, s: (j < i) & _aligned(i, j, s)): (
            "No position attends to itself: j < i should be j ≤ i, or the first row is empty."
        ),
        _past(lambda i, j, s: (i - j <= s + 1) | ((i + 1 - j) % s == 0)): (
            "The window is one too long: i − j ≤ s already gives s + 1 keys, i itself and the last "
            "s."
        ),
        _past(lambda i, j, s: (i - j < s) | ((i + 1 - j) % s == 0)): (
            "The window is one too short: the last s positions and i itself are s + 1 keys, i − j "
            "≤ s."
        ),
        _past(lambda i, j, s: (i - j <= s) ^ ((i + 1 - j) % s == 0)): (
            "`^` leaves out the key that is in both, i + 1 − s. The union is `|`."
        ),
        (lambda i, j, s: ~_aligned(i, j, s)): (
            "It is inverted: True means that the query may attend to the key."
        ),
        (
            lambda i, j, s: torch.zeros(len(i), j.shape[1]).masked_fill(
                ~_aligned(i, j, s), -math.inf
            )
        ): (
            "That is a mask to be added to the scores. It should be of type bool: True where the "
            "query may attend to the key."
        ),
        (lambda i, j, s: _aligned(j, i, s)): (
            "i and j are exchanged: queries attend to keys that came before, so the distance is i "
            "− j."
        ),
    },
    praise="The window, and the column above the pixel that is predicted.",
)


def _positions(n: int, s: int) -> Arguments:
    places = torch.arange(n)
    return {"i": places[:, None], "j": places[None], "s": s}


# ---- the summary columns of a head


def _summaries(j: Tensor, s: int, c: int, head: int) -> Tensor:
    from_the_end = s - 1 - j % s
    return from_the_end // c == head


def _summaries_cases() -> Iterator[Arguments]:
    for m, s, c, head in sizes((31, 9, 3, 1), (31, 9, 3, 0), (37, 11, 2, 2)):
        yield {"j": torch.arange(m), "s": s, "c": c, "head": head}


check_summaries = Exercise(
    """Are these a head's summary columns? `is_summary(j, s, c, head) -> (m,)`, True = a summary.

    `j` (m,) are integer positions, counted from 0. Head 0 has the last `c` of every block of `s`,
    head 1 the `c` before those, and so on. Called for three heads, with s = 9, c = 3 and s = 11,
    c = 2.
    """,
    right=_summaries,
    cases=_summaries_cases,
    axes="m",
    mistakes={
        (lambda j, s, c, head: _summaries(j, s, c, 0)): (
            "`head` is not used: those are the summaries of head 0."
        ),
        (lambda j, s, c, head: j % s >= s - c * (head + 1)): (
            "Those are the summaries of all heads up to this one: each head has c of its own."
        ),
        (lambda j, s, c, head: _summaries(j, s, c, head + 1)): (
            "Those are the summaries of the next head: head 0 has the last c of each block."
        ),
        (lambda j, s, c, head: j % s // c == head): (
            "Heads are counted from the beginning of a block: head 0 has the last c of each block, "
            "head 1 the c before those."
        ),
        (lambda j, s, c, head: (j % s >= s - c * (head + 1)) & (j % s <= s - c * head)): (
            "One column too many for each head: it has c, from s − c (head + 1) to s − c · head − "
            "1."
        ),
        (lambda j, s, c, head: (j % s > s - c * (head + 1)) & (j % s < s - c * head)): (
            "One column is missing for each head: the first of the c has residue s − c (head + 1)."
        ),
        (lambda j, s, c, head: (j % s >= s - c - head) & (j % s < s - head)): (
            "Each head's columns are moved by one position and not by c."
        ),
        (lambda j, s, c, head: _summaries((j - 1) % s, s, c, head)): (
            "All columns are one too late: positions count from 0, so a block ends at residue s − "
            "1."
        ),
        (lambda j, s, c, head: _summaries((j + 1) % s, s, c, head)): (
            "All columns are one too early: use j % s, and not (j + 1) % s."
        ),
        (lambda j, s, c, head: (j >= s - c * (head + 1)) & (j < s - c * head)): (
            "The remainder, j % s, is missing: every block of s has its summaries."
        ),
        (lambda j, s, c, head: (j // s >= s - c * (head + 1)) & (j // s < s - c * head)): (
            "That uses j // s, the number of the block. The place inside of the block is j % s."
        ),
        (lambda j, s, c, head: ~_summaries(j, s, c, head)): (
            "These are the columns that are not summaries. Reverse the comparison."
        ),
    },
    praise="Each head has c columns of its own, so together they keep more of a block.",
)


# ---- the keys of the last position

check_strided_keys = NumberExercise(
    "How many keys has the last of n = 16,384 positions with the strided pattern and s = 128?",
    right=(128 + 1) + 16_384 // 128 - 2,  # i and i − s stand in both
    unit="keys",
    mistakes={
        (128 + 1) + 16_384 // 128: (
            "Two keys are counted twice: i and i − s are in the window and in the column."
        ),
        256: "One key is still counted twice: both i and i − s are in the window and the column.",
        254: "One too few: the window has s + 1 keys, i itself and the s before it.",
        127: "That is the column alone, without i itself.",
        128: "That is one of the two factors; the number of keys in their union is wanted.",
        129: "That is the window alone.",
        16_384: "That is full causal attention.",
    },
)


# ---- the fixed pattern, block by block


def _by_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: int,
    c: int,
    *,
    keys: Callable[[int, int, int, int], list[int]] | None = None,
    causal: bool = True,
    scale: float | None = None,
    late: bool = False,
) -> Tensor:
    """The fixed pattern; ``keys(n, start, s, c)`` are those that a block computes scores with."""
    return attend_in_blocks(
        *(q, k, v, s),
        lambda start: (keys or _block_keys)(len(q), start, s, c),
        causal=causal,
        scale=scale,
        late=late,
    )


def _block_keys(n: int, start: int, s: int, c: int) -> list[int]:
    return [j for j in range(start) if j % s >= s - c] + list(range(start, start + s))


def _twice(n: int, start: int, s: int, c: int) -> list[int]:
    return _block_keys(n, start, s, c) + list(range(start + s - c, start + s))


def _first(n: int, start: int, s: int, c: int) -> list[int]:
    return [j for j in range(start) if j % s < c] + list(range(start, start + s))


def _later_too(n: int, start: int, s: int, c: int) -> list[int]:
    others = [j for j in range(n) if j % s >= s - c and j // s != start // s]
    return others + list(range(start, start + s))


def _one_block_back(n: int, start: int, s: int, c: int) -> list[int]:
    return list(range(max(0, start - c), start + s))


def _own_only(n: int, start: int, s: int, c: int) -> list[int]:
    return list(range(start, start + s))


def _summed(q: Tensor, k: Tensor, v: Tensor, s: int, c: int, *, share: float) -> Tensor:
    """Two softmaxes, one for each factor, added up."""
    own = _by_blocks(q, k, v, s, c, keys=_own_only)
    far = [own[:s] * 0]
    for start in range(s, len(q), s):
        chosen = [j for j in range(start) if j % s >= s - c]
        scores = q[start : start + s] @ k[chosen].mT / q.shape[-1] ** 0.5
        far.append(scores.softmax(-1) @ v[chosen])
    return share * (own + torch.cat(far))


def _require_skipped(function: Function, given: Arguments) -> str:
    advice = (
        "A mask over n × n scores saves nothing. For each block, take its own keys and the earlier "
        "summaries out of k, and compute scores with these only."
    )
    return require_skipped(function, given, 3, advice)


check_fixed_blocks = Exercise(
    """Is it the fixed pattern without the pairs that it skips? `attend(q, k, v, s, c) -> (n, d)`.

    `q`, `k`, `v` (n, d) are one head's, n a multiple of `s`. A query attends, causally, to its own
    block of `s` positions and to the last `c` positions of every earlier block. Called with n = 20
    and s = 5, then with n = 96 and s = 8, where at most a third of the FLOPs of full attention may
    be spent.
    """,
    right=_by_blocks,
    cases=drawn(
        [20, 96],
        q=[(20, 3), (96, 7)],
        k=[(20, 3), (96, 7)],
        v=[(20, 3), (96, 7)],
        s=[5, 8],
        c=[2, 1],
    ),
    axes="n d",
    mistakes={
        but(causal=False): (
            "Queries attend to later positions of their own block: set those scores to −∞ before "
            "the softmax."
        ),
        but(keys=_later_too, causal=False): (
            "Queries attend to summaries of later blocks. A block may use only the summaries that "
            "stand before it."
        ),
        but(keys=_own_only): (
            "That is the own block alone: the summaries of earlier blocks are missing."
        ),
        but(keys=_twice): (
            "The last c positions of the own block are counted twice, as part of the block and as "
            "its summaries: their weight is doubled. Take summaries from earlier blocks only."
        ),
        but(keys=_first): (
            "The summaries are the last c positions of each block, not the first: j % s ≥ s − c."
        ),
        but(keys=_one_block_back): (
            "Only the summaries of the block just before are used. All earlier blocks have "
            "summaries."
        ),
        but(scale=1.0): "The scores are not divided by √d.",
        (lambda q, k, v, s, c: _by_blocks(q, k, v, s, c, scale=1 / q.shape[-1])): (
            "The scores are divided by d; divide them by √d."
        ),
        but(late=True): (
            "The weights of later keys are set to zero after the softmax, so the rest no longer "
            "sums to one. Set their scores to −∞ before the softmax."
        ),
        partial(_summed, share=1.0): (
            "Each factor has its own softmax, and the two outputs are added: their weights sum to "
            "two. One softmax must run over both sets of keys together."
        ),
        partial(_summed, share=0.5): (
            "Each factor has its own softmax, and the mean of the two outputs is taken, so both "
            "factors have half the weight whatever their scores are. Use one softmax over all "
            "keys."
        ),
    },
    praise="",
    then=_require_skipped,
)
