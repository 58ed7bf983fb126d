"""The checks of lesson 21 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises import (
    check_linformer_layer,
    check_projected_keys,
    check_rank,
)
from tests.exercises.frame import answers_to

# ---- keys over the length


def by_product(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e @ (k * real[:, None])


def by_selection(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e[:, real] @ k[real]


def by_zero_columns(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return torch.where(real, e, 0) @ k


def in_place(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    k[~real] = 0
    return e @ k


PROJECT_WRONG = {
    "no padding": ("Padding is in the sums", lambda e, k, real: e @ k),
    "the mask is inverted": ("the mask is inverted", lambda e, k, real: e @ (k * ~real[:, None])),
    "mean": ("number of real tokens", lambda e, k, real: by_product(e, k, real) / real.sum()),
    "positions": ("number of positions", lambda e, k, real: by_product(e, k, real) / len(k)),
    "too late": ("zeros are set too late", lambda e, k, real: (e @ k) * real[:3, None]),
    "softmax": (
        "A softmax is applied to E",
        lambda e, k, real: e.masked_fill(~real, -torch.inf).softmax(-1) @ k,
    ),
    "infinity": ("became −∞", lambda e, k, real: e @ k.masked_fill(~real[:, None], -torch.inf)),
    "in front": ("need not come first", lambda e, k, real: e[:, : sum(real)] @ k[: sum(real)]),
    "in place": ("`k` changed in place", in_place),
    "transposed": ("shapes cannot be multiplied", lambda e, k, real: e.mT @ k),
    "other": ("the numbers are not", lambda e, k, real: 3 * by_product(e, k, real)),
    "None": ("`return`", lambda *given: None),
}


TestProjectedKeys = answers_to(
    [(check_projected_keys, solution) for solution in [by_product, by_selection, by_zero_columns]],
    [(check_projected_keys, PROJECT_WRONG)],
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
    "values": ("squares", lambda values, share: by_count(values**0.5, share)),
    "index": ("One too few", lambda values, share: by_count(values, share) - 1),
    "one more": ("One too many", lambda values, share: by_count(values, share) + 1),
    "above": (
        "equals the share exactly",
        lambda values, share: int((kept(values**2) <= share).sum()) + 1,
    ),
    "smallest": ("starts with the smallest", lambda values, share: by_count(values.flip(0), share)),
    "threshold": (
        "above a part of the largest",
        lambda values, share: (values > share * values[0]).sum(),
    ),
    "directions": (
        "share of the number of directions",
        lambda values, share: round(share * len(values)),
    ),
    "always two": ("For a falling spectrum it gave 5", lambda values, share: 5),
    "None": ("`return`", lambda *given: None),
    "tensor": ("it should give a whole number", lambda values, share: values),
    "share": ("gave a float; it should give a whole number", lambda values, share: share),
    "raises": ("raised ZeroDivisionError", lambda values, share: 1 / 0),
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


def layer(
    x, wq, wk, wv, wo, e, f, real, *,
    zero=(True, True, True), scale=None, cut=slice(None, 7), dim=-1, permute=True,
):  # fmt: skip
    marks = [real[:, None] if each else torch.ones_like(real)[:, None] for each in zero]
    q = torch.einsum("nc,hcd->hnd", x, wq)
    k = torch.einsum("nc,hcd->hnd", x, wk) * marks[0]
    v = torch.einsum("nc,hcd->hnd", x, wv) * marks[1]
    scores = q @ (e[:, cut] @ k).mT * (2**-0.5 if scale is None else scale)
    out = scores.softmax(dim) @ (f[:, cut] @ v)
    out = out.permute(1, 0, 2) if permute else out
    return out.reshape(len(x), -1) @ wo * marks[2]


def wrong(**changes: object) -> Callable[..., Tensor]:
    return lambda *given: layer(*given, **changes)


LAYER_WRONG = {
    "no padding": ("Padding is in the sums", wrong(zero=(False, False, True))),
    "keys": ("only the keys were", wrong(zero=(True, False, True))),
    "values": ("only the values were", wrong(zero=(False, True, True))),
    "rows": ("zero in the result", wrong(zero=(True, True, False))),
    "inverted": ("the mask is inverted", lambda *given: layer(*given[:-1], ~given[-1])),
    "no scale": ("are not scaled", wrong(scale=1)),
    "width": ("scaled by the model width", wrong(scale=11**-0.5)),
    "last": ("the first ones", wrong(cut=slice(-7, None))),
    "exchanged": (
        "E and F are exchanged",
        lambda x, wq, wk, wv, wo, e, f, real: layer(x, wq, wk, wv, wo, f, e, real),
    ),
    "one": (
        "F is missing",
        lambda x, wq, wk, wv, wo, e, f, real: layer(x, wq, wk, wv, wo, e, e, real),
    ),
    "softmax": ("over the queries", wrong(dim=-2)),
    "joined": ("without a transpose", wrong(permute=False)),
    "not cut": ("shapes cannot be multiplied", lambda x, *rest: rest[4] @ x),
    "None": ("`return`", lambda *given: None),
}


TestLinformerLayer = answers_to(
    [(check_linformer_layer, solution) for solution in [one_head_at_a_time, layer]],
    [(check_linformer_layer, LAYER_WRONG)],
)
