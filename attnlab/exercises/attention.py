"""Checks of lesson 01: scaled dot-product attention, the causal mask, the masked softmax."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.core.softmax import masked_softmax
from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    as_float64,
    difference,
    expect_tensor,
    number,
    random_tensors,
    recognise,
    run,
    same,
)
from attnlab.exercises.exercise import But, Exercise, Mistakes
from attnlab.exercises.verdict import Function, Mistake
from attnlab.exercises.weights import EXTRA_COLUMNS, explain, implied_weights
from attnlab.mechanisms.dense.full import naive

# ---- attention


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return naive(q[None, None], k[None, None], v[None, None], mask=mask)[0, 0]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT * q.shape[-1] ** -0.5


def _weights(q: Tensor, k: Tensor) -> Tensor:
    return masked_softmax(_scores(q, k))


_UNSCALED = " (The scale 1/√d is missing, too.)"


def _unscaled(mistaken: Callable[..., object]) -> Callable[..., object]:
    return lambda q, k, v: mistaken(q * q.shape[-1] ** 0.5, k, v)


_CONFUSED: Mistakes = {
    (lambda q, k, v: _weights(q, k)): (
        "It returns the weights, not the output: they still have to mix the values, `weights @ v`."
    ),
    (lambda q, k, v: _scores(q, k)): (
        "It returns the scores: a softmax over the keys and the values are still to come."
    ),
    (lambda q, k, v: _weights(q, v) @ v): (
        "It uses the values in place of keys: scores compare queries with keys, the values are "
        "what is mixed."
    ),
    (lambda q, k, v: _weights(q, k) @ k): (
        "It mixes the keys: the weights are right, but they belong to the values."
    ),
    (lambda q, k, v: _weights(q, v) @ k): "Keys and values are exchanged.",
    (lambda q, k, v: _weights(k, q) @ v): (
        "Queries and keys are exchanged: row i of the scores belongs to query i, `q @ k.T`, so "
        "that the result has a row for every query."
    ),
    (lambda q, k, v: _weights(q, k).mT @ v): (
        "The weights are transposed before they mix the values: row i belongs to query i."
    ),
    (lambda q, k, v: _weights(q, q) @ v): (
        "The queries are compared with themselves; the keys are never used."
    ),
    (lambda q, k, v: masked_softmax(q @ k * q.shape[-1] ** -0.5) @ v): (
        "The keys are not transposed: `q @ k` multiplies positions with features; the dot "
        "product of each query with each key is `q @ k.T`."
    ),
    (lambda q, k, v: _weights(q.mT, k.mT) @ v): (
        "The scores compare features, not positions: `q.T @ k` sums over positions; the dot "
        "product of each query with each key is `q @ k.T`."
    ),
    (lambda q, k, v: masked_softmax(_weights(q, k)) @ v): (
        "The softmax is applied twice; it should be applied once, over the keys."
    ),
    (lambda q, k, v: _scores(q, k).sigmoid() @ v): (
        "The rows do not sum to one: each score goes through a sigmoid of its own; a softmax "
        "divides by the sum of the row."
    ),
    (lambda q, k, v: masked_softmax(_scores(q, k) @ v)): (
        "The softmax is applied to the output; it should be applied to the scores, before the "
        "values."
    ),
}


def _also_unscaled(confused: Mistakes) -> Mistakes:
    """Each mistake, and each once more without the scale."""
    unscaled: Mistakes = {
        _unscaled(formula): sentence + _UNSCALED
        for formula, sentence in confused.items()
        if not isinstance(formula, But)
    }
    return {**confused, **unscaled}


_KEYS_ALONE = "The keys are compared with themselves; the queries are never used."


def _qkv(n: int, m: int, d: int, e: int) -> Arguments:
    return dict(zip("qkv", random_tensors((n, d), (m, d), (m, e)), strict=True))


def _explain(function: Function, given: Arguments, allowed: Tensor | None = None) -> str | None:
    """An explanation from the weights, where the output is a weighted sum of the values at all."""
    q, k = given["q"] * 0.05, given["k"]  # small scores, so that no weight underflows
    (v,) = random_tensors((len(k), len(k) + EXTRA_COLUMNS), seed=5)
    quiet = {"q": q, "k": k, "v": v}
    weights, out = implied_weights(function, quiet), run(function, quiet).value
    if weights is None:
        return None
    if not (weights.isnan().any() or same(out, weights @ v)):
        return (
            "The output is not a weighted sum of the values: the weights come from queries and "
            "keys alone, and the values are only added up."
        )
    sizes = {"d": q.shape[-1], "n": len(q), "m": len(k), "e": v.shape[-1]}
    if allowed is None:
        allowed = torch.ones(len(q), len(k), dtype=torch.bool)
    return explain(weights, q @ k.mT, allowed, sizes)


def _remark(function: Function, given: Arguments) -> str:
    value = as_float64(run(function, {**given, "q": given["q"] * 1e3}).value)
    if value is not None and value.isfinite().all():
        return ""
    return (
        " One remark: with scores in the thousands it no longer gives finite numbers: exp "
        "overflows or everything underflows. Subtract the largest (allowed) score of each row "
        "first."
    )


check_attention = Exercise(
    """Is it scaled dot-product attention? `attention(q (n, d), k (m, d), v (m, e)) -> (n, e)`.

    Called with n = 5, m = 7, d = 11, e = 3 in float64 and float32.
    """,
    right=_attend,
    cases=lambda: [_qkv(5, 7, 11, 3)],
    axes="n e",
    mistakes={
        **_also_unscaled(_CONFUSED),
        # The scale cancels in this one.
        (lambda q, k, v: _scores(q, k) / _scores(q, k).sum(-1, keepdim=True) @ v): (
            "The scores are divided by their sum, without the exponential: that is no softmax."
        ),
        (lambda q, k, v: _weights(k, k) @ v): _KEYS_ALONE,
        (lambda q, k, v: _weights(k * k.shape[-1] ** 0.5, k) @ v): _KEYS_ALONE + _UNSCALED,
    },
    # Some run only where sizes agree: as many queries as keys, values as wide as keys, or all.
    alike=lambda: [_qkv(5, 7, 11, 11), _qkv(7, 7, 11, 3), _qkv(7, 7, 5, 5), _qkv(5, 5, 5, 5)],
    explain=_explain,
    praise="Every row of the weights sums to one and the scale is 1/√d.",
    then=_remark,
)


# ---- causal


def _tril(n: int, diagonal: int = 0) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril(diagonal)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, _tril(len(q)))


def _causal_scores(q: Tensor, k: Tensor) -> Tensor:
    return _scores(q, k).masked_fill(~_tril(len(q)), -torch.inf)


_CAUSAL_CONFUSED: Mistakes = {
    (lambda q, k, v: (_scores(q, k) * _tril(len(q))).softmax(-1) @ v): (
        "Position 0 attends to the future: the scores are multiplied by the mask, and a score "
        "of 0 is not a weight of 0, because e⁰ = 1. A forbidden key needs the score −∞."
    ),
    (lambda q, k, v: (_scores(q, k) + _tril(len(q)).double()).softmax(-1) @ v): (
        "Position 0 attends to the future: the mask is added as zeros and ones, which only "
        "gives the past a little more weight. A forbidden key needs the score −∞."
    ),
    (lambda q, k, v: _weights(q, k) * _tril(len(q)) @ v): (
        "Masked after the softmax without renormalising: the future still has a share of the "
        "sum, so the rows sum to less than one. Mask the scores, before the softmax."
    ),
    (lambda q, k, v: _causal_scores(q, k).softmax(-2) @ v): (
        "The rows do not sum to one: the mask is right, but the softmax runs over the queries. "
        "It belongs over the keys, `dim=-1`."
    ),
    (lambda q, k, v: _causal_scores(q, k).softmax(-1)): (
        "It returns the weights, not the output: they still have to mix the values, `weights @ v`."
    ),
    (lambda q, k, v: (_weights(q, k) @ v) * _tril(len(q))[:, : v.shape[-1]]): (
        "The mask is applied to the output; it should be applied to the scores, before the softmax."
    ),
}


def _explain_causal(function: Function, given: Arguments) -> str | None:
    weights = implied_weights(function, given)
    if weights is None:
        return None
    blank = weights.isnan().any(dim=-1)
    if blank.all():
        return (
            "Every row is NaN: 0 · (−∞) is NaN, so a mask of zeros cannot be multiplied by −∞. Use "
            "`masked_fill` or `torch.where`."
        )
    return _explain_visibility(weights, blank) or _explain(function, given, _tril(len(weights)))


def _explain_visibility(weights: Tensor, blank: Tensor) -> str | None:
    """Which rows attend to masked keys, or miss keys that are allowed; `blank` rows are NaN."""
    n, seen = len(weights), weights.abs() > 1e-12
    nan = f" (Row {int(blank.nonzero()[0])} has no allowed key: NaN.)" if blank.any() else ""
    if torch.equal(seen[1:], _tril(n, -1)[1:]):
        return (
            "No position attends to itself: the mask forbids the diagonal, too. Position i may "
            f"attend to 0 … i, itself included.{nan}"
        )
    if torch.equal(seen[:-1], ~_tril(n)[:-1]):
        return (
            "Each position attends to the future only: the mask is inverted, True and False are "
            f"exchanged.{nan}"
        )
    if torch.equal(seen, _tril(n).mT):
        return (
            "Each position attends to itself and the future, not the past: the mask is "
            "transposed. Row i is the query; it may attend to the columns j ≤ i."
        )
    if blank.any():
        return (
            f"Row {int(blank.nonzero()[0])} is NaN: it has no allowed key, or −∞ was "
            "subtracted from −∞ or multiplied by 0."
        )
    return _future(weights, seen)


def _future(weights: Tensor, seen: Tensor) -> str | None:
    ahead = seen & ~_tril(len(seen))
    if not ahead.any():
        return None
    i, j = ahead.nonzero()[0].tolist()
    why = ""
    if seen.all():
        why = " Nothing is masked at all."
    elif torch.equal(seen, _tril(len(seen), 1)):
        why = " Each position attends one step too far: the diagonal of the mask is off by one."
    return (
        f"Position {i} attends to the future: it gives position {j} a weight of "
        f"{number(weights[i, j])}.{why}"
    )


def _causal_then(function: Function, line: Arguments) -> str:
    """Scores far below zero, largest in the future: only a mask by −∞ (or nearly) works."""
    n, d = 7, 11
    k = torch.arange(-n, 0, dtype=torch.float64)[:, None].expand(n, d) * 100
    given = {**line, "q": torch.ones(n, d, dtype=torch.float64), "k": k}
    weights = implied_weights(function, given)
    if weights is None or weights.isnan().any() or (weights.triu(1) < 1e-6).all():
        return _remark(function, line)
    i, j = (weights.triu(1) >= 1e-6).nonzero()[0].tolist()
    raise Mistake(
        f"The mask leaks: with scores in the hundreds, position {i} attends to the future (weight "
        f"{number(weights[i, j])} for position {j}). The number used instead of −∞ is not low "
        "enough."
    )


check_causal = Exercise(
    """Is it causal attention? `causal_attention(q (n, d), k (n, d), v (n, e)) -> (n, e)`.

    Position i mixes the values of positions 0 … i, itself included. Called with n = 7, d = 11,
    e = 3, and once with scores in the hundreds, where a mask by a small number leaks.
    """,
    right=_causal,
    cases=lambda: [_qkv(7, 7, 11, 3)],
    axes="n e",
    mistakes=_also_unscaled(_CAUSAL_CONFUSED),
    explain=_explain_causal,
    praise="No position attends to the future, each attends to itself, and the rows sum to one.",
    then=_causal_then,
)


# ---- masked softmax


def _with_holes(n: int = 5, m: int = 7) -> Arguments:
    """Scores, and a mask with at least one allowed pair in every row and in every column."""
    (scores,) = random_tensors((n, m), seed=1)
    return {"scores": scores, "mask": (torch.arange(n)[:, None] * 2 + torch.arange(m)) % 3 > 0}


def _filled(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    return scores.masked_fill(~mask, value)


def _explain_masked(function: Function, given: Arguments) -> str | None:
    weights, mask = as_float64(run(function, given).value), given["mask"]
    assert weights is not None
    if not weights.isfinite().all():
        return None
    if (weights.abs() > 1e-12)[~mask].any():
        i, j = ((weights.abs() > 1e-12) & ~mask).nonzero()[0].tolist()
        return f"Row {i} gives key {j} a weight of {number(weights[i, j])}; the mask forbids it."
    rows = weights.sum(-1)
    if not same(rows, torch.ones_like(rows)):
        return f"The rows do not sum to one: row 0 sums to {number(rows[0])}."
    return None


def _refuse_overflow(function: Function, given: Arguments) -> None:
    scores, mask = given["scores"], given["mask"]
    for shift, sign in ((1e3, "+"), (-1e3, "−")):
        shifted = scores + shift
        answer = run(function, {"scores": shifted, "mask": mask})
        value = expect_tensor(answer, scores, "n m")
        if not same(value, masked_softmax(shifted, mask)):
            flow = "overflows" if shift > 0 else "underflows"
            raise Mistake(
                f"Right for small scores, but wrong where all are near {sign}1000: exp {flow} "
                f"({answer.call} gave {number(value[mask][0])}). Subtract the maximum of each row "
                "first; the weights stay the same."
            )
    tempting = torch.where(mask, scores, scores + 1e3)
    value = expect_tensor(run(function, {"scores": tempting, "mask": mask}), scores, "n m")
    if not same(value, masked_softmax(tempting, mask)):
        raise Mistake(
            "Wrong where a forbidden score is 1000 above the allowed ones: the maximum is taken "
            "over all keys, so that the allowed ones underflow to zero. Mask first, then take the "
            "maximum."
        )


_EMPTY_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "A fully masked row becomes uniform: every score is the same large negative number, "
        "and a softmax of equal scores is 1/m each. Such a row should be zero.",
        lambda s, mask: _filled(s, mask, -1e9).softmax(-1),
    ),
    (
        "A fully masked row becomes the unmasked softmax: the same large negative number "
        "was added to every score, and it cancels. Such a row should be zero.",
        lambda s, mask: torch.where(
            mask.any(-1, keepdim=True), masked_softmax(s, mask), s.softmax(-1)
        ),
    ),
    (
        "A fully masked row becomes NaN: its exponentials sum to zero, and 0/0 (or "
        "−∞ − (−∞) before it) is NaN. Such a row should be zero.",
        lambda s, mask: _filled(s, mask, -torch.inf).softmax(-1),
    ),
)


def _emptied(given: Arguments) -> Arguments:
    mask = given["mask"].clone()
    mask[2] = False
    return {**given, "mask": mask}


def _refuse_empty(function: Function, given: Arguments) -> None:
    empty = _emptied(given)
    answer, expected = run(function, empty), masked_softmax(*empty.values())
    if same(answer.value, expected):
        return
    value = expect_tensor(answer, expected, "n m")
    raise Mistake(
        recognise(function, [empty], _EMPTY_MISTAKEN)
        or "Wrong only in a fully masked row. " + difference(value, expected, answer.call)
    )


def _gradient_remark(function: Function, given: Arguments) -> str:
    empty = _emptied(given)
    scores = empty["scores"].clone().requires_grad_()
    try:
        value = function(scores, empty["mask"])
        (gradient,) = torch.autograd.grad(value.square().sum(), scores)  # type: ignore[attr-defined]
    except Exception:  # for example a solution in numpy: the exercise requires only values
        return ""
    if gradient.isfinite().all():
        return ""
    return (
        " One remark: the gradient of a fully masked row is NaN, though its value is zero: the "
        "NaN was replaced only after it had been computed."
    )


def _masked_then(function: Function, given: Arguments) -> str:
    _refuse_overflow(function, given)
    _refuse_empty(function, given)
    return _gradient_remark(function, given)


check_masked_softmax = Exercise(
    """Is it the softmax over allowed keys? `masked_softmax(scores (n, m), mask (n, m)) -> (n, m)`.

    `mask` is bool, True = may attend. A row without any True is zero, not NaN; scores in the
    thousands overflow nothing, whether allowed or not. Called with n = 5, m = 7.
    """,
    right=masked_softmax,
    cases=lambda: [_with_holes()],
    axes="n m",
    mistakes={
        (lambda s, mask: masked_softmax(s, ~mask)): (
            "True and False are exchanged: it keeps what the mask forbids. True = may attend."
        ),
        (lambda s, mask: s.softmax(-1)): "The mask is ignored: every key gets some weight.",
        (lambda s, mask: (s * mask).softmax(-1)): (
            "The scores are multiplied by the mask, and a score of 0 is not a weight of 0, because "
            "e⁰ = 1: what is not allowed keeps some weight."
        ),
        (lambda s, mask: (s + mask.double()).softmax(-1)): (
            "The mask is added as zeros and ones: what is not allowed keeps some weight."
        ),
        (lambda s, mask: s.softmax(-1) * mask): (
            "Masked after the softmax without renormalising: the rows sum to less than one."
        ),
        (lambda s, mask: masked_softmax(s.mT, mask.mT).mT): (
            "The rows do not sum to one, the columns do: the softmax runs over the queries. It "
            "belongs over the keys, `dim=-1`."
        ),
        (lambda s, mask: _filled(s, mask, -torch.inf)): (
            "It returns the masked scores: the softmax is missing."
        ),
        (lambda s, mask: s.exp() * mask): "It returns the exponentials: they are not divided by "
        "the sum of their row, so the rows do not sum to one.",
    },
    explain=_explain_masked,
    praise="Rows sum to one over what is allowed, a fully masked row is zero, and large scores do "
    "not overflow.",
    then=_masked_then,
)
