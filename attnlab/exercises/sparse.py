"""Checks of lesson 10: who sees whom in a strided pattern, and which columns sum up a block."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.exercises.attempt import Given, Suspect, demand, untouched
from attnlab.exercises.verdict import Function, diagnosed

# ---- the strided predicate


def _strided(i: Tensor, j: Tensor, s: int) -> Tensor:
    back = i - j
    return (back >= 0) & ((back <= s) | (back % s == 0))


def _past(rule: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor, Tensor, int], Tensor]:
    return lambda i, j, s: (j <= i) & rule(i, j, s)


_STRIDED_MISTAKEN: tuple[Suspect, ...] = (
    (
        "It sees the future: the formulas leave j ≤ i out, and (i − j) % s == 0 holds for keys "
        "that come later as well.",
        lambda i, j, s: ((i - j) <= s) & (j <= i) | ((i - j) % s == 0),
    ),
    (
        "It sees the future: nothing says j ≤ i. For later keys i − j is negative, and that is "
        "≤ s too.",
        lambda i, j, s: ((i - j) <= s) | ((i - j) % s == 0),
    ),
    (
        "It sees the future: the distance is taken without its sign, so that s keys to come are "
        "near as well. Add j ≤ i.",
        lambda i, j, s: ((i - j).abs() <= s) | ((i - j) % s == 0),
    ),
    (
        "Both at once is the intersection: a key must be near AND in the column. Merged heads see "
        "the union, `|`.",
        _past(lambda i, j, s: ((i - j) <= s) & ((i - j) % s == 0)),
    ),
    (
        "That is the window alone, the first factor: the column above, (i − j) % s == 0, is "
        "missing.",
        _past(lambda i, j, s: (i - j) <= s),
    ),
    (
        "That is the column alone, the second factor: the last s positions are missing.",
        _past(lambda i, j, s: (i - j) % s == 0),
    ),
    (
        "The column does not move with the query: j % s == 0 are the same keys for everybody (that "
        "is how `fixed` begins). Take the distance, (i − j) % s.",
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
        "a block it sees nothing but itself. Here the window moves along: i − j ≤ s.",
        _past(lambda i, j, s: (i // s == j // s) | ((i - j) % s == 0)),
    ),
    (
        "Nobody sees itself: j < i should be j ≤ i. The first position would have an empty row.",
        lambda i, j, s: (j < i) & _strided(i, j, s),
    ),
    (
        "The window is one too long: i − j ≤ s are already s + 1 keys, i itself and the last s.",
        _past(lambda i, j, s: (i - j <= s + 1) | ((i - j) % s == 0)),
    ),
    (
        "Either, or: `^` leaves out what stands in both factors, i and i − s. The union is `|`.",
        _past(lambda i, j, s: (i - j <= s) ^ ((i - j) % s == 0)),
    ),
    (
        "That is the other pattern, `fixed`: a block, and the last position of each. Here a window "
        "moves along, and a column; both go by the distance i − j.",
        _past(lambda i, j, s: (i // s == j // s) | (j % s == s - 1)),
    ),
    (
        "It is turned around: True says that the query MAY see the key.",
        lambda i, j, s: ~_strided(i, j, s),
    ),
    (
        "That is a mask to be added to the scores. Asked for are truth values: True where the "
        "query may see the key.",
        lambda i, j, s: torch.zeros(len(i), j.shape[1]).masked_fill(~_strided(i, j, s), -math.inf),
    ),
    (
        "i and j are exchanged: queries look at keys that came before, so the distance is i − j.",
        lambda i, j, s: _strided(j, i, s),
    ),
)


@diagnosed
def check_strided(function: Function) -> str:
    """Is it the strided pattern? `strided(i, j, s) -> (n, m)`, True = may attend.

    `i` (n, 1) and `j` (1, m) are whole positions and `s` the stride; seen are the last s positions,
    oneself and the column above, all of the past. Called with n = m = 23, s = 5, and 17, s = 3.
    """
    for n, s in ((23, 5), (17, 3)):
        given = _positions(n, s)
        demand(function, given, _strided, shape="n m", suspects=_STRIDED_MISTAKEN)
    untouched(function, given)
    return "A window that moves along, and the column above: about 2·√n keys where s is √n."


def _positions(n: int, s: int) -> Given:
    places = torch.arange(n)
    return {"i": places[:, None], "j": places[None], "s": s}


# ---- the summary columns


def _summaries(j: Tensor, s: int, c: int) -> Tensor:
    return j % s >= s - c


_SUMMARIES_MISTAKEN: tuple[Suspect, ...] = (
    (
        "One column too many in front: j % s ≥ s − c − 1 are c + 1 columns. Residues run from 0 to "
        "s − 1, so the last c begin at s − c.",
        lambda j, s, c: j % s >= s - c - 1,
    ),
    (
        "One column short: j % s > s − c leaves c − 1. The first of the c has residue s − c "
        "itself.",
        lambda j, s, c: j % s > s - c,
    ),
    (
        "Residue 0 is in it: that is s in the formula, read modulo s (Long Range Arena does so). "
        "The first position of a block has seen nothing of it yet, so it sums up nothing.",
        lambda j, s, c: (j % s >= s - c) | (j % s == 0),
    ),
    (
        "These columns straddle two blocks: the last c and the first of the next, which is what "
        "fairseq's range(s − c, s + 1) takes. The last residue is s − 1.",
        lambda j, s, c: (j % s >= s - c) | ((j % s == 0) & (j > 0)),
    ),
    (
        "All is off by one: residues s − c + 1 … s. Positions count from 0, so a block ends at "
        "residue s − 1, not at 0 of the next.",
        lambda j, s, c: (j - 1) % s >= s - c,
    ),
    (
        "These are the FIRST c of each block. Those have seen nothing of it yet; who sums a block "
        "up must stand at its end.",
        lambda j, s, c: j % s < c,
    ),
    (
        "That is one column, with residue s − c. There are c of them: ≥, not ==.",
        lambda j, s, c: j % s == s - c,
    ),
    (
        "That is one column, the last of each block: c of them are asked for.",
        lambda j, s, c: j % s == s - 1,
    ),
    (
        "Only the first block is cut right: the remainder, j % s, is missing, so everything after "
        "it counts as a summary.",
        lambda j, s, c: j >= s - c,
    ),
    (
        "These are all but the first c. The last c of residues 0 … s − 1 begin at s − c.",
        lambda j, s, c: j % s >= c,
    ),
    (
        "Off by one to the front: (j + 1) % s turns the last residue, s − 1, into 0. Residues "
        "s − c … s − 1 are j % s.",
        lambda j, s, c: (j + 1) % s >= s - c,
    ),
    (
        "That is j // s, the number of the block. The place inside it is j % s.",
        lambda j, s, c: j // s >= s - c,
    ),
    (
        "Those are every c-th position. Asked for are the last c of every s.",
        lambda j, s, c: j % c == 0,
    ),
    (
        "That is the end of the text alone: EVERY block of s has its last c.",
        lambda j, s, c: j >= len(j) - c,
    ),
    (
        "s and c are exchanged: the remainder is taken by the stride, j % s.",
        lambda j, s, c: j % c >= c - s,
    ),
    (
        "These are the others: who does NOT sum up. Turn the comparison round.",
        lambda j, s, c: j % s < s - c,
    ),
)


@diagnosed
def check_summaries(function: Function) -> str:
    """Are these the summary columns? `summaries(j, s, c) -> (m,)`, True = everybody later sees it.

    `j` (m,) are whole positions, counted from 0; the last `c` of every block of `s` sum it up.
    Called with m = 29, s = 8, c = 3, with m = 31, s = 5, c = 2, and with c = s.
    """
    for m, s, c in ((29, 8, 3), (31, 5, 2), (13, 3, 3)):
        given = {"j": torch.arange(m), "s": s, "c": c}
        demand(function, given, _summaries, shape="m", suspects=_SUMMARIES_MISTAKEN)
    untouched(function, given)
    return "The last c of every block: the only ones in it that can have seen all of it."
