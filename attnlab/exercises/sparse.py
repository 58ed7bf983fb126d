"""Checks of lesson 10: the strided pattern and its keys, the summary columns of a block, and the
fixed pattern computed block by block.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from attnlab.exercises.answers import check_number
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    check_arguments,
    check_arguments_and_dtype,
    random_tensors,
    require,
)
from attnlab.exercises.skipping import attend_in_blocks, require_skipped
from attnlab.exercises.verdict import Function, Verdict, returns_verdict

# ---- the strided predicate


def _strided(i: Tensor, j: Tensor, s: int) -> Tensor:
    back = i - j
    return (back >= 0) & ((back <= s) | (back % s == 0))


def _past(rule: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor, Tensor, int], Tensor]:
    return lambda i, j, s: (j <= i) & rule(i, j, s)


_STRIDED_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "It sees the future: (i − j) % s == 0 is true for later keys as well. Add j ≤ i.",
        lambda i, j, s: ((i - j) <= s) & (j <= i) | ((i - j) % s == 0),
    ),
    (
        "It sees the future: j ≤ i is missing. For later keys i − j is negative, and a negative "
        "number is ≤ s.",
        lambda i, j, s: ((i - j) <= s) | ((i - j) % s == 0),
    ),
    (
        "It sees the future: with `.abs()` the next s keys are near as well. Add j ≤ i.",
        lambda i, j, s: ((i - j).abs() <= s) | ((i - j) % s == 0),
    ),
    (
        "That is the intersection: a key must be near AND in the column. The union is wanted, `|`.",
        _past(lambda i, j, s: ((i - j) <= s) & ((i - j) % s == 0)),
    ),
    (
        "That is only the window, the first factor: the column, (i − j) % s == 0, is missing.",
        _past(lambda i, j, s: (i - j) <= s),
    ),
    (
        "That is only the column, the second factor: the last s positions are missing.",
        _past(lambda i, j, s: (i - j) % s == 0),
    ),
    (
        "The column does not move with the query: j % s == 0 gives the same keys to all queries "
        "(as in `fixed`). Use the distance, (i − j) % s.",
        _past(lambda i, j, s: ((i - j) <= s) | (j % s == 0)),
    ),
    (
        "The residue is off by one to the left: that column runs through i − 1. (i − i) % s is 0.",
        _past(lambda i, j, s: ((i - j) <= s) | ((i - j) % s == 1)),
    ),
    (
        "The residue is off by one to the right: that column runs through i + 1. (i − i) % s is 0.",
        _past(lambda i, j, s: ((i - j) <= s) | ((i - j) % s == s - 1)),
    ),
    (
        "The window is a block: ⌊i/s⌋ = ⌊j/s⌋ is the first factor of `fixed`, and at the start of "
        "a block it sees only itself. Here the window moves with i: i − j ≤ s.",
        _past(lambda i, j, s: (i // s == j // s) | ((i - j) % s == 0)),
    ),
    (
        "No position sees itself: j < i should be j ≤ i, or the first row is empty.",
        lambda i, j, s: (j < i) & _strided(i, j, s),
    ),
    (
        "The window is one too long: i − j ≤ s already gives s + 1 keys, i itself and the last s.",
        _past(lambda i, j, s: (i - j <= s + 1) | ((i - j) % s == 0)),
    ),
    (
        "`^` leaves out the keys that are in both factors, i and i − s. The union is `|`.",
        _past(lambda i, j, s: (i - j <= s) ^ ((i - j) % s == 0)),
    ),
    (
        "That is the other pattern, `fixed`: a block, and the last position of each block. Here "
        "the window and the column both depend on the distance i − j.",
        _past(lambda i, j, s: (i // s == j // s) | (j % s == s - 1)),
    ),
    (
        "It is inverted: True means that the query MAY see the key.",
        lambda i, j, s: ~_strided(i, j, s),
    ),
    (
        "That is a mask to be added to the scores. It should be of type bool: True where the "
        "query may attend to the key.",
        lambda i, j, s: torch.zeros(len(i), j.shape[1]).masked_fill(~_strided(i, j, s), -math.inf),
    ),
    (
        "i and j are exchanged: queries look at keys that came before, so the distance is i − j.",
        lambda i, j, s: _strided(j, i, s),
    ),
)


@returns_verdict
def check_strided(function: Function) -> str:
    """Is it the strided pattern? `strided(i, j, s) -> (n, m)`, True = may attend.

    `i` (n, 1) and `j` (1, m) are integer positions and `s` the stride; a query attends to itself,
    the last s positions and every s-th position before it. Called with n = m = 23, s = 5, and with
    n = m = 17, s = 3.
    """
    for n, s in ((23, 5), (17, 3)):
        given = _positions(n, s)
        require(function, given, _strided, shape="n m", known_mistakes=_STRIDED_MISTAKEN)
    check_arguments(function, given)
    return "A window that moves with the query, and the column: about 2·√n keys where s is √n."


def _positions(n: int, s: int) -> Arguments:
    places = torch.arange(n)
    return {"i": places[:, None], "j": places[None], "s": s}


# ---- the summary columns


def _summaries(j: Tensor, s: int, c: int) -> Tensor:
    return j % s >= s - c


_SUMMARIES_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "One column too many: j % s ≥ s − c − 1 gives c + 1 columns. Residues run from 0 to s − 1, "
        "so the last c begin at s − c.",
        lambda j, s, c: j % s >= s - c - 1,
    ),
    (
        "One column is missing: j % s > s − c gives c − 1. The first of the c has residue s − c "
        "itself.",
        lambda j, s, c: j % s > s - c,
    ),
    (
        "Residue 0 is included: that is s in the formula, taken modulo s (Long Range Arena does "
        "so). The first position of a block has not seen the rest of it, so it cannot sum it up.",
        lambda j, s, c: (j % s >= s - c) | (j % s == 0),
    ),
    (
        "These columns belong to two blocks: the last c and the first of the next, as in fairseq's "
        "range(s − c, s + 1). The last residue is s − 1.",
        lambda j, s, c: (j % s >= s - c) | ((j % s == 0) & (j > 0)),
    ),
    (
        "All columns are one too late: residues s − c + 1 … s. Positions count from 0, so a block "
        "ends at residue s − 1.",
        lambda j, s, c: (j - 1) % s >= s - c,
    ),
    (
        "These are the FIRST c of each block. They have not seen the rest of it; a summary must be "
        "at the end of its block.",
        lambda j, s, c: j % s < c,
    ),
    (
        "That is one column, with residue s − c. There should be c of them: ≥, not ==.",
        lambda j, s, c: j % s == s - c,
    ),
    (
        "That is one column, the last of each block: there should be c of them.",
        lambda j, s, c: j % s == s - 1,
    ),
    (
        "Only the first block is right: the remainder, j % s, is missing, so every later position "
        "is a summary.",
        lambda j, s, c: j >= s - c,
    ),
    (
        "These are all but the first c. The last c residues begin at s − c.",
        lambda j, s, c: j % s >= c,
    ),
    (
        "All columns are one too early: (j + 1) % s turns the last residue, s − 1, into 0. Use "
        "j % s.",
        lambda j, s, c: (j + 1) % s >= s - c,
    ),
    (
        "That uses j // s, the number of the block. The position inside the block is j % s.",
        lambda j, s, c: j // s >= s - c,
    ),
    (
        "That is every c-th position. The last c of every s are wanted.",
        lambda j, s, c: j % c == 0,
    ),
    (
        "That is only the end of the text: EVERY block of s has its last c.",
        lambda j, s, c: j >= len(j) - c,
    ),
    (
        "s and c are exchanged: the remainder is taken by the stride, j % s.",
        lambda j, s, c: j % c >= c - s,
    ),
    (
        "These are the columns that are NOT summaries. Reverse the comparison.",
        lambda j, s, c: j % s < s - c,
    ),
)


@returns_verdict
def check_summaries(function: Function) -> str:
    """Are these the summary columns? `summaries(j, s, c) -> (m,)`, True = a summary.

    `j` (m,) are integer positions, counted from 0; the last `c` of every block of `s` are its
    summaries, to which all later queries attend.
    Called with m = 29, s = 8, c = 3, with m = 31, s = 5, c = 2, and with c = s.
    """
    for m, s, c in ((29, 8, 3), (31, 5, 2), (13, 3, 3)):
        given = {"j": torch.arange(m), "s": s, "c": c}
        require(function, given, _summaries, shape="m", known_mistakes=_SUMMARIES_MISTAKEN)
    check_arguments(function, given)
    return "The last c of every block: the only ones in it that can have seen all of it."


# ---- the keys of the last position


def check_strided_keys(given: object) -> Verdict:
    """How many keys has the last of n = 16,384 positions with the strided pattern and s = 128?"""
    mistakes = {
        257.0: "Two keys are counted twice: i and i − s are in the window and in the column.",
        256.0: "One key is still counted twice: both i and i − s are in the window and the column.",
        254.0: "One too few: the window has s + 1 keys, i itself and the s before it.",
        127.0: "That is the column alone, without i itself.",
        128.0: "That is one of the two factors; the number of keys in their union is wanted.",
        129.0: "That is the window alone.",
        16384.0: "That is full causal attention.",
    }
    return check_number(given, 255, unit="keys", mistakes=mistakes)


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


_BLOCKS_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Queries attend to later positions of their own block: set those scores to −∞ before the "
        "softmax.",
        partial(_by_blocks, causal=False),
    ),
    (
        "Queries attend to summaries of later blocks. A block may use only the summaries that "
        "stand before it.",
        partial(_by_blocks, keys=_later_too, causal=False),
    ),
    (
        "That is the own block alone: the summaries of earlier blocks are missing.",
        partial(_by_blocks, keys=_own_only),
    ),
    (
        "The last c positions of the own block are counted twice, as part of the block and as its "
        "summaries: their weight is doubled. Take summaries from earlier blocks only.",
        partial(_by_blocks, keys=_twice),
    ),
    (
        "The summaries are the last c positions of each block, not the first: j % s ≥ s − c.",
        partial(_by_blocks, keys=_first),
    ),
    (
        "Only the summaries of the block just before are used. All earlier blocks have summaries.",
        partial(_by_blocks, keys=_one_block_back),
    ),
    (
        "The scores are not divided by √d.",
        partial(_by_blocks, scale=1.0),
    ),
    (
        "The scores are divided by d; divide them by √d.",
        lambda q, k, v, s, c: _by_blocks(q, k, v, s, c, scale=1 / q.shape[-1]),
    ),
    (
        "The weights of later keys are set to zero after the softmax, so the rest no longer sums "
        "to one. Set their scores to −∞ before the softmax.",
        partial(_by_blocks, late=True),
    ),
    (
        "Each factor has its own softmax, and the two outputs are added: their weights sum to two. "
        "One softmax must run over both sets of keys together.",
        partial(_summed, share=1.0),
    ),
    (
        "Each factor has its own softmax, and the mean of the two outputs is taken, so both "
        "factors have half the weight whatever their scores are. Use one softmax over all keys.",
        partial(_summed, share=0.5),
    ),
)


@returns_verdict
def check_fixed_blocks(function: Function) -> str:
    """Is it the fixed pattern without the pairs that it skips? `attend(q, k, v, s, c) -> (n, d)`.

    `q`, `k`, `v` (n, d) are one head's, n a multiple of `s`. A query attends, causally, to its own
    block of `s` positions and to the last `c` positions of every earlier block. Called with n = 20
    and s = 5, then with n = 96 and s = 8, where at most a third of the FLOPs of full attention may
    be spent.
    """
    for n, s, c, d in ((20, 5, 2, 3), (96, 8, 1, 7)):
        q, k, v = random_tensors((n, d), (n, d), (n, d), seed=n)
        given = {"q": q, "k": k, "v": v, "s": s, "c": c}
        require(function, given, _by_blocks, shape="n d", known_mistakes=_BLOCKS_MISTAKEN)
    check_arguments_and_dtype(function, given)
    advice = (
        "A mask over n × n scores saves nothing. For each block, take its own keys and the earlier "
        "summaries out of k, and compute scores with these only."
    )
    return require_skipped(function, given, 3, advice)
