"""Checks of lesson 22: running sums by tokens and by chunks, a length, and the delta rule."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    Parts,
    changed_in_place,
    check_arguments_and_dtype,
    expect_tensors,
    part_faults,
    random_tensors,
    require,
    run,
    same,
)
from attnlab.exercises.verdict import Function, Mistake, returns_verdict
from attnlab.exercises.work import require_no_loop

# ---- one step


def _step(values: Tensor, keys: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Parts:
    """The right step; the mistakes below are wrong versions of it."""
    values, keys = values + torch.outer(k, v), keys + k
    return q @ values / (q @ keys), values, keys


_STEP, _STEP_SHAPES = ("out", "values", "keys"), ("e", "r e", "r")
_STEP_MISTAKEN: tuple[tuple[KnownMistake, ...], ...] = (
    (
        (
            "The query reads before the new key and value are added: a position sees itself, so "
            "add them first, then read.",
            lambda values, keys, q, k, v: q @ values / (q @ keys),
        ),
        (
            "The denominator lacks the new key: numerator and denominator need the same keys.",
            lambda values, keys, q, k, v: (
                _step(values, keys, q, k, v)[0] * (q @ (keys + k)) / (q @ keys)
            ),
        ),
        (
            "`out` is not divided: q · values is a weighted sum, and q · keys the sum of the "
            "weights.",
            lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)),
        ),
        (
            "It divides by the sum of `keys`; the sum of the weights of this query is q · keys.",
            lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)) / (keys + k).sum(),
        ),
        (
            "It divides by the newest weight q · k only; divide by the sum of all weights, q · "
            "keys.",
            lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)) / (q @ k),
        ),
        (
            "`out` uses only the newest token, so it is v.",
            lambda values, keys, q, k, v: v,
        ),
    ),
    (
        (
            "`values` is unchanged: the newest token is not added to it.",
            lambda values, keys, q, k, v: values,
        ),
        (
            "`values` contains only the newest token: add it to the old `values`.",
            lambda values, keys, q, k, v: torch.outer(k, v),
        ),
        (
            "`values` adds v to every row alike: row i gets k[i] times v, an outer product.",
            lambda values, keys, q, k, v: values + v,
        ),
        (
            "`values` uses the query; use the key: queries only read.",
            lambda values, keys, q, k, v: values + torch.outer(q, v),
        ),
        (
            "The state is divided: it holds sums; each query divides its own result.",
            lambda values, keys, q, k, v: (values + torch.outer(k, v)) / (q @ (keys + k)),
        ),
    ),
    (
        (
            "`keys` is unchanged: the newest key is not added.",
            lambda values, keys, q, k, v: keys,
        ),
        (
            "`keys` contains only the newest key: add it to the old `keys`.",
            lambda values, keys, q, k, v: k,
        ),
        (
            "`keys` counts tokens; it should sum the features of the keys.",
            lambda values, keys, q, k, v: keys + 1,
        ),
        (
            "The query was added to `keys`: queries only read.",
            lambda values, keys, q, k, v: keys + q,
        ),
    ),
)


@returns_verdict
def check_running_step(function: Function) -> str:
    """Is it one step of the recurrence? `step(values, keys, q, k, v)`.

    `values` (r, e) is Σ k vᵀ over all tokens before, `keys` (r,) is Σ k; `q` and `k` (r,) are
    features already, `v` (e,). It returns (out, values, keys): the output of the query, which
    attends to its own key as well, and the two sums after it. Called with r = 5, e = 3, from sums
    of zero and from sums over seven tokens.
    """
    for given in (_token(full=True), _token(full=False)):
        truth = _step(*given.values())
        parts = expect_tensors(run(function, given), _STEP, _STEP_SHAPES, truth)
        if not parts[0].isfinite().all():
            raise Mistake(
                "For the first token the sums are zero, and `out` is not finite: 0 / 0. Add its "
                "key and value first, then read."
            )
        faults = part_faults(parts, truth, given, _STEP, _STEP_MISTAKEN)
        if len(faults) > 1 and not same(parts[0], truth[0]):
            faults = faults[1:]  # a wrong state explains the output that was read from it
        if faults:
            raise Mistake(" ".join(faults))
    answer = run(function, given)
    remark = f" One remark: {changed_in_place(answer)}" if answer.changed else ""
    return f"`out` and both sums are right after every token.{remark}"


def _token(*, full: bool) -> Arguments:
    """Positive features; the sums before it over seven tokens, or over none."""
    k, q = (x.exp() for x in random_tensors((8, 5), (5,), seed=1))
    (v,) = random_tensors((8, 3), seed=2)
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
    """The part of the chunk's own keys: the weighted sum of values, and the sum of the weights."""
    weights = (q @ k.mT).tril()
    return weights @ v, weights.sum(dim=-1, keepdim=True)


_CHUNK_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "Rows see later tokens of their own chunk: use `tril` on the weights q kᵀ, and add the "
        "chunk to the sums only afterwards.",
        lambda q, k, v, values, keys: _chunk(q, k, v, values, keys, diagonal=len(k)),
    ),
    (
        "A token does not see itself: keep the diagonal, as `tril()` does.",
        lambda q, k, v, values, keys: _chunk(q, k, v, values, keys, diagonal=-1),
    ),
    (
        "The earlier chunks are missing: q @ `values` and q @ `keys` bring them in.",
        lambda q, k, v, values, keys: _own(q, k, v)[0] / _own(q, k, v)[1],
    ),
    (
        "Only the earlier chunks are used: the chunk's own tokens are missing.",
        lambda q, k, v, values, keys: q @ values / (q @ keys[:, None]),
    ),
    (
        "The denominator lacks the earlier chunks: add q · `keys` to the sum of the weights.",
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
        "It is not divided by the sum of the weights, those of earlier chunks included.",
        lambda q, k, v, values, keys: _own(q, k, v)[0] + q @ values,
    ),
)


