"""Checks of lesson 22: the running sums, one token at a time and one chunk at a time."""

import torch
from torch import Tensor

from attnlab.exercises.attempt import (
    Given,
    Parts,
    Suspect,
    ask,
    changes,
    demand,
    made,
    mannerly,
    named_parts,
    part_faults,
    same,
)
from attnlab.exercises.verdict import Function, Mistake, diagnosed

# ---- one step


def _step(values: Tensor, keys: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Parts:
    """The right step, of which the suspects below are the wrong ones."""
    values, keys = values + torch.outer(k, v), keys + k
    return q @ values / (q @ keys), values, keys


_STEP, _STEP_SHAPES = ("out", "values", "keys"), ("e", "r e", "r")
_STEP_MISTAKEN: tuple[tuple[Suspect, ...], ...] = (
    (
        (
            "The query reads before the token is written: a position sees itself, so add its key "
            "and value first, then read.",
            lambda values, keys, q, k, v: q @ values / (q @ keys),
        ),
        (
            "The denominator is that before the new key: numerator and denominator must have read "
            "the same keys.",
            lambda values, keys, q, k, v: (
                _step(values, keys, q, k, v)[0] * (q @ (keys + k)) / (q @ keys)
            ),
        ),
        (
            "`out` is not divided: q · values is a sum, q · keys says of how much weight.",
            lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)),
        ),
        (
            "It divides by the sum of `keys`: the weight that this query gives is q · keys.",
            lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)) / (keys + k).sum(),
        ),
        (
            "It divides by the newest weight q · k alone: the row is divided by the sum of all its "
            "weights, q · keys.",
            lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)) / (q @ k),
        ),
        (
            "`out` knows only the newest token: its weight is all there is, so v comes back.",
            lambda values, keys, q, k, v: v,
        ),
    ),
    (
        (
            "`values` came back as it was: the newest token is not written into it.",
            lambda values, keys, q, k, v: values,
        ),
        (
            "`values` forgets the past: only the newest token is in it. Add to what was there.",
            lambda values, keys, q, k, v: torch.outer(k, v),
        ),
        (
            "`values` adds v to every row alike: row i gets k[i] times v, an outer product.",
            lambda values, keys, q, k, v: values + v,
        ),
        (
            "`values` was written with the query: queries only read. The key says where to write.",
            lambda values, keys, q, k, v: values + torch.outer(q, v),
        ),
        (
            "The state is divided: it holds plain sums, and each query divides what it reads.",
            lambda values, keys, q, k, v: (values + torch.outer(k, v)) / (q @ (keys + k)),
        ),
    ),
    (
        (
            "`keys` came back as it was: the newest key is not added.",
            lambda values, keys, q, k, v: keys,
        ),
        (
            "`keys` forgets the past: only the newest key is in it. Add to what was there.",
            lambda values, keys, q, k, v: k,
        ),
        (
            "`keys` counts tokens: it sums the features of the keys.",
            lambda values, keys, q, k, v: keys + 1,
        ),
        (
            "The query was added to `keys`: queries only read.",
            lambda values, keys, q, k, v: keys + q,
        ),
    ),
)


@diagnosed
def check_running_step(function: Function) -> str:
    """Is it one step of the recurrence? `step(values, keys, q, k, v)`.

    `values` (r, e) is Σ k vᵀ over all tokens before, `keys` (r,) is Σ k; `q` and `k` (r,) are
    features already, `v` (e,). It returns (out, values, keys): what the query gets, itself
    included, and the two sums after it. Called with r = 5, e = 3, from empty sums and from full
    ones.
    """
    for given in (_token(full=True), _token(full=False)):
        truth = _step(*given.values())
        parts = named_parts(ask(function, given), _STEP, _STEP_SHAPES, truth)
        if not parts[0].isfinite().all():
            raise Mistake(
                "The first token finds empty sums, and `out` is not finite: 0 / 0. Write the token "
                "first, then read; then its own weight is there."
            )
        faults = part_faults(parts, truth, given, _STEP, _STEP_MISTAKEN)
        if len(faults) > 1 and not same(parts[0], truth[0]):
            faults = faults[1:]  # a wrong state explains the output that was read from it
        if faults:
            raise Mistake(" ".join(faults))
    answer = ask(function, given)
    remark = f" One remark: {changes(answer)}" if answer.changed else ""
    return f"`out` and both sums are right after every token.{remark}"


