"""The checks of lesson 22 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.exercises import check_causal_chunk, check_delta_layer, check_running_step
from tests.exercises.frame import answers_to

State = tuple[Tensor, Tensor, Tensor]


# ---- one step


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


def reads_first_from_a_seed(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    """Right but for the very first token, where it divides zero by zero."""
    out = q @ (s + torch.outer(k, v)) / (q @ (z + k))
    return out * (z / z)[0], s + torch.outer(k, v), z + k


def keys_not_added(s: Tensor, z: Tensor, q: Tensor, k: Tensor, v: Tensor) -> State:
    """The output is wrong because the state is."""
    s = s + torch.outer(k, v)
    return q @ s / (q @ z), s, z


STEP_WRONG = {
    "empty sums": ("0 / 0", reads_first_from_a_seed),
    "keys": ("`keys` is unchanged", keys_not_added),
    "transposed": (
        "`values` from",
        lambda s, z, q, k, v: (by_einsum(s, z, q, k, v)[0], (s + torch.outer(k, v)).mT, z + k),
    ),
}
TestRunningStep = answers_to(
    [(check_running_step, solution) for solution in [by_einsum, by_columns, in_place]],
    [(check_running_step, STEP_WRONG)],
)


def test_step_in_place_is_remarked_upon() -> None:
    assert "changed in place" in check_running_step(in_place).message
    assert "remark" not in check_running_step(by_columns).message


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


CHUNK_WRONG = {
    "loop": ("there is a loop over tokens", by_loop),
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


def delta(x, wq, wk, wv, wb):
    """By the state transition S ← (1 - β k kᵀ) S + β k vᵀ."""
    q, k, v, beta = unit(x @ wq), unit(x @ wk), x @ wv, torch.sigmoid(x @ wb)
    s, rows = torch.zeros(wk.shape[1], wv.shape[1], dtype=x.dtype), []
    for i in range(len(x)):
        s = s - beta[i] * torch.outer(k[i], k[i]) @ s + beta[i] * torch.outer(k[i], v[i])
        rows.append(q[i] @ s)
    return torch.stack(rows)


TestDeltaLayer = answers_to([(check_delta_layer, delta)])