@returns_verdict
def check_causal_chunk(function: Function) -> str:
    """Is it the causal output of one chunk? `chunk(q, k, v, values, keys)`.

    `q` and `k` (c, r) are features already, `v` (c, e); `values` (r, e) and `keys` (r,) are the
    sums over all chunks before. It returns (c, e). Called with c = 7, r = 5, e = 3, also for a
    first chunk, before which the sums are zero, and with c = 29: a loop takes more operations.
    """
    for full in (True, False):
        require(function, _tokens(full=full), _chunk, shape="c e", known_mistakes=_CHUNK_MISTAKEN)
    check_arguments_and_dtype(function, _tokens(full=True))
    require_no_loop(function, _tokens(full=True), _tokens(full=True, c=29), over="tokens")
    return "The chunk's own tokens by weights, earlier ones by the sums, divided once."


def _tokens(*, full: bool, c: int = 7) -> Arguments:
    q, k, before = (x.exp() for x in random_tensors((c, 5), (c, 5), (11, 5), seed=3))
    v, old = random_tensors((c, 3), (11, 3), seed=4)
    values, keys = before.mT @ old, before.sum(dim=0)
    if not full:
        values, keys = torch.zeros_like(values), torch.zeros_like(keys)
    return {"q": q, "k": k, "v": v, "values": values, "keys": keys}


# ---- when the cache is larger

check_cache_length = NumberExercise(
    "Is it the first length at which a cache of width 64 holds more numbers than S and z?",
    right=(64 * 64 + 64) // (2 * 64) + 1,
    tolerance=1e-3,
    unit="tokens",
    mistakes={
        32: "32 tokens hold 4,096 numbers: exactly S, but z is there as well.",
        32.5: "That solves the equation. But tokens are whole: at how many is the cache larger?",
        64: "Per token the cache holds a key and a value, 128 numbers.",
        65: "Per token the cache holds a key and a value, 128 numbers.",
        4160: "Those are the numbers in S and z. How many tokens fill as many?",
    },
)


# ---- the delta rule

Features = Callable[[Tensor], Tensor]


def _elu_features(x: Tensor) -> Tensor:
    return F.elu(x) + 1


def _unit(x: Tensor) -> Tensor:
    features = _elu_features(x)
    return features / features.sum(-1, keepdim=True)


def _delta(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wb: Tensor, *,
    queries: Features = _unit, keys: Features = _unit, share: Features = torch.sigmoid,
    remove: str = "share", by: str = "key", first: str = "write", divide: bool = False,
) -> Tensor:  # fmt: skip
    """The layer; a known mistake replaces one of the steps."""
    q, k, v, beta = queries(x @ wq), keys(x @ wk), x @ wv, share(x @ wb)
    state, total, rows = x.new_zeros(k.shape[1], v.shape[1]), x.new_zeros(k.shape[1]), []
    for i in range(len(x)):
        before, old = state, (k if by == "key" else q)[i] @ state
        new = {"share": beta[i] * (v[i] - old), "all": beta[i] * v[i] - old, "": beta[i] * v[i]}
        state, total = state + torch.outer(k[i], new[remove]), total + k[i]
        row = q[i] @ (state if first == "write" else before)
        rows.append(row / (q[i] @ total) if divide else row)
    return torch.stack(rows)


def _delta_with(**changes: object) -> Callable[..., Tensor]:
    return lambda *given: _delta(*given, **changes)  # type: ignore[arg-type]


_DELTA_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The old value is not removed: write β (v - old), where old = φ(k) · S is what the key "
        "finds.",
        _delta_with(remove=""),
    ),
    (
        "The old value is removed whole: β belongs to the difference v - old.",
        _delta_with(remove="all"),
    ),
    ("The old value is read with the query; read it with the key.", _delta_with(by="query")),
    ("The query reads before the write: write first.", _delta_with(first="read")),
    (
        "β is missing: each token writes a share of the difference.",
        _delta_with(share=torch.ones_like),
    ),
    ("β is not between 0 and 1: the sigmoid is missing.", _delta_with(share=lambda b: b)),
    (
        "The features are not divided by their sum.",
        _delta_with(queries=_elu_features, keys=_elu_features),
    ),
    (
        "The features of the queries are not divided by their sum.",
        _delta_with(queries=_elu_features),
    ),
    ("The features of the keys are not divided by their sum.", _delta_with(keys=_elu_features)),
    (
        "There are no features: φ(x) is elu(x) + 1, divided by its sum.",
        _delta_with(queries=lambda x: x, keys=lambda x: x),
    ),
    (
        "It is divided by q · z: with the delta rule there is no denominator, the features are "
        "divided before.",
        _delta_with(divide=True),
    ),
)


@returns_verdict
def check_delta_layer(function: Function) -> str:
    """Is it a layer with the delta rule? `delta_layer(x, Wq, Wk, Wv, wb) -> (n, e)`.

    `x` is (n, dim); `Wq` and `Wk` are (dim, r), `Wv` (dim, e) and `wb` (dim,). Features are
    elu + 1, divided by their sum over r; β is the sigmoid of x · wb. Called with n = 7, dim = 11,
    r = 5, e = 3.
    """
    shapes = {"x": (7, 11), "Wq": (11, 5), "Wk": (11, 5), "Wv": (11, 3), "wb": (11,)}
    given = dict(zip(shapes, random_tensors(*shapes.values(), seed=6), strict=True))
    require(function, given, _delta, shape="n e", known_mistakes=_DELTA_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "A key that comes again replaces a share of its old value, where a sum would keep both."