def _token(*, full: bool) -> Given:
    """Positive features; the sums before it over seven tokens, or over none."""
    k, q = (x.exp() for x in made((8, 5), (5,), seed=1))
    (v,) = made((8, 3), seed=2)
    past = 7 if full else 0
    values, keys = k[:past].mT @ v[:past], k[:past].sum(dim=0)
    return {"values": values, "keys": keys, "q": q, "k": k[7], "v": v[7]}


# ---- one chunk


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, values: Tensor, keys: Tensor, diagonal: int = 0
) -> Tensor:
    weights = (q @ k.mT).tril(diagonal)
    total = weights.sum(dim=-1, keepdim=True) + q @ keys[:, None]
    return (weights @ v + q @ values) / total


def _own(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """What the chunk itself gives: the weighted sum, and the weights' sum."""
    weights = (q @ k.mT).tril()
    return weights @ v, weights.sum(dim=-1, keepdim=True)


_CHUNK_MISTAKEN: tuple[Suspect, ...] = (
    (
        "Rows see later tokens of their own chunk: without `tril` the weights q kᵀ reach into the "
        "future, and so do the sums once the whole chunk is in them.",
        lambda q, k, v, values, keys: _chunk(q, k, v, values, keys, diagonal=len(k)),
    ),
    (
        "A token does not see itself: the diagonal belongs to the past, `tril()` keeps it.",
        lambda q, k, v, values, keys: _chunk(q, k, v, values, keys, diagonal=-1),
    ),
    (
        "The chunks before are forgotten: q @ `values` and q @ `keys` carry them.",
        lambda q, k, v, values, keys: _own(q, k, v)[0] / _own(q, k, v)[1],
    ),
    (
        "Only the past is read: the chunk's own tokens are missing.",
        lambda q, k, v, values, keys: q @ values / (q @ keys[:, None]),
    ),
    (
        "The denominator lacks the chunks before: add q · `keys` to the sum of the weights.",
        lambda q, k, v, values, keys: (_own(q, k, v)[0] + q @ values) / _own(q, k, v)[1],
    ),
    (
        "The denominator lacks the chunk's own weights: add their sum to q · `keys`.",
        lambda q, k, v, values, keys: (_own(q, k, v)[0] + q @ values) / (q @ keys[:, None]),
    ),
    (
        "Both parts are divided by their own sums and then added: add the two sums first, divide "
        "once.",
        lambda q, k, v, values, keys: (
            _own(q, k, v)[0] / _own(q, k, v)[1] + q @ values / (q @ keys[:, None])
        ),
    ),
    (
        "It is not divided: the sum of the weights, those of the past included, is left in.",
        lambda q, k, v, values, keys: _own(q, k, v)[0] + q @ values,
    ),
)


@diagnosed
def check_causal_chunk(function: Function) -> str:
    """Is it the causal output of one chunk? `chunk(q, k, v, values, keys)`.

    `q` and `k` (c, r) are features already, `v` (c, e); `values` (r, e) and `keys` (r,) are the
    sums over all chunks before. It returns (c, e). Called with c = 7, r = 5, e = 3, also for a
    first chunk, before which the sums are zero.
    """
    for full in (True, False):
        demand(function, _tokens(full=full), _chunk, shape="c e", suspects=_CHUNK_MISTAKEN)
    mannerly(function, _tokens(full=True))
    return "Inside the chunk by its weights, before it by the sums, divided once."


def _tokens(*, full: bool) -> Given:
    q, k, before = (x.exp() for x in made((7, 5), (7, 5), (11, 5), seed=3))
    v, old = made((7, 3), (11, 3), seed=4)
    values, keys = before.mT @ old, before.sum(dim=0)
    if not full:
        values, keys = torch.zeros_like(values), torch.zeros_like(keys)
    return {"q": q, "k": k, "v": v, "values": values, "keys": keys}
