"""Checks of lesson 14: how many rounds, queries without a key, one round of sorted chunks."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, sizes
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_square

# ---- how many rounds

_ROUNDS = math.log(0.01) / math.log(0.5)  # 6.64
_NOT_WHOLE = "There are whole rounds only: six are too few, so round up."
_NO_SUM = "Chances do not add up: two rounds of 50 % find it with 75 %, not 100 %."

check_rounds = NumberExercise(
    "Is it the smallest number of rounds, each with a chance of 50 %, that find it with 99 %?",
    right=math.ceil(_ROUNDS),
    unit="rounds",
    mistakes={
        4: "That is the number of rounds for 94 %: 1 - 0.5⁴.",
        6: "Six rounds find it with 98.4 %, still below 99 %.",
        8: "Eight rounds are enough, and so are fewer.",
        **dict.fromkeys((2, 198), _NO_SUM),
        **dict.fromkeys((6.6, 6.64, 6.644, _ROUNDS), _NOT_WHOLE),
    },
)


# ---- queries that find no key


def _without_key(own: Tensor, keys: Tensor) -> Tensor:
    same = own[:, None] == keys
    return ~(same & torch.ones_like(same).tril()).any(-1)


def _without_key_cases() -> Iterator[Arguments]:
    for n, buckets in sizes((29, 16), (17, 12)):
        generator = torch.Generator().manual_seed(n)
        own, keys = torch.randint(buckets, (2, n), generator=generator)
        keys[0] = own[0]  # the first query finds the key of its own position
        yield {"own": own, "keys": keys}


check_without_key = Exercise(
    """Which queries find no key? `without_key(own (n,), keys (n,)) -> (n,)`, True where none.

    The buckets of queries and of keys in one round; causal, each query may find the keys up to its
    own position.
    """,
    right=_without_key,
    cases=_without_key_cases,
    axes="n",
    mistakes={
        (lambda own, keys: ~_without_key(own, keys)): (
            "It is inverted: True for the queries that find a key."
        ),
        (lambda own, keys: ~(own[:, None] == keys).any(-1)): (
            "Later keys are counted as found: it should be causal, j ≤ i."
        ),
        (lambda own, keys: ~((own[:, None] == keys).tril(-1)).any(-1)): (
            "The key of the query's own position is left out: j ≤ i, and not j < i."
        ),
        (lambda own, keys: own != keys): (
            "Only the key of the query's own position is compared: all keys before it count, too."
        ),
        (lambda own, keys: ~(own[:, None] == keys).tril().any(0)): (
            "Those are keys that no query finds: rows are queries, ask for each row."
        ),
        (lambda own, keys: _without_key(own, own)): (
            "Buckets are compared with themselves: `own` has those of the queries, `keys` those of "
            "the keys."
        ),
        (lambda own, keys: _without_key(keys, own)): (
            "Queries and keys are exchanged: `own` has the buckets of the queries."
        ),
        (lambda own, keys: _without_key(own, keys).sum()): (
            "That is how many there are; give one truth value for each query."
        ),
    },
    praise="With separate queries and keys a bucket can hold queries and no key.",
)


# ---- one round: sort, cut into chunks, look back, undo


def _round(
    q: Tensor, v: Tensor, buckets: Tensor, chunk: int, *, causal: bool = True, back: bool = True,
    compared: bool = True, scale: float | None = None, unit: bool = True, itself: str = "alone",
    undone: str = "yes", stable: bool = True,
) -> Tensor:  # fmt: skip
    """Dense, under the mask that sorting and chunks make; every option is a mistake."""
    n, d = q.shape
    order = torch.arange(n).flip(0) if not stable else torch.arange(n)
    order = order[buckets[order].argsort(stable=True)]
    place = torch.empty_like(order).scatter(0, order, torch.arange(n)) // chunk
    behind = place[:, None] - place
    near = (behind == 0) | (behind == 1) & torch.tensor(back)
    pairs = near & (buckets[:, None] == buckets) if compared else near
    ahead = torch.arange(n)[:, None] - torch.arange(n)
    pairs = pairs & (ahead > 0 if causal else ahead != 0)
    own = torch.eye(n, dtype=torch.bool)
    alone = own & ~pairs.any(-1, keepdim=True)
    pairs = pairs | {"alone": alone, "always": own, "never": own & False}[itself]
    keys = q / q.norm(dim=-1, keepdim=True) if unit else q
    scores = q @ keys.mT * (d**-0.5 if scale is None else scale)
    out = scores.masked_fill(~pairs, -torch.inf).softmax(-1).nan_to_num() @ v
    return {"yes": out, "no": out[order], "twice": out[order][order]}[undone]


def _sorted_round_cases() -> Iterator[Arguments]:
    for n, d, e, chunk, number in ((24, 5, 3, 4, 3), (15, 3, 2, 3, 2)):
        q, v = random_tensors((n, d), (n, e))
        buckets = torch.randint(number, (n,), generator=torch.Generator().manual_seed(n))
        yield {"q": q, "v": v, "buckets": buckets, "chunk": chunk}


_LONG = 480


def _sorted_round_then(function: Function, given: Arguments) -> None:
    q, v = random_tensors((_LONG, 2), (_LONG, 1))
    many = {"q": q, "v": v, "buckets": torch.arange(_LONG) % 32, "chunk": 6}
    require_no_square(
        function, many, _LONG, "Compare the queries of a chunk with 2 · `chunk` keys only."
    )


check_sorted_round = Exercise(
    """Is it one round of LSH attention? `lsh_round(q (n, d), v (n, e), buckets (n,), chunk)`.

    Causal. Tokens are sorted by (bucket, position) and cut into chunks; a query attends to earlier
    tokens of its bucket in its own chunk and the one before, to itself only if it has none. Also
    called with n = 480, where no tensor may grow with n².
    """,
    right=_round,
    cases=_sorted_round_cases,
    axes="n e",
    mistakes={
        but(undone="no"): "The order is not undone: row i of the result is the token that stands "
        "i-th in the sorted order.",
        but(undone="twice"): "The order is applied a second time; undo it: `out[order] = "
        "sorted_out`, or take `order.argsort()`.",
        but(back=False): (
            "A query is compared with its own chunk only: the chunk before it is missing."
        ),
        but(compared=False): (
            "Keys of other buckets are attended to: a chunk can hold several "
            "buckets, so compare them."
        ),
        but(causal=False): "Later tokens are attended to: compare the positions of queries and "
        "keys, not their places in the sorted order.",
        but(itself="always"): "Tokens attend to themselves although they have other keys: the "
        "score |q| is always the largest.",
        but(itself="never"): "A token that has no key in its two chunks attends to itself.",
        but(unit=False): "The keys are as long as the queries; they have length 1.",
        but(scale=1.0): "The scores are not divided by √d.",
        but(stable=False): "Within a bucket, later tokens stand first: sort with `stable=True`, so "
        "that tokens of one bucket keep their order.",
        (lambda q, v, buckets, chunk: _round(q, v, buckets, len(q))): (
            "That is the whole bucket, without chunks: a query is compared with 2 · `chunk` keys."
        ),
    },
    praise="Sorted, cut, compared with two chunks, and put back: 2 · chunk scores for each query.",
    then=_sorted_round_then,
)
