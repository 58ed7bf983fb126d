"""Checks of lesson 79: the tiles that causal programs visit, and the backward pass's one number."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, sizes
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- how many tiles a causal kernel visits

check_causal_visits = NumberExercise(
    "Is it how many tiles of 64 × 64 scores all programs of a causal kernel visit, for one head "
    "and 4,096 tokens?",
    right=64 * 65 / 2,
    unit="tiles",
    mistakes={
        64 * 64: "Those are all tiles. Program i visits the tiles 0 to i and skips the later ones.",
        64 * 64 / 2: "Half of all tiles leaves out half of the diagonal, whose tiles are visited.",
        64 * 63 / 2: "The tiles on the diagonal are missing: each has pairs that are allowed.",
        64: "That is the number of programs. Each of them visits several tiles.",
        4096 * 4097 / 2: "Those are pairs of tokens. Count tiles of 64 × 64.",
    },
)


# ---- where the loop over the keys ends


def _visited(
    program: int, rows: int, columns: int, n: int, *,
    last: int = 1, up: bool = True, whole: bool = False, ends: bool = True,
) -> Tensor:  # fmt: skip
    """As many tiles as the keys up to the program's last query take; keywords are mistakes."""
    after = (program + last) * rows + (1 - last)
    keys = n if whole else min(after, n) if ends else after
    return torch.tensor(-(-keys // columns) if up else keys // columns)


def _programs() -> Iterator[Arguments]:
    """Tiles of queries and of keys that differ in size; the last program has fewer queries."""
    for rows, columns, n in sizes((4, 2, 18), (2, 4, 11), (3, 3, 7), (6, 4, 20)):
        for program in range(-(-n // rows)):
            yield {"program": program, "rows": rows, "columns": columns, "n": n}


check_tiles_of_a_program = Exercise(
    """How many tiles of keys does a program of a causal kernel visit?
    `visited(program, rows, columns, n)`.

    Program 0 has the queries 0 to rows − 1, and so on; a tile of keys has `columns` of them; there
    are `n` queries and as many keys. It returns one whole number.
    """,
    right=_visited,
    cases=_programs,
    axes="",
    mistakes={
        but(whole=True): "Those are all tiles of keys. Later ones than the last query's are empty.",
        but(last=0): (
            "That reaches as far as the program's first query. Its last one attends to more keys."
        ),
        but(up=False): "The last tile is missing where only a part of it is allowed: round up.",
        but(ends=False): (
            "Beyond the end there are no keys: the last program may have fewer than `rows` queries."
        ),
        (lambda program, rows, columns, n: torch.tensor(program + 1)): (
            "That holds where both tiles have the same size. Count keys first, then tiles of them."
        ),
    },
    praise="This number is the end of the kernel's loop: what comes after it is never loaded.",
)


# ---- what the backward pass needs of the output


def _delta(
    d_out: Tensor, out: Tensor, *, axis: int = -1, mean: bool = False, weighted: bool = True
) -> Tensor:
    product = d_out * out if weighted else d_out
    return product.mean(axis) if mean else product.sum(axis)


check_output_dots = Exercise(
    """Is it δ = rowsum(dO · O), the number of each query that the backward pass needs?
    `delta(d_out, out)`.

    `d_out` and `out` are (n, e); it returns (n,). Called with n = 7 and e = 5, and with n = 6 and
    e = 6.
    """,
    right=_delta,
    cases=drawn([79, 80], d_out=[(7, 5), (6, 6)], out=[(7, 5), (6, 6)]),
    axes="n",
    mistakes={
        but(axis=0): (
            "Those are sums over the queries. Each query has one number: sum over its e entries."
        ),
        but(mean=True): "Each sum is divided by e. It is a sum, not a mean.",
        but(weighted=False): "`out` is missing: it is the sum of d_out · out.",
        (lambda d_out, out: (d_out * out)[:, : _half(out)].sum(-1)): (
            "The last entries of a row are missing: a tile has a power of two of them, and it "
            "should be the next one that is not below e."
        ),
    },
    praise="One number for each query: with it, no program needs a whole row of weights.",
)


def _half(out: Tensor) -> int:
    """The power of two below the width."""
    return 1 << (out.shape[-1] - 1).bit_length() - 1
