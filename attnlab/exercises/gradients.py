"""Check of lesson 01: attention and its gradients without autograd."""

from collections.abc import Callable

from torch import Tensor

from attnlab.exercises.attempt import Parts
from attnlab.exercises.exercise import Mistakes, but, drawn
from attnlab.exercises.parts import PartsExercise

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


# What goes wrong on the way to the gradient of the queries, or to that of the keys.
_OF_SCORES: Mistakes = {
    but(step=lambda w, dw: dw): "The softmax has no derivative here: the gradient of the "
    "weights is used as that of the scores.",
    but(step=lambda w, dw: w * dw): "That is w · dw. A higher score also lowers the other "
    "weights of its row: subtract the row's sum of w · dw from dw before you multiply by w.",
    but(step=lambda w, dw: w * (1 - w) * dw): (
        "w (1 − w) is the derivative of a weight by its own score only. Each score also "
        "changes the other weights of its row, because they sum to one."
    ),
    but(step=lambda w, dw: w * (dw - (w * dw).sum(-2, keepdim=True))): (
        "The sum of w · dw runs over the queries. It belongs to one row: sum over the keys, "
        "`dim=-1`."
    ),
    but(step=lambda w, dw: w * (dw - dw.mean(-1, keepdim=True))): (
        "The plain mean of dw is subtracted; it is the mean weighted by w: the sum of w · dw."
    ),
    but(step=lambda w, dw: w * (dw - dw.sum(-1, keepdim=True))): (
        "The sum of dw is subtracted without the weights: it is the sum of w · dw."
    ),
    but(last=1.0): "The factor 1/√d is missing in this gradient: the scores are q · k / √d.",
    (lambda *given: _gradients(*given, last=1 / given[0].shape[-1])): (
        "The factor 1/√d stands twice in this gradient."
    ),
}

check_backward = PartsExercise(
    """Are they attention and its gradients? `backward(q, k, v, grad) -> (out, dq, dk, dv)`.

    `q` (n, d), `k` (m, d), `v` (m, e); `grad` (n, e) is the gradient of a loss by the output, and
    `dq`, `dk`, `dv` are those by queries, keys and values. Called with n = 5, m = 7, d = 11, e = 3,
    then with n = m = 2, d = 3, e = 5. Autograd is not needed.
    """,
    right=_gradients,
    cases=drawn(
        [5, 2],
        q=[(5, 11), (2, 3)],
        k=[(7, 11), (2, 3)],
        v=[(7, 3), (2, 5)],
        grad=[(5, 3), (2, 5)],
    ),
    axes={"out": "n e", "dq": "n d", "dk": "m d", "dv": "m e"},
    of_part={
        "out": {
            but(scale=1.0): "The scores are not scaled: multiply q · k by 1/√d.",
            (lambda *given: _gradients(*given, scale=1 / given[0].shape[-1])): (
                "The scores are divided by d; divide them by √d."
            ),
        },
        "dq": _OF_SCORES,
        "dk": _OF_SCORES,
        "dv": {
            (
                lambda q, k, v, grad: (
                    _through_softmax((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1), grad @ v.mT).mT
                    @ grad
                )
            ): (
                "The gradient of the values is made of the gradient of the scores. A value enters "
                "the output with its weight: use the weights."
            ),
            (lambda q, k, v, grad: grad.mean(0).expand_as(v)): (
                "Every query has the same share in the gradient of the values: multiply by the "
                "weights."
            ),
        },
    },
    praise="The gradients are those of autograd: each row of the softmax moves as a whole.",
)
