"""Checks of lesson 55: readings of a table, scores of cells, a hop, a mark that follows links."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, random_tensors
from attnlab.exercises.exercise import Exercise, but, drawn

# ---- how many readings

check_readings = NumberExercise(
    "Is it the number of readings for a table of 30 rows and 8 columns?",
    right=30 + 8,
    unit="readings",
    mistakes={
        30 * 8: (
            "That is one reading for each cell. Rows and columns are read once each, not every "
            "cell."
        ),
        30: "That counts the rows alone: the columns are read as well.",
        8: "That counts the columns alone: the rows are read as well.",
        1 + 30 + 8: (
            "The question is not read alone: in the interaction model it stands in every reading."
        ),
    },
)


# ---- scores of cells


def _cells(rows: Tensor, columns: Tensor) -> Tensor:
    return rows.log_softmax(-1)[:, None, 1] + columns.log_softmax(-1)[None, :, 1]


check_cells = Exercise(
    """Is it log p of the row + log p of the column? `cells(rows, columns)`.

    `rows` is (r, 2), `columns` (c, 2): logits of no and yes. It returns (r, c).
    """,
    right=_cells,
    cases=drawn(55, rows=(5, 2), columns=(3, 2)),
    axes="r c",
    mistakes={
        (lambda rows, columns: rows[:, None, 1] + columns[None, :, 1]): (
            "It adds the raw logits of “yes”, as the released code does, and leaves those of “no” "
            "out: take log probabilities."
        ),
        (
            lambda rows, columns: (
                rows.log_softmax(-1)[:, None, 0] + columns.log_softmax(-1)[None, :, 0]
            )
        ): ("These are the log probabilities of “no”: “yes” is the second logit."),
        (
            lambda rows, columns: (
                rows.log_softmax(0)[:, None, 1] + columns.log_softmax(0)[None, :, 1]
            )
        ): (
            "The softmax runs over the rows (and over the columns) of the table. Each text has a "
            "softmax of its own, over no and yes."
        ),
        (lambda rows, columns: rows.softmax(-1)[:, None, 1] + columns.softmax(-1)[None, :, 1]): (
            "Probabilities are added; add their logarithms."
        ),
        (lambda rows, columns: _cells(rows, columns).exp()): (
            "That is the product of the two probabilities: the score is its logarithm."
        ),
        (lambda rows, columns: _cells(rows, columns).T): (
            "The table is turned: cell (i, j) is row i and column j."
        ),
    },
    praise="One number for each cell, from one for each row and one for each column.",
)


# ---- one hop


def _hop(
    q: Tensor, k: Tensor, v: Tensor, links: Tensor, *,
    turned: bool = False, both: bool = False, own: bool = False, scaled: bool = True,
    everyone: bool = False,
) -> Tensor:  # fmt: skip
    """Page after page; every keyword is a mistake."""
    rows = []
    for i in range(len(q)):
        read = [a for a, b in links.tolist() if b == i]
        ends = [b for a, b in links.tolist() if a == i]
        read = ends if turned else read + ends if both else read
        read = [*read, i] if own else list(range(len(q))) if everyone else read
        if not read:
            rows.append(torch.zeros_like(v[0]))
            continue
        scores = k[read] @ q[i] / (q.shape[1] ** 0.5 if scaled else 1)
        rows.append(scores.softmax(0) @ v[read])
    return torch.stack(rows)


def _empty_is_nan(q: Tensor, k: Tensor, v: Tensor, links: Tensor) -> Tensor:
    linked = torch.isin(torch.arange(len(q)), links[:, 1])
    return _hop(q, k, v, links).masked_fill(~linked[:, None], torch.nan)


def _hop_cases() -> Iterator[Arguments]:
    q, k, v = random_tensors((6, 5), (6, 5), (6, 3), seed=56)
    links = torch.tensor([[0, 1], [2, 1], [4, 1], [1, 3], [3, 2], [5, 2], [2, 5]])
    yield {"q": q, "k": k, "v": v, "links": links}


check_hop = Exercise(
    """Is it one hop along links? `hop(q, k, v, links)`.

    `q` and `k` are (n, d), `v` is (n, e), `links` (m, 2): from the first page to the second. It
    returns (n, e).
    """,
    right=_hop,
    cases=_hop_cases,
    axes="n e",
    mistakes={
        but(turned=True): (
            "The links are followed backwards: page b of a link (a, b) attends to page a."
        ),
        but(both=True): (
            "Links count in both directions: only the page to which a link leads attends."
        ),
        but(own=True): (
            "Each page attends to itself as well: what a page was is joined later, not here."
        ),
        but(everyone=True): "Every page attends to every page, whatever the links.",
        but(scaled=False): "The scores lack the factor 1/√d.",
        _empty_is_nan: (
            "A page to which no link leads gets NaN, from a softmax over nothing: give it zeros."
        ),
    },
    praise="Each page has a softmax over the pages that link to it.",
)


# ---- a mark that follows links


def _follow(
    named: Tensor, has: Tensor, links: Tensor, hops: int, *,
    turned: bool = False, shorter: bool = True, at_most: bool = False, one: bool = False,
    word: bool = True,
) -> Tensor:  # fmt: skip
    """1 where the word stands and the shortest way has so many links; each keyword is a mistake."""
    source, target = links.flip(1).T if turned else links.T
    mark, seen = named.clone(), named.clone()
    for _ in range(1 if one else hops):
        mark = torch.zeros_like(mark).index_add(0, target, mark[source]).clamp(max=1)
        if shorter:
            mark = mark * (1 - seen)
        seen = (seen + mark).clamp(max=1)
    mark = seen if at_most else mark
    return mark * has if word else mark


def _ways(named: Tensor, has: Tensor, links: Tensor, hops: int) -> Tensor:
    ways = named
    for _ in range(hops):
        ways = torch.zeros_like(ways).index_add(0, links[:, 1], ways[links[:, 0]])
    return ways * _follow(named, has, links, hops)


check_follow = Exercise(
    """Is it 1 at the pages with the word whose shortest way has `hops` links?
    `follow(named, has, links, hops)`.

    `named` (n,) is 1 at the page that the question names, `has` (n,) is 1 at pages with the word,
    and `links` (m, 2) lead from the first page to the second. It returns (n,), of 0 and 1.
    """,
    right=_follow,
    cases=lambda: [_linked(hops) for hops in (1, 2, 3)],
    axes="n",
    mistakes={
        but(turned=True): "The links are followed backwards.",
        but(shorter=False): "Pages that a shorter way reaches are counted, too: leave them out.",
        but(at_most=True): (
            "Pages on the way, and the named page itself, are counted: only those "
            "at the end may be."
        ),
        but(one=True): "It follows one link, whatever `hops` is.",
        but(word=False): "Pages without the word are marked: multiply by `has`.",
        (lambda named, has, links, hops: has): "All pages with the word are marked, linked or not.",
        (lambda named, has, links, hops: _ways(named, has, links, hops)): (
            "It counts the ways: two ways to a page are one mark."
        ),
    },
    praise="The mark goes one link further with each hop, and only the right pages keep it.",
)


def _linked(hops: int) -> Arguments:
    """0 → 1, 2 → 3 → 5, a way back to 0 and to 1, a short cut from 0 to 4, which 2 reaches too."""
    pairs = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (3, 5), (3, 6), (5, 1), (0, 4), (2, 4), (7, 6)]
    named = torch.zeros(8, dtype=torch.float64)
    named[0] = 1
    has = torch.tensor([1.0, 1, 0, 1, 1, 1, 0, 1], dtype=torch.float64)
    return {"named": named, "has": has, "links": torch.tensor(pairs), "hops": hops}
