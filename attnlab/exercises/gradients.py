"""Check of lesson 01: attention and its gradients without autograd."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from attnlab.exercises.attempt import (
    KnownMistake,
    Parts,
    check_arguments_and_dtype,
    expect_tensors,
    part_faults,
    random_tensors,
    run,
)
from attnlab.exercises.verdict import Function, Mistake, returns_verdict

Step = Callable[[Tensor, Tensor], Tensor]  # from the weights and their gradient to the scores'


def _through_softmax(w: Tensor, dw: Tensor) -> Tensor:
    return w * (dw - (w * dw).sum(-1, keepdim=True))


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, *,
    step: Step = _through_softmax, scale: float | None = None, last: float | None = None,
) -> Parts:  # fmt: skip
    """Output and gradients; `last` is the scale of the gradients of queries and keys."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    last = scale if last is None else last
    w = (q @ k.mT * scale).softmax(-1)
    ds = step(w, grad @ v.mT) * last
    return w @ v, ds @ k, ds.mT @ q, w.mT @ grad


_STEPS: tuple[tuple[str, Step], ...] = (
    (
        "The softmax has no derivative here: the gradient of the weights is used as that of the "
        "scores.",
        lambda w, dw: dw,
    ),
    (
        "That is w · dw. A higher score also lowers the other weights of its row: subtract the "
        "row's sum of w · dw from dw before you multiply by w.",
        lambda w, dw: w * dw,
    ),
    (
        "w (1 − w) is the derivative of a weight by its own score only. Each score also changes "
        "the other weights of its row, because they sum to one.",
        lambda w, dw: w * (1 - w) * dw,
    ),
    (
        "The sum of w · dw runs over the queries. It belongs to one row: sum over the keys, "
        "`dim=-1`.",
        lambda w, dw: w * (dw - (w * dw).sum(-2, keepdim=True)),
    ),
    (
        "The plain mean of dw is subtracted; it is the mean weighted by w: the sum of w · dw.",
        lambda w, dw: w * (dw - dw.mean(-1, keepdim=True)),
    ),
    (
        "The sum of dw is subtracted without the weights: it is the sum of w · dw.",
        lambda w, dw: w * (dw - dw.sum(-1, keepdim=True)),
    ),
)


def _part(place: int, **changes: Any) -> Callable[..., Tensor]:
    return lambda *given: _gradients(*given, **changes)[place]


def _of_scores(place: int) -> tuple[KnownMistake, ...]:
    """What goes wrong on the way to the gradient of the queries, or to that of the keys."""
    return (
        *((sentence, _part(place, step=step)) for sentence, step in _STEPS),
        (
            "The factor 1/√d is missing in this gradient: the scores are q · k / √d.",
            _part(place, last=1.0),
        ),
        (
            "The factor 1/√d stands twice in this gradient.",
            lambda *given: _part(place, last=1 / given[0].shape[-1])(*given),
        ),
    )


_MISTAKEN: tuple[tuple[KnownMistake, ...], ...] = (
    (
        ("The scores are not scaled: multiply q · k by 1/√d.", _part(0, scale=1.0)),
        (
            "The scores are divided by d; divide them by √d.",
            lambda *given: _part(0, scale=1 / given[0].shape[-1])(*given),
        ),
    ),
    _of_scores(1),
    _of_scores(2),
    (
        (
            "The gradient of the values is made of the gradient of the scores. A value enters the "
            "output with its weight: use the weights.",
            lambda q, k, v, grad: (
                _through_softmax((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1), grad @ v.mT).mT
                @ grad
            ),
        ),
        (
            "Every query has the same share in the gradient of the values: multiply by the "
            "weights.",
            lambda q, k, v, grad: grad.mean(0).expand_as(v),
        ),
    ),
)


@returns_verdict
def check_backward(function: Function) -> str:
    """Are they attention and its gradients? `backward(q, k, v, grad) -> (out, dq, dk, dv)`.

    `q` (n, d), `k` (m, d), `v` (m, e); `grad` (n, e) is the gradient of a loss by the output, and
    `dq`, `dk`, `dv` are those by queries, keys and values. Called with n = 5, m = 7, d = 11, e = 3,
    then with n = m = 2, d = 3, e = 5. Autograd is not needed.
    """
    for n, m, d, e in ((5, 7, 11, 3), (2, 2, 3, 5)):
        tensors = random_tensors((n, d), (m, d), (m, e), (n, e), seed=n)
        given = dict(zip(("q", "k", "v", "grad"), tensors, strict=True))
        names, truth = ("out", "dq", "dk", "dv"), _gradients(*tensors)
        parts = expect_tensors(run(function, given), names, ("n e", "n d", "m d", "m e"), truth)
        faults = part_faults(parts, truth, given, names, _MISTAKEN)
        if faults:
            raise Mistake(faults[0])
    check_arguments_and_dtype(lambda *args: function(*args)[1], given)  # type: ignore[index]
    return "The gradients are those of autograd: each row of the softmax moves as a whole."
