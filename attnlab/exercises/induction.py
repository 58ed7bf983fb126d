"""Checks of lesson 61: where an induction head attends, and one that is built by hand."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.exercise import Exercise, drawn

_TOKENS = (3, 1, 4, 1, 1, 3, 4, 3)

# ---- the keys


def _same(tokens: Sequence[int]) -> Tensor:
    row = torch.tensor(tokens)
    return row[:, None] == row


def _before(n: int) -> Tensor:
    return torch.ones(n, n).tril(-1).bool()


def _duplicates(tokens: Sequence[int]) -> Tensor:
    return _same(tokens) & _before(len(tokens))


def _after(tokens: Sequence[int]) -> Tensor:
    """(n, n): the key comes right after an earlier occurrence; it may be the query itself."""
    return torch.nn.functional.pad(_duplicates(tokens)[:, :-1], (1, 0))


def _keys(tokens: Sequence[int]) -> Tensor:
    return _after(tokens) & _before(len(tokens))


def _last(tokens: Sequence[int]) -> Tensor:
    """Only the last such key of each query."""
    keys = _keys(tokens)
    return keys & (keys.flip(1).cumsum(1).flip(1) == 1)


check_induction_keys = Exercise(
    """Which keys does the induction share count? `keys(tokens) -> (n, n)`, True = counted.

    The row is the query, the column the key. `tokens` are whole numbers. Called with 8 tokens.
    """,
    right=_keys,
    cases=lambda: [{"tokens": _TOKENS}],
    axes="n n",
    mistakes={
        _duplicates: "Those are the earlier places of the query's own token: the key is one place "
        "further on.",
        _after: "A query is among its own keys, where its token stands twice in a row: only places "
        "before the query count.",
        (lambda tokens: _keys(tokens).mT): (
            "Rows and columns are exchanged: the row is the query, the column the key."
        ),
        (lambda tokens: torch.nn.functional.pad(_same(tokens)[:, :-1], (1, 0))): (
            "Later occurrences count here, too: only what came before the query is known to it."
        ),
        _last: "Only one key of each query is marked: each earlier occurrence of its token has "
        "one.",
        (lambda tokens: torch.nn.functional.pad(_duplicates(tokens)[:, 1:], (0, 1))): (
            "These keys come before an earlier occurrence: the key is one place further on, not "
            "back."
        ),
    },
    praise="A head with all of its attention on these keys has an induction share of 1.",
)


# ---- a head by hand


def _attended(
    x: Tensor, scores: Tensor, *, causal: bool = True, values: Tensor | None = None
) -> Tensor:
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf)
    return scores.softmax(-1) @ (x if values is None else values)


def _shifted(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x[:-1], (0, 0, 1, 0))


def _head(x: Tensor, sharpness: float) -> Tensor:
    return _attended(x, sharpness * x @ _shifted(x).mT)


check_induction_head = Exercise(
    """Is this an induction head? `head(x, sharpness) -> (n, d)`.

    `x` (n, d) are the tokens' vectors. The first layer gives each place the vector of the token
    before it, zeros to the first; the second attends, causally, with the scores sharpness · (own
    vector · vector of the token before), and passes on the vectors of the attended tokens. Called
    with n = 7 and d = 5.
    """,
    right=_head,
    cases=drawn(6, x=(7, 5), sharpness=1.5),
    axes="n d",
    mistakes={
        (lambda x, sharpness: _attended(x, sharpness * x @ x.mT)): (
            "The keys are the tokens' own vectors, so the head attends to earlier places of the "
            "same token: each key should be the vector of the token before it."
        ),
        (lambda x, sharpness: _attended(x, sharpness * x @ _shifted(x).mT / x.shape[1] ** 0.5)): (
            "The scores are divided by √d: here `sharpness` is their only factor."
        ),
        (lambda x, sharpness: _attended(x, sharpness * _shifted(x) @ x.mT)): (
            "The queries are shifted, not the keys: a query is the vector of its own token."
        ),
        (lambda x, sharpness: _attended(x, sharpness * x @ _shifted(x).mT, causal=False)): (
            "Queries attend to the future: mask the keys after the query before the softmax."
        ),
        (lambda x, sharpness: _attended(x, sharpness * x @ x.roll(1, 0).mT)): (
            "The key of the first token is the vector of the last one (`roll` goes around): "
            "nothing stands before the first token, and its key is zero."
        ),
        (lambda x, sharpness: _attended(x, sharpness * x @ _shifted(x).mT, values=_shifted(x))): (
            "The values are shifted, too: what is passed on is the vector of the attended token."
        ),
        (lambda x, sharpness: _attended(x, x @ _shifted(x).mT)): (
            "The scores are not multiplied by the sharpness."
        ),
        (
            lambda x, sharpness: _attended(
                x, sharpness * x @ torch.nn.functional.pad(x[1:], (0, 0, 0, 1)).mT
            )
        ): (
            "The keys are shifted the other way: the key of a place is the vector of the token "
            "before."
        ),
    },
    praise="Two layers: the first one tells each place what came before, the second one matches "
    "it.",
)


# ---- uniform attention

check_uniform_share = NumberExercise(
    "Is it the induction share of uniform attention on the tokens x y x z x?",
    right=(1 / 3 + 2 / 5) / 2,
    tolerance=1e-2,
    unit="(the induction share)",
    mistakes={
        2 / 5: "That is the last x alone. The x at place 2 has an induction key, too.",
        1 / 3 + 2 / 5: "That is the sum over two queries. Divide by their number.",
        (1 / 3 + 2 / 5) / 5: (
            "Queries without any induction key do not count: divide by the number of those that "
            "have one."
        ),
        (1 / 2 + 2 / 4) / 2: (
            "A query attends to itself, too: place 2 attends to 3 places, place 4 to 5."
        ),
        (1 / 4 + 2 / 6) / 2: (
            "The places are counted from 1. They are counted from 0, so the query at place i "
            "attends to i + 1 places: 3 at place 2, 5 at place 4."
        ),
        (1 / 3 + 1 / 5) / 2: "The last x has two induction keys: the tokens after both earlier x.",
        1 / 3: "That is the x at place 2 alone. The last x counts, too.",
    },
)
