"""The checks of lesson 22 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attnlab.exercises import (
    check_causal_chunk,
    check_delta_layer,
    check_running_step,
)
from tests.exercises.frame import answers_to

State = tuple[Tensor, Tensor, Tensor]


# ---- one step


def step(
    *,
    write: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = lambda s, q, k, v: (
        s + torch.outer(k, v)
    ),
    add: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda z, q, k: z + k,
    read: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda q, s, z: q @ s / (q @ z),
) -> Callable[..., State]:
    def solution(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
        s, z = write(s, q, k, v), add(z, q, k)
        return read(q, s, z), s, z

    return solution


def by_einsum(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    s = s + torch.einsum("r,e->re", k, v)
    z = z + k
    return torch.einsum("r,re->e", q, s) / torch.dot(q, z), s, z


def by_columns(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    s, z = s + k[:, None] * v[None, :], z + k
    return (q[:, None] * s).sum(0) / (q * z).sum(), s, z


def in_place(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    s += torch.outer(k, v)
    z += k
    return q @ s / (q @ z), s, z


def reads_first(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    return q @ s / (q @ z), s + torch.outer(k, v), z + k


def reads_first_from_a_seed(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    """Right but for the very first token, where it divides zero by zero."""
    out = q @ (s + torch.outer(k, v)) / (q @ (z + k))
    return out * (z / z)[0], s + torch.outer(k, v), z + k


STEP_WRONG = {
    "reads first": ("reads before the new key and value are added", reads_first),
    "old denominator": (
        "The denominator lacks the new key",
        lambda s, z, q, k, v: (q @ (s + torch.outer(k, v)) / (q @ z), s + torch.outer(k, v), z + k),
    ),
    "not divided": ("`out` is not divided", step(read=lambda q, s, z: q @ s)),
    "sum of keys": ("divides by the sum of `keys`", step(read=lambda q, s, z: q @ s / z.sum())),
    "newest weight": (
        "divides by the newest weight",
        lambda s, z, q, k, v: (q @ (s + torch.outer(k, v)) / (q @ k), s + torch.outer(k, v), z + k),
    ),
    "newest value": (
        "uses only the newest token",
        lambda s, z, q, k, v: (v, s + torch.outer(k, v), z + k),
    ),
    "not written": ("`values` is unchanged", step(write=lambda s, q, k, v: s)),
    "forgets": (
        "`values` contains only the newest token",
        step(write=lambda s, q, k, v: torch.outer(k, v)),
    ),
    "no outer product": ("adds v to every row alike", step(write=lambda s, q, k, v: s + v)),
    "by the query": (
        "`values` uses the query",
        step(write=lambda s, q, k, v: s + torch.outer(q, v)),
    ),
    "divided state": (
        "The state is divided",
        lambda s, z, q, k, v: (
            by_einsum(s, z, q, k, v)[0],
            (s + torch.outer(k, v)) / (q @ (z + k)),
            z + k,
        ),
    ),
    "keys not added": ("`keys` is unchanged", step(add=lambda z, q, k: z)),
    "keys forget": ("`keys` contains only the newest key", step(add=lambda z, q, k: k)),
    "counts": ("`keys` counts tokens", step(add=lambda z, q, k: z + 1)),
    "adds the query": ("query was added to `keys`", step(add=lambda z, q, k: z + q)),
    "empty sums": ("0 / 0", reads_first_from_a_seed),
    "transposed": (
        "`values` from",
        lambda s, z, q, k, v: (by_einsum(s, z, q, k, v)[0], (s + torch.outer(k, v)).mT, z + k),
    ),
    "one tensor": (
        "gave one tensor; it should give (out, values, keys)",
        lambda *given: by_einsum(*given)[0],
    ),
    "other": ("`out` gave", step(read=lambda q, s, z: 2 * q @ s / (q @ z))),
    "None": ("`return`", lambda *given: None),
}


TestRunningStep = answers_to(
    [(check_running_step, solution) for solution in [step(), by_einsum, by_columns, in_place]],
    [(check_running_step, STEP_WRONG)],
)


def test_step_in_place_is_remarked_upon() -> None:
    assert "changed in place" in check_running_step(in_place).message
    assert "remark" not in check_running_step(step()).message


# ---- one chunk


def by_loop(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor) -> Tensor:
    rows = []
    for i in range(len(q)):
        out, s, z = by_einsum(s, z, q[i], k[i], v[i])
        rows.append(out)
    return torch.stack(rows)


def by_mask(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor) -> Tensor:
    seen = torch.ones(len(q), len(q), dtype=torch.bool).tril()
    weights = torch.where(seen, q @ k.T, 0)
    return (q @ s + weights @ v) / (q @ z + weights.sum(1))[:, None]


def by_ones(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor) -> Tensor:
    joined = torch.cat([v, torch.ones_like(v[:, :1])], dim=1)
    both = (q @ k.T).tril() @ joined + q @ torch.cat([s, z[:, None]], dim=1)
    return both[:, :-1] / both[:, -1:]


def chunk(
    out: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], diagonal: int = 0
) -> Callable[..., Tensor]:
    """A formula in the chunk's own sum and total and the past's."""

    def solution(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor) -> Tensor:
        weights = (q @ k.T).tril(diagonal)
        return out(weights @ v, weights.sum(1)[:, None], q @ s, (q @ z)[:, None])

    return solution


CHUNK_WRONG = {
    "no mask": (
        "Rows see later tokens of their own chunk",
        chunk(lambda a, t, b, p: (a + b) / (t + p), 99),
    ),
    "no diagonal": ("does not see itself", chunk(lambda a, t, b, p: (a + b) / (t + p), -1)),
    "no past": ("The earlier chunks are missing", chunk(lambda a, t, b, p: a / t)),
    "only past": ("Only the earlier chunks are used", chunk(lambda a, t, b, p: b / p)),
    "own total": ("lacks the earlier chunks", chunk(lambda a, t, b, p: (a + b) / t)),
    "past total": ("lacks the chunk's own weights", chunk(lambda a, t, b, p: (a + b) / p)),
    "divided twice": ("divided by their own sums", chunk(lambda a, t, b, p: a / t + b / p)),
    "not divided": ("It is not divided", chunk(lambda a, t, b, p: a + b)),
    "other": ("the numbers are not", chunk(lambda a, t, b, p: 3 * (a + b) / (t + p))),
    "loop": ("there is a loop over tokens", by_loop),
    "None": ("`return`", lambda *given: None),
    "raises": ("shapes cannot be multiplied", lambda q, k, v, s, z: q @ k @ v),
}


TestCausalChunk = answers_to(
    [(check_causal_chunk, solution) for solution in [by_mask, by_ones]],
    [(check_causal_chunk, CHUNK_WRONG)],
)


def test_sums_after_the_chunk_are_the_future_too(refuses: Callable) -> None:
    def reads_all(q: Tensor, k: Tensor, v: Tensor, s: Tensor, z: Tensor) -> Tensor:
        return q @ (s + k.T @ v) / (q @ (z + k.sum(0)))[:, None]

    refuses(check_causal_chunk(reads_all), "the sums only afterwards")


# ---- the delta rule


def unit(x: Tensor) -> Tensor:
    positive = torch.where(x > 0, x + 1, x.exp())
    return positive / positive.sum(-1, keepdim=True)


def plain(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def delta(x, wq, wk, wv, wb, *, phi=(unit, unit), write=None, share=torch.sigmoid, after=True):
    """By the state transition S ← (1 - β k kᵀ) S + β k vᵀ, unless told how to write."""
    q, k, v, beta = phi[0](x @ wq), phi[1](x @ wk), x @ wv, share(x @ wb)
    s, rows = torch.zeros(wk.shape[1], wv.shape[1], dtype=x.dtype), []
    for i in range(len(x)):
        rows.append(q[i] @ s)
        if write is None:
            s = s - beta[i] * torch.outer(k[i], k[i]) @ s + beta[i] * torch.outer(k[i], v[i])
        else:
            s = s + torch.outer(k[i], write(beta[i], v[i], k[i] @ s, q[i] @ s))
        rows[-1] = q[i] @ s if after else rows[-1]
    return torch.stack(rows)


def with_denominator(x, wq, wk, wv, wb):
    sums = (unit(x @ wq) * unit(x @ wk).cumsum(0)).sum(-1, keepdim=True)
    return delta(x, wq, wk, wv, wb) / sums


def wrong(**changes: object) -> Callable[..., Tensor]:
    return lambda *given: delta(*given, **changes)


DELTA_WRONG = {
    "kept": ("old value is not removed", wrong(write=lambda b, v, old, _: b * v)),
    "whole": ("removed whole", wrong(write=lambda b, v, old, _: b * v - old)),
    "query": ("read with the query", wrong(write=lambda b, v, _, old: b * (v - old))),
    "reads first": ("write first", wrong(after=False)),
    "no β": ("β is missing", wrong(share=torch.ones_like)),
    "no sigmoid": ("sigmoid is missing", wrong(share=lambda b: b)),
    "no sums": ("The features are not divided", wrong(phi=(plain, plain))),
    "no sums of queries": ("features of the queries", wrong(phi=(plain, unit))),
    "no sums of keys": ("features of the keys", wrong(phi=(unit, plain))),
    "no features": ("there are no features", wrong(phi=(lambda x: x, lambda x: x))),
    "denominator": ("no denominator", with_denominator),
    "None": ("`return`", lambda *given: None),
}


def test_delta_layer_by_the_transition_is_right() -> None:
    verdict = check_delta_layer(delta)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), DELTA_WRONG.values(), ids=DELTA_WRONG)
def test_delta_mistakes_by_name(words: str, solution: object, refuses: Callable) -> None:
    refuses(check_delta_layer(solution), words)


def test_delta_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_delta_layer, DELTA_WRONG)
