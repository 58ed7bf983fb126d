"""Checks of lesson 11: the pairs of ETC, and BigBird's attention block by block."""

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.skipping import attend_in_blocks, require_skipped
from attnlab.exercises.verdict import Function

# ---- the pairs of ETC

check_etc_pairs = NumberExercise(
    "How many pairs has ETC with 1,000 text tokens, 20 global tokens and a radius of 10?",
    right=1000 * 21 - 10 * 11 + 2 * 20 * 1000 + 20 * 20,
    unit="pairs",
    mistakes={
        61_400: "At both ends of the text some neighbours are missing: 10 · 11 pairs in all.",
        61_690: "The pairs of two global tokens are counted twice, in their rows and columns.",
        60_890: "Global tokens attend to each other as well: 20 · 20 pairs are missing.",
        41_290: "Global tokens attend to the text AND the text attends to them: 20 · 1000 twice.",
        20_890: "That is the text alone: all pairs with a global token are missing.",
        40_400: "Those are the pairs with a global token: text to text is missing.",
        51_370: "The radius counts on each side: a text token has 21 keys in the text.",
        60_290: "A text token attends to itself as well: 2 · 10 + 1 keys in the text.",
        1_040_400: "That is full attention.",
    },
)


# ---- BigBird

Blocks = Callable[
    [int, int, Sequence[int]], Collection[int]
]  # (b, number of blocks, drawn) -> keys


def _keys(b: int, count: int, drawn: Sequence[int]) -> set[int]:
    if b in (0, count - 1):
        return set(range(count))
    return {0, count - 1, b - 1, b, b + 1, *drawn}


def _bigbird(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block: int,
    drawn: Sequence[Sequence[int]],
    *,
    keys: Blocks = _keys,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    def of_block(start: int) -> list[int]:
        b = start // block
        return [c * block + u for c in keys(b, len(q) // block, drawn[b]) for u in range(block)]

    return attend_in_blocks(q, k, v, block, of_block, causal=causal, scale=scale)


def _gathered(b: int, count: int, drawn: Sequence[int]) -> list[int]:
    """A list, in which a block may occur twice."""
    return list(range(count)) if b in (0, count - 1) else [*_keys(b, count, ()), *drawn]


def _everywhere(b: int, count: int, drawn: Sequence[int]) -> list[int]:
    """As above, and the first and the last block gather their draws as well."""
    return [*_keys(b, count, ()), *drawn]


def _without_rows(b: int, count: int, drawn: Sequence[int]) -> set[int]:
    return {0, count - 1, *drawn, *range(max(b - 1, 0), min(b + 2, count))}


def _only(*wanted: str) -> Blocks:
    """The keys of blocks between the first and the last, of the wanted parts alone."""

    def keys(b: int, count: int, drawn: Sequence[int]) -> set[int]:
        parts = {
            "first": {0},
            "last": {count - 1},
            "own": {b},
            "before": {b - 1},
            "after": {b + 1},
            "drawn": set(drawn),
        }
        ends = b in (0, count - 1)
        return set(range(count)) if ends else set().union(*(parts[part] for part in wanted))

    return keys


def _bigbird_cases() -> Iterator[Arguments]:
    for n, d, block, links in ((40, 3, 5, 2), (96, 7, 4, 1)):
        q, k, v = random_tensors((n, d), (n, d), (n, d), seed=n)
        draws = torch.Generator().manual_seed(n)
        drawn = torch.randint(n // block, (n // block, links), generator=draws).tolist()
        given: Arguments = {"q": q, "k": k, "v": v, "block": block, "drawn": _Lists(drawn)}
        yield given


def _bigbird_then(function: Function, given: Arguments) -> str:
    advice = (
        "For each block, take the chosen blocks out of k and v, and compute scores with these only."
    )
    return require_skipped(function, given, 2, advice)


check_bigbird = Exercise(
    """Is it BigBird's attention without the other pairs? `attend(q, k, v, block, drawn) -> (n, d)`.

    `q`, `k`, `v` (n, d) are one head's, n a multiple of `block`; `drawn` has a list of blocks for
    each block. The first and the last block are global. Called with n = 40 and blocks of 5, then
    with n = 96 and blocks of 4, where at most half of the FLOPs of full attention may be spent.
    """,
    right=_bigbird,
    cases=_bigbird_cases,
    axes="n d",
    mistakes={
        but(keys=_gathered): "A drawn block that is there anyway is counted twice, so its weight "
        "is doubled. The keys are a set: each block once.",
        but(keys=_everywhere): "Drawn blocks that are there anyway are counted twice, also for the "
        "first and the last block, which have all blocks already. The keys are a set: each block "
        "once.",
        but(keys=_without_rows): (
            "The first and the last block attend to all blocks: they are global as queries, too."
        ),
        but(keys=_only("own", "before", "after", "drawn")): (
            "The first and the last block are missing among the keys of the other blocks."
        ),
        but(keys=_only("first", "own", "before", "after", "drawn")): (
            "Only the first block is a key of all blocks; the last one is global, too."
        ),
        but(keys=_only("first", "last", "own", "before", "after")): "The drawn blocks are missing.",
        but(keys=_only("first", "last", "own", "drawn")): (
            "The neighbours are missing: the block before and the block after."
        ),
        but(keys=_only("first", "last", "own", "before", "drawn")): (
            "The block after is missing: a slice or range ends before its end, so write b + 2."
        ),
        but(keys=_only("first", "last", "before", "after", "drawn")): "The own block is missing.",
        but(scale=1.0): "The scores are not divided by √d.",
        but(causal=True): "Later keys are masked. This attention is not causal.",
    },
    praise="",
    then=_bigbird_then,
)


class _Lists(list[list[int]]):
    """The drawn blocks; a message gives their number only."""

    def __str__(self) -> str:
        return f"{len(self)} lists"
