"""Lesson 01's checks against right solutions written differently and wrong ones of every kind."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import check_attention, check_causal, check_masked_softmax
from tests.exercises.frame import answers_to

# ---- attention


def weights_of(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1)


def by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = []
    for query in q:
        scores = torch.stack([query.dot(key) for key in k]) / len(query) ** 0.5
        powers = [math.exp(s) for s in scores.tolist()]
        rows.append(sum(p * value for p, value in zip(powers, v, strict=True)) / sum(powers))
    return torch.stack(rows)


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("id,jd->ij", q, k) / torch.tensor(float(q.size(1))).sqrt()
    return torch.einsum("ij,je->ie", torch.softmax(scores, dim=1), v)


def by_scaling_both(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    quarter = q.shape[-1] ** 0.25
    return F.softmax((q / quarter) @ (k / quarter).mT, -1) @ v


def by_columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((k @ q.T / q.shape[1] ** 0.5).softmax(0).T) @ v


def not_written(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raise NotImplementedError("your code here")


def in_its_own_zeros(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = torch.zeros(len(q), v.shape[1])
    out[:] = weights_of(q, k) @ v
    return out


def unstable(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    powers = torch.exp(q @ k.T / math.sqrt(q.shape[-1]))
    return powers / powers.sum(1, keepdim=True) @ v


ATTENTION_RIGHT = {
    "plain": lambda q, k, v: weights_of(q, k) @ v,
    "loops": by_loops,
    "einsum, float32 scale": by_einsum,
    "scale on both": by_scaling_both,
    "columns": by_columns,
    "sdpa": F.scaled_dot_product_attention,
    "sdpa with axes": lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0],
    "exp without maximum": unstable,
    "own zeros, float32": in_its_own_zeros,
    "identity of its own": lambda q, k, v: torch.eye(len(q)) @ weights_of(q, k) @ v,
    "float32": lambda q, k, v: weights_of(q.float(), k.float()) @ v.float(),
    "float64": lambda q, k, v: weights_of(q.double(), k.double()) @ v.double(),
    "NumPy": lambda q, k, v: weights_of(q, k).numpy() @ v.numpy(),
}

WRONG = {
    "no scale": (
        "off by a factor of √d: the scale is missing",
        lambda q, k, v: (q @ k.T).softmax(-1) @ v,
    ),
    "d": ("divided by d instead of √d", lambda q, k, v: (q @ k.T / q.shape[-1]).softmax(-1) @ v),
    "times √d": (
        "multiplied by √d",
        lambda q, k, v: (q @ k.T * q.shape[-1] ** 0.5).softmax(-1) @ v,
    ),
    "times d": ("multiplied by d;", lambda q, k, v: (q @ k.T * q.shape[-1]).softmax(-1) @ v),
    "one quarter": ("√√d", lambda q, k, v: (q @ k.T / q.shape[-1] ** 0.25).softmax(-1) @ v),
    "√n": ("divided by √n", lambda q, k, v: (q @ k.T / len(q) ** 0.5).softmax(-1) @ v),
    "√m": ("divided by √m", lambda q, k, v: (q @ k.T / len(k) ** 0.5).softmax(-1) @ v),
    "√e": ("divided by √e", lambda q, k, v: (q @ k.T / v.shape[-1] ** 0.5).softmax(-1) @ v),
    "model width": ("divided by √64", lambda q, k, v: (q @ k.T / 8).softmax(-1) @ v),
    "odd scale": (
        "off by a factor of 1.55",
        lambda q, k, v: (q @ k.T * 1.55 * 11**-0.5).softmax(-1) @ v,
    ),
    "scale after": (
        "the scale comes after the softmax",
        lambda q, k, v: (q @ k.T).softmax(-1) / q.shape[-1] ** 0.5 @ v,
    ),
    "scale twice": ("every row sums to 0.5", lambda q, k, v: weights_of(q, k) @ v / 2),
    "negative": ("wrong sign", lambda q, k, v: (-(q @ k.T) / 11**0.5).softmax(-1) @ v),
    "axis 0": (
        "The rows do not sum to one (the first one sums to 1.39), the columns do",
        lambda q, k, v: (q @ k.T / 11**0.5).softmax(0) @ v,
    ),
    "axis 0, no scale": ("the columns do", lambda q, k, v: (q @ k.T).softmax(0) @ v),
    "no softmax": ("the softmax is missing", lambda q, k, v: q @ k.T / 11**0.5 @ v),
    "whole matrix": (
        "the whole matrix does",
        lambda q, k, v: (q @ k.T / 11**0.5).flatten().softmax(0).view(5, -1) @ v,
    ),
    "no sum": ("they are not divided by the sum", lambda q, k, v: (q @ k.T / 11**0.5).exp() @ v),
    "relu": (
        "rows do not sum to one (the first one sums to 0.164): each row",
        lambda q, k, v: (q @ k.T / 11**0.5).relu() @ v,
    ),
    "negative weights": (
        "weights are negative",
        lambda q, k, v: (1 / 7 + 99 * (weights_of(q, k) - 1 / 7)) @ v,
    ),
    "argmax": ("argmax", lambda q, k, v: v[(q @ k.T).argmax(-1)]),
    "mean": ("mean of the values", lambda q, k, v: v.mean(0).expand(len(q), -1)),
    "causal": (
        "Query 0 gives key 1 no weight",
        lambda q, k, v: (
            (q @ k.T / 11**0.5)
            .masked_fill(torch.ones(len(q), len(k)).triu(1) > 0, -torch.inf)
            .softmax(-1)
            @ v
        ),
    ),
    "complex": ("tensor of torch.complex", lambda q, k, v: torch.complex(q, q)),
    "not written": ("not written yet (NotImplementedError: your code here)", not_written),
    "non-linear": (
        "not a weighted sum of the values",
        lambda q, k, v: (weights_of(q, k) @ v).tanh(),
    ),
    "NaN": ("NaN", lambda q, k, v: weights_of(q, k) @ v * torch.nan),
    "a number": ("takes the function itself", 3),
    "nothing": ("it was given None", None),
    "called": ("it was given a Tensor", torch.zeros(5, 3)),
}


def test_an_exception_says_what_was_called_and_where() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k
        return scores.softmax(-1) @ v.T.T.T

    message = check_attention(attention).message
    for words in (
        "attention(q (5, 11), k (7, 11), v (7, 3)) raised RuntimeError",
        "mat1 and mat2 shapes cannot be multiplied (5x11 and 7x11)",
        "at `scores = q @ k`",
        "is a transpose missing?",
    ):
        assert words in message


def test_only_the_unstable_solution_gets_a_remark() -> None:
    assert "exp overflows or" in check_attention(unstable).message
    assert "remark" not in check_attention(ATTENTION_RIGHT["plain"]).message


def test_checks_repeat_themselves_and_leave_the_generator_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = check_attention(WRONG["odd scale"][1])
    torch.manual_seed(11)
    assert check_attention(WRONG["odd scale"][1]) == first
    torch.manual_seed(7)
    check_attention(WRONG["odd scale"][1])
    assert torch.equal(torch.get_rng_state(), before)


# ---- causal


def lower(n: int, diagonal: int = 0) -> Tensor:
    return torch.ones(n, n).tril(diagonal) == 1


def masked_by(where: Callable[[int], Tensor], value: float = -math.inf) -> Callable[..., Tensor]:
    """Causal attention whose mask keeps `where` and puts `value` elsewhere."""

    def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.T / math.sqrt(q.shape[-1])
        return scores.masked_fill(~where(len(q)), value).softmax(-1) @ v

    return causal_attention


def causal_by_loops(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.stack([weights_of(q[i], k[: i + 1]) @ v[: i + 1] for i in range(len(q))])


def renormalised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = weights_of(q, k).tril()
    return weights / weights.sum(-1, keepdim=True) @ v


def added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    ban = torch.full((len(q), len(q)), -torch.inf, dtype=q.dtype).triu(1)
    return (q @ k.T / q.shape[-1] ** 0.5 + ban).softmax(-1) @ v


def third_row_sees_all(n: int) -> Tensor:
    mask = lower(n)
    mask[3] = True
    return mask


def fourth_row_sees_nothing(n: int) -> Tensor:
    mask = lower(n)
    mask[4] = False
    return mask


CAUSAL_RIGHT = {
    "masked_fill": masked_by(lower),
    "−1e9": masked_by(lower, -1e9),
    "loops": causal_by_loops,
    "added": added,
    "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "where": lambda q, k, v: (
        torch.where(lower(len(q)), q @ k.T / 11**0.5, -torch.inf).softmax(1) @ v
    ),
}

CAUSAL_WRONG = {
    "no mask": (
        "Position 0 attends to the future: it gives position 1 a weight of 0.138. Nothing is",
        ATTENTION_RIGHT["plain"],
    ),
    "row 3": ("Position 3 attends to the future", masked_by(third_row_sees_all)),
    "off by one": ("one step too far", masked_by(lambda n: lower(n, 1))),
    "future only": (
        "attends to the future only: the mask is inverted",
        masked_by(lambda n: ~lower(n)),
    ),
    "future only, −1e9": ("the mask is inverted", masked_by(lambda n: ~lower(n), -1e9)),
    "transposed": ("the mask is transposed", masked_by(lambda n: lower(n).T)),
    "strict": ("no position attends to itself", masked_by(lambda n: lower(n, -1))),
    "strict, −1e9": ("no position attends to itself", masked_by(lambda n: lower(n, -1), -1e9)),
    "NaN row": ("Row 4 is NaN", masked_by(fourth_row_sees_nothing)),
    "0 · −∞": (
        "0 · (−∞) is NaN",
        lambda q, k, v: (q @ k.T / 11**0.5 + ~lower(len(q)) * -torch.inf).softmax(-1) @ v,
    ),
    "no scale": (
        "off by a factor of √d",
        lambda q, k, v: (q @ k.T).masked_fill(~lower(len(q)), -torch.inf).softmax(-1) @ v,
    ),
    "leak": ("the mask leaks", masked_by(lower, -100.0)),
    "window": ("something masks what should not", masked_by(lambda n: lower(n) & ~lower(n, -3))),
    "after, doubled": (
        "The rows do not sum to one (the first one sums to",
        lambda q, k, v: 2 * weights_of(q, k).tril() @ v,
    ),
}


def test_causal_by_renormalising_is_right_with_a_remark() -> None:
    """Mathematically the same; in large numbers the future drowns the past."""
    verdict = check_causal(renormalised)
    assert verdict.right
    assert "One remark" in verdict.message


# ---- masked softmax


def fill(value: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda s, mask: s.masked_fill(~mask, value)


def row_by_row(s: Tensor, mask: Tensor) -> Tensor:
    out = torch.zeros_like(s)
    for i in range(len(s)):
        if mask[i].any():
            out[i, mask[i]] = s[i, mask[i]].softmax(0)
    return out


def without_maximum(s: Tensor, mask: Tensor) -> Tensor:
    powers = s.exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp_min(1e-300)


def maximum_of_all(s: Tensor, mask: Tensor) -> Tensor:
    powers = (s - s.amax(-1, keepdim=True)).exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp_min(1e-300)


SOFTMAX_RIGHT = {
    "carefully": lambda s, mask: (
        (
            p := torch.exp(
                s.masked_fill(~mask, -1e300) - s.masked_fill(~mask, -1e300).amax(-1, True)
            )
            * mask
        )
        / (p.sum(-1, keepdim=True) + (p.sum(-1, keepdim=True) == 0))
    ),
    "row by row": row_by_row,
    "nan_to_num": lambda s, mask: fill(-torch.inf)(s, mask).softmax(-1).nan_to_num(0),
    "added": lambda s, mask: (s + torch.where(mask, 0, -torch.inf)).softmax(-1).nan_to_num(0),
    "times mask": lambda s, mask: fill(-1e30)(s, mask).softmax(-1) * mask,
    "where": lambda s, mask: torch.where(mask, torch.where(mask, s, -1e30).softmax(-1), 0),
}

SOFTMAX_WRONG = {
    "empty NaN": (
        "A fully masked row becomes NaN",
        lambda s, m: fill(-torch.inf)(s, m).softmax(-1),
    ),
    "empty uniform": (
        "fully masked row becomes uniform",
        lambda s, m: fill(-1e9)(s, m).softmax(-1),
    ),
    "empty unmasked": ("becomes the unmasked softmax", lambda s, m: (s + ~m * -1e9).softmax(-1)),
    "half": ("The rows do not sum to one", lambda s, m: SOFTMAX_RIGHT["nan_to_num"](s, m) / 2),
    "small ban": ("the mask forbids it", lambda s, m: fill(-3.0)(s, m).softmax(-1)),
    "overflow": ("near +1000: exp overflows", without_maximum),
    "underflow": (
        "near −1000: exp underflows",
        lambda s, m: (
            without_maximum(s.clamp_max(9), m)
            if s.amax() < 500
            else SOFTMAX_RIGHT["row by row"](s, m)
        ),
    ),
    "maximum of all": ("the maximum is taken over all keys", maximum_of_all),
    "after, divided": (
        "the maximum is taken over all keys",
        lambda s, m: (s.softmax(-1) * m) / (s.softmax(-1) * m).sum(-1, keepdim=True),
    ),
}


RIGHT = [
    *((check_attention, solution) for solution in ATTENTION_RIGHT.values()),
    *((check_causal, solution) for solution in CAUSAL_RIGHT.values()),
    *((check_masked_softmax, solution) for solution in SOFTMAX_RIGHT.values()),
]
TABLES = [
    (check_attention, WRONG),
    (check_causal, CAUSAL_WRONG),
    (check_masked_softmax, SOFTMAX_WRONG),
]

TestAnswers = answers_to(RIGHT, TABLES)


def test_a_nan_gradient_is_remarked_upon() -> None:
    assert "gradient of a fully masked row" in check_masked_softmax(SOFTMAX_RIGHT["added"]).message
    assert "remark" not in check_masked_softmax(SOFTMAX_RIGHT["times mask"]).message
