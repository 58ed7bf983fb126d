"""The checks of lesson 21 name each mistake, and accept every way of writing the right answer."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.exercises import check_projected_keys, check_rank

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


@pytest.mark.parametrize("solution", [by_product, by_selection, by_zero_columns])
def test_keys_projected_differently_are_right(solution: Callable[..., Tensor]) -> None:
    verdict = check_projected_keys(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), PROJECT_WRONG.values(), ids=PROJECT_WRONG)
def test_projection_mistakes_by_name(words: str, solution: object, refuses: Callable) -> None:
    refuses(check_projected_keys(solution), words)


def test_projection_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_projected_keys, PROJECT_WRONG)


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


@pytest.mark.parametrize("solution", [by_count, by_loop, by_search, by_numpy])
def test_rank_written_differently_is_right(solution: Callable[..., object]) -> None:
    verdict = check_rank(solution)
    assert verdict.right, verdict.message


@pytest.mark.parametrize(("words", "solution"), RANK_WRONG.values(), ids=RANK_WRONG)
def test_rank_mistakes_by_name(words: str, solution: object, refuses: Callable) -> None:
    refuses(check_rank(solution), words)


def test_rank_messages_differ(tells_apart: Callable) -> None:
    tells_apart(check_rank, RANK_WRONG)
