"""Checks of lesson 22: running sums by tokens and by chunks, a length, and the delta rule."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import Arguments, Parts, random_tensors, run
from attnlab.exercises.exercise import Exercise, but, drawn
from attnlab.exercises.parts import PartsExercise
from attnlab.exercises.verdict import Function
from attnlab.exercises.work import require_no_loop

# ---- one step


def _step(values: Tensor, keys: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Parts:
    """The right step; the mistakes below are wrong versions of it."""
    values, keys = values + torch.outer(k, v), keys + k
    return q @ values / (q @ keys), values, keys


def _token(*, full: bool) -> Arguments:
    """Positive features; the sums before it over seven tokens, or over none."""
    k, q = (x.exp() for x in random_tensors((8, 5), (5,), seed=1))
    (v,) = random_tensors((8, 3), seed=2)
    past = 7 if full else 0
    values, keys = k[:past].mT @ v[:past], k[:past].sum(dim=0)
    return {"values": values, "keys": keys, "q": q, "k": k[7], "v": v[7]}


def _empty_sums(function: Function, given: Arguments) -> str | None:
    out = run(function, given).value[0]  # type: ignore[index]
    if torch.as_tensor(out).isfinite().all():
        return None
    return (
        "For the first token the sums are zero, and `out` is not finite: 0 / 0. Add its key and "
        "value first, then read."
    )


check_running_step = PartsExercise(
    """Is it one step of the recurrence? `step(values, keys, q, k, v)`.

    `values` (r, e) is Σ k vᵀ over all tokens before, `keys` (r,) is Σ k; `q` and `k` (r,) are
    features already, `v` (e,). It returns (out, values, keys): the output of the query, which
    attends to its own key as well, and the two sums after it. Called with r = 5, e = 3, from sums
    of zero and from sums over seven tokens.
    """,
    right=_step,
    cases=lambda: [_token(full=True), _token(full=False)],
    axes={"out": "e", "values": "r e", "keys": "r"},
    of_part={  # a wrong state comes first: it explains the output that was read from it
        "values": {
            (lambda values, keys, q, k, v: values): (
                "`values` is unchanged: the newest token is not added to it."
            ),
            (lambda values, keys, q, k, v: torch.outer(k, v)): (
                "`values` contains only the newest token: add it to the old `values`."
            ),
            (lambda values, keys, q, k, v: values + v): (
                "`values` adds v to every row alike: row i gets k[i] times v, an outer product."
            ),
            (lambda values, keys, q, k, v: values + torch.outer(q, v)): (
                "`values` uses the query; use the key: queries only read."
            ),
            (lambda values, keys, q, k, v: (values + torch.outer(k, v)) / (q @ (keys + k))): (
                "The state is divided: it holds sums; each query divides its own result."
            ),
        },
        "keys": {
            (lambda values, keys, q, k, v: keys): (
                "`keys` is unchanged: the newest key is not added."
            ),
            (lambda values, keys, q, k, v: k): (
                "`keys` contains only the newest key: add it to the old `keys`."
            ),
            (lambda values, keys, q, k, v: keys + 1): (
                "`keys` counts tokens; it should sum the features of the keys."
            ),
            (lambda values, keys, q, k, v: keys + q): (
                "The query was added to `keys`: queries only read."
            ),
        },
        "out": {
            (lambda values, keys, q, k, v: (q @ values / (q @ keys)).nan_to_num()): (
                "The query reads before the new key and value are added: a position sees itself, "
                "so add them first, then read."
            ),
            (
                lambda values, keys, q, k, v: (
                    _step(values, keys, q, k, v)[0] * (q @ (keys + k)) / (q @ keys)
                )
            ): ("The denominator lacks the new key: numerator and denominator need the same keys."),
            (lambda values, keys, q, k, v: q @ (values + torch.outer(k, v))): (
                "`out` is not divided: q · values is a weighted sum, and q · keys the sum of the "
                "weights."
            ),
            (lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)) / (keys + k).sum()): (
                "It divides by the sum of `keys`; the sum of the weights of this query is q · keys."
            ),
            (lambda values, keys, q, k, v: q @ (values + torch.outer(k, v)) / (q @ k)): (
                "It divides by the newest weight q · k only; divide by the sum of all weights, q · "
                "keys."
            ),
            (lambda values, keys, q, k, v: v): "`out` uses only the newest token, so it is v.",
        },
    },
    praise="`out` and both sums are right after every token.",
    explain=_empty_sums,
    in_place=True,
)


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


def _causal_chunk_cases() -> Iterator[Arguments]:
    for full in (True, False):
        yield _tokens(full=full)


def _causal_chunk_then(function: Function, given: Arguments) -> None:
    require_no_loop(function, _tokens(full=True), _tokens(full=True, c=29), over="tokens")


check_causal_chunk = Exercise(
    """Is it the causal output of one chunk? `chunk(q, k, v, values, keys)`.

    `q` and `k` (c, r) are features already, `v` (c, e); `values` (r, e) and `keys` (r,) are the
    sums over all chunks before. It returns (c, e). Called with c = 7, r = 5, e = 3, also for a
    first chunk, before which the sums are zero, and with c = 29: a loop takes more operations.
    """,
    right=_chunk,
    cases=_causal_chunk_cases,
    axes="c e",
    mistakes={
        (lambda q, k, v, values, keys: _chunk(q, k, v, values, keys, diagonal=len(k))): (
            "Rows see later tokens of their own chunk: use `tril` on the weights q kᵀ, and add the "
            "chunk to the sums only afterwards."
        ),
        (lambda q, k, v, values, keys: _chunk(q, k, v, values, keys, diagonal=-1)): (
            "A token does not see itself: keep the diagonal, as `tril()` does."
        ),
        (lambda q, k, v, values, keys: _own(q, k, v)[0] / _own(q, k, v)[1]): (
            "The earlier chunks are missing: q @ `values` and q @ `keys` bring them in."
        ),
        (lambda q, k, v, values, keys: q @ values / (q @ keys[:, None])): (
            "Only the earlier chunks are used: the chunk's own tokens are missing."
        ),
        (lambda q, k, v, values, keys: (_own(q, k, v)[0] + q @ values) / _own(q, k, v)[1]): (
            "The denominator lacks the earlier chunks: add q · `keys` to the sum of the weights."
        ),
        (lambda q, k, v, values, keys: (_own(q, k, v)[0] + q @ values) / (q @ keys[:, None])): (
            "The denominator lacks the chunk's own weights: add their sum to q · `keys`."
        ),
        (
            lambda q, k, v, values, keys: (
                _own(q, k, v)[0] / _own(q, k, v)[1] + q @ values / (q @ keys[:, None])
            )
        ): (
            "Both parts are divided by their own sums and then added: add the two sums first, "
            "divide once."
        ),
        (lambda q, k, v, values, keys: _own(q, k, v)[0] + q @ values): (
            "It is not divided by the sum of the weights, those of earlier chunks included."
        ),
    },
    praise="The chunk's own tokens by weights, earlier ones by the sums, divided once.",
    then=_causal_chunk_then,
)


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


check_delta_layer = Exercise(
    """Is it a layer with the delta rule? `delta_layer(x, Wq, Wk, Wv, wb) -> (n, e)`.

    `x` is (n, dim); `Wq` and `Wk` are (dim, r), `Wv` (dim, e) and `wb` (dim,). Features are
    elu + 1, divided by their sum over r; β is the sigmoid of x · wb. Called with n = 7, dim = 11,
    r = 5, e = 3.
    """,
    right=_delta,
    cases=drawn(6, x=(7, 11), Wq=(11, 5), Wk=(11, 5), Wv=(11, 3), wb=(11,)),
    axes="n e",
    mistakes={
        but(remove=""): (
            "The old value is not removed: write β (v - old), where old = φ(k) · S is what the key "
            "finds."
        ),
        but(remove="all"): "The old value is removed whole: β belongs to the difference v - old.",
        but(by="query"): "The old value is read with the query; read it with the key.",
        but(first="read"): "The query reads before the write: write first.",
        but(share=torch.ones_like): "β is missing: each token writes a share of the difference.",
        but(share=lambda b: b): "β is not between 0 and 1: the sigmoid is missing.",
        but(queries=_elu_features, keys=_elu_features): (
            "The features are not divided by their sum."
        ),
        but(queries=_elu_features): "The features of the queries are not divided by their sum.",
        but(keys=_elu_features): "The features of the keys are not divided by their sum.",
        but(queries=lambda x: x, keys=lambda x: x): (
            "There are no features: φ(x) is elu(x) + 1, divided by its sum."
        ),
        but(divide=True): (
            "It is divided by q · z: with the delta rule there is no denominator, the features are "
            "divided before."
        ),
    },
    praise="A key that comes again replaces a share of its old value, where a sum would keep both.",
)
