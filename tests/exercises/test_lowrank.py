"""The checks of lesson 21 name each mistake, and accept every way of writing the right answer."""

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises import check_linformer_layer, check_projected_keys, check_rank
from tests.exercises.frame import answers_to

# ---- keys over the length


def by_product(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e @ (k * real[:, None])


def by_selection(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e[:, real] @ k[real]


def by_zero_columns(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return torch.where(real, e, 0) @ k


TestProjectedKeys = answers_to(
    [(check_projected_keys, solution) for solution in [by_product, by_selection, by_zero_columns]],
)


# ---- the rank for a share


def kept(parts: Tensor) -> Tensor:
    return parts.cumsum(0) / parts.sum()


def by_count(values: Tensor, share: float) -> int:
    return int((kept(values**2) < share - 1e-12).sum()) + 1


def by_loop(values: Tensor, share: float) -> int:
    wanted, total = share * sum(values**2), 0.0
    for count, value in enumerate(values, 1):
        total += value**2
        if total >= wanted:
            return count
    return len(values)


def by_search(values: Tensor, share: float) -> Tensor:
    return torch.searchsorted(kept(values**2), share) + 1


def by_numpy(values: Tensor, share: float) -> np.integer:
    return np.argmax(kept(values**2).numpy() >= share) + 1


RANK_WRONG = {
    "always two": ("For a falling spectrum it gave 5", lambda values, share: 5),
    "tensor": ("it should give a whole number", lambda values, share: values),
    "share": ("gave a float; it should give a whole number", lambda values, share: share),
}


TestRank = answers_to(
    [(check_rank, solution) for solution in [by_count, by_loop, by_search, by_numpy]],
    [(check_rank, RANK_WRONG)],
)


# ---- a layer


def one_head_at_a_time(x, wq, wk, wv, wo, e, f, real):
    """Sums over the real positions only, head by head."""
    out, kept = torch.zeros(len(x), len(wo), dtype=x.dtype), x[real]
    e, f = e[:, : len(x)][:, real], f[:, : len(x)][:, real]
    d = wq.shape[-1]
    for h in range(len(wq)):
        scores = kept @ wq[h] @ (e @ kept @ wk[h]).T / d**0.5
        out[real, h * d : (h + 1) * d] = scores.softmax(1) @ (f @ kept @ wv[h])
    return out @ wo


def layer(x, wq, wk, wv, wo, e, f, real):
    mark = real[:, None]
    q = torch.einsum("nc,hcd->hnd", x, wq)
    k = torch.einsum("nc,hcd->hnd", x, wk) * mark
    v = torch.einsum("nc,hcd->hnd", x, wv) * mark
    weights = (q @ (e[:, :7] @ k).mT * 2**-0.5).softmax(-1)
    return (weights @ (f[:, :7] @ v)).permute(1, 0, 2).reshape(len(x), -1) @ wo * mark


TestLinformerLayer = answers_to(
    [(check_linformer_layer, solution) for solution in [one_head_at_a_time, layer]],
)
