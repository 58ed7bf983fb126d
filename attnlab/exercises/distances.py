"""Checks of lesson 42: the relative shift, and the rows of a table of clipped distances."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors, sizes
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_loop

# ---- the shift

Entry = Callable[[Tensor, Tensor, int], Tensor]  # (i, j, n) -> the column


def _shift(scores: Tensor) -> Tensor:
    n = len(scores)
    at = torch.arange(n)
    return scores.gather(1, n - 1 - (at[:, None] - at[None]))


def _looked_up(column: Entry) -> Function:
    """(n, 2n - 1) -> (n, n), each entry from the column that a rule gives."""

    def shift(scores: Tensor) -> Tensor:
        n = len(scores)
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        return scores.gather(1, column(i, j, n) % (2 * n - 1))

    return shift


def _by_view(left: int, first: int) -> Function:
    """The trick, with the zeros on one side and a row dropped at one end."""

    def shift(scores: Tensor) -> Tensor:
        n = len(scores)
        padded = F.pad(scores, (1, 0) if left else (0, 1)).reshape(2 * n, n)
        return (padded[1:] if first else padded[:-1]).reshape(n, 2 * n - 1)[:, :n]

    return shift


def _shift_cases() -> Iterator[Arguments]:
    (scores,) = random_tensors((5, 9))
    yield {"scores": scores}
    (one,) = random_tensors((1, 1))
    yield {"scores": one}


check_shift = Exercise(
    """Does it move each distance to its key? `shift(scores (n, 2n - 1)) -> (n, n)`.

    Column c of `scores` is the distance n - 1 - c. Called with n = 5 and n = 1, in two dtypes.
    """,
    right=_shift,
    cases=_shift_cases,
    axes="n n",
    mistakes={
        (lambda scores: scores[:, : len(scores)]): (
            "Nothing is shifted: these are the first n columns. Column c of row i is the distance "
            "n − 1 − c, and key j has the distance i − j: another column in every row."
        ),
        (lambda scores: scores[:, len(scores) - 1 :]): (
            "These are the last n columns of every row: right for row 0 alone. Row i begins i "
            "columns earlier."
        ),
        _looked_up(lambda i, j, n: n - 1 + i - j): (
            "The distance has the wrong sign: it is query minus key, i − j, and columns are in "
            "descending order, n − 1 first."
        ),
        _looked_up(lambda i, j, n: i + j): (
            "The rows move by i, and should move by n − 1 − i: the last row does not move at all."
        ),
        _looked_up(lambda i, j, n: n - (i - j)): (
            "One column off: the distance i − j stands in column n − 1 − (i − j)."
        ),
        _looked_up(lambda i, j, n: n - 2 - (i - j)): (
            "One column off: the distance i − j stands in column n − 1 − (i − j)."
        ),
        (lambda scores: _shift(scores).mT): "The result is transposed: row i belongs to query i.",
        _by_view(left=0, first=1): "The zeros are on the right: pad on the left, so that row 0 is "
        "pushed out of the first n numbers.",
        _by_view(left=0, first=0): (
            "The zeros are on the right and the last row is dropped: pad on "
            "the left, drop the first."
        ),
        _by_view(left=1, first=0): "The last row of the view is dropped, and the first should be: "
        "it holds what row 0 has too much.",
    },
    praise="Entry (i, j) is the score of the distance i − j, for keys on both sides.",
)


# ---- clipped distances


def _rows(n: int, k: int) -> Tensor:
    at = torch.arange(n)
    return (at[None, :] - at[:, None]).clamp(-k, k) + k


check_clipped_rows = Exercise(
    "Are they the rows of a table of 2k + 1 distances? `rows(n, k) -> (n, n)`.",
    right=_rows,
    cases=lambda: [{"n": n, "k": k} for n, k in sizes((7, 2), (3, 5), (4, 0))],
    axes="n n",
    mistakes={
        (lambda n, k: _rows(n, k).mT): (
            "The distance has the wrong sign: in Shaw's table it is key minus query, j − i."
        ),
        (lambda n, k: _rows(n, k) - k): (
            "The k is missing: distances run from −k to k, and rows of the table from 0 to 2k."
        ),
        (lambda n, k: torch.arange(n)[None, :] - torch.arange(n)[:, None] + k): (
            "Nothing is clipped: distances beyond k lie outside the table."
        ),
        (lambda n, k: (torch.arange(n)[None, :] - torch.arange(n)[:, None] + k).clamp(0, k)): (
            "It clips after adding k: distances from k on share the middle of the table, and those "
            "below −k are lost. Clip the distance to −k … k first."
        ),
        (
            lambda n, k: (torch.arange(n)[None, :] - torch.arange(n)[:, None] + k).clamp(
                0, 2 * k + 1
            )
        ): (
            "It clips to one row too many: the table has 2k + 1 rows, numbered from 0, so the last "
            "is 2k."
        ),
        (lambda n, k: (torch.arange(n)[None, :] - torch.arange(n)[:, None]).abs().clamp(max=k)): (
            "Both sides share rows: the absolute distance is used, and the past and the future "
            "have rows of their own."
        ),
        (lambda n, k: (torch.arange(n)[None, :] - torch.arange(n)[:, None] + k) % (2 * k + 1)): (
            "Far distances wrap around: `%` begins the table again. Beyond k they share its last "
            "row."
        ),
    },
    praise="The diagonal is row k, the past lies below it, and beyond k all share one row.",
)


# ---- rows that are never used

check_unused_rows = NumberExercise(
    "Is it how many rows of Shaw's table, k = 16, a causal layer never uses?",
    right=2 * 16 + 1 - 17,
    tolerance=1e-3,
    unit="rows",
    mistakes={
        15: (
            "Row 2k is one of them, too: the distances 1 … 16, key minus query, belong to later "
            "keys."
        ),
        17: "The row of distance 0 is used: a token attends to itself.",
        33: "That is the whole table, 2k + 1 rows. The past uses its share.",
        0: "A causal query never meets a later key, and later keys have rows of their own.",
    },
)


# ---- a layer with a memory


def _by_key(scores: Tensor) -> Tensor:
    h, n, m = scores.shape
    return F.pad(scores, (1, 0)).reshape(h, m + 1, n)[:, 1:].reshape(h, n, m)


def _attended(
    q: Tensor, k: Tensor, v: Tensor, u: Tensor, t: Tensor, r: Tensor, *,
    place: Callable[[Tensor], Tensor] = _by_key, scale: float | None = None,
    first: int | None = None, causal: bool = True, axis: int = -1, halved: bool = False,
) -> Tensor:  # fmt: skip
    """The layer; a known mistake replaces one of the steps or leaves one out."""
    n, m, d = q.shape[1], k.shape[1], q.shape[2]
    scale = d**-0.5 if scale is None else scale
    content, position = (q + u[:, None]) @ k.mT, place((q + t[:, None]) @ r.mT)
    scores = content * scale + position * (1 if halved else scale)
    future = torch.ones(n, m, dtype=torch.bool).triu(m - n + 1 if first is None else first)
    if causal:
        scores = scores.masked_fill(future, -torch.inf)
    return scores.softmax(axis) @ v


def _memory(n: int, m: int) -> Arguments:
    """n new tokens, m with those of the memory."""
    shapes = {"q": (2, n, 5), "k": (2, m, 5), "v": (2, m, 4), "u": (2, 5), "t": (2, 5)}
    shapes["r"] = (2, m, 5)
    return dict(zip(shapes, random_tensors(*shapes.values(), seed=m), strict=True))


def _memory_layer_then(function: Function, given: Arguments) -> None:
    require_no_loop(function, _memory(2, 3), _memory(29, 31), over="tokens")


check_memory_layer = Exercise(
    """Is it relative attention with a memory? `attend(q, k, v, u, t, r) -> (h, n, e)`.

    `q` (h, n, d) are the new tokens' queries, `k` (h, m, d) and `v` (h, m, e) keys and values of
    the memory and the new tokens, m ≥ n; `u` and `t` (h, d); `r` (h, m, d) the vectors of the
    distances m − 1, …, 0. Called with h = 2, n = 3, m = 7, d = 5, e = 4, and without a memory.
    """,
    right=_attended,
    cases=lambda: [_memory(n, m) for n, m in ((3, 7), (4, 4))],
    axes="h n e",
    mistakes={
        but(causal=False): "Later tokens are attended to: mask each key that comes after its "
        "query, before the softmax.",
        but(first=1): "The mask forgets the memory: query i is token m − n + i of all m, and may "
        "attend to m − n + i + 1 keys.",
        (lambda q, k, *rest: _attended(q, k, *rest, first=k.shape[1] - q.shape[1])): (
            "A token does not attend to itself: its own key, at distance 0, is allowed."
        ),
        but(place=lambda x: x): "The products by distance are used as they are: column c is the "
        "distance m − 1 − c, and must be moved to its key first.",
        but(place=lambda x: _by_key(x.flip(-1))): (
            "The distances are taken in the wrong order: column 0 of the products is the largest "
            "one, m − 1."
        ),
        (lambda q, k, v, u, t, r: _attended(q, k, v, t, u, r)): (
            "u and t are exchanged: u is added where a query meets keys, t where it meets "
            "distances."
        ),
        (lambda q, k, v, u, t, r: _attended(q, k, v, u, 0 * t, r)): (
            "t is missing: every query has a vector of its own for distances, q + t."
        ),
        (lambda q, k, v, u, t, r: _attended(q, k, v, 0 * u, t, r)): (
            "u is missing: the query that meets keys is q + u."
        ),
        but(scale=1): "The scores are not divided by √d.",
        but(halved=True): "Only the first product is divided by √d: both are parts of one score.",
        but(axis=-2): (
            "The softmax runs over the queries; each query has weights over its keys, `dim=-1`."
        ),
    },
    praise="New tokens attend to the memory by the distance, however long ago its tokens were "
    "read.",
    then=_memory_layer_then,
)
