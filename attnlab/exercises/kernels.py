"""Checks of lesson 23: positive random features, and the order of products that costs n, not n²."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.exercises.attempt import (
    Arguments,
    KnownMistake,
    as_float64,
    check_arguments_and_dtype,
    random_tensors,
    require,
    run,
)
from attnlab.exercises.verdict import Function, Mistake, returns_verdict

# ---- positive features


def _positive(x: Tensor, omega: Tensor) -> Tensor:
    half = x.square().sum(-1, keepdim=True) / 2
    return (x @ omega.mT - half).exp() / math.sqrt(omega.shape[-2])


def _variant(scale: float = 0.5, *, root: bool = True, norm: bool = False) -> Any:
    def features(x: Tensor, omega: Tensor) -> Tensor:
        square = x.square().sum(-1, keepdim=True)
        inside = scale * (square.sqrt() if norm else square)
        return (x @ omega.mT - inside).exp() / (math.sqrt(omega.shape[-2]) if root else 1)

    return features


_POSITIVE_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The |x|²/2 is missing: without it the mean over ω of exp(ω·x) exp(ω·y) is "
        "exp(|x + y|²/2), which is exp(x·y) times exp(|x|²/2) exp(|y|²/2).",
        _variant(0),
    ),
    (
        "The |x|²/2 has the wrong sign: it must be subtracted, not added.",
        _variant(-0.5),
    ),
    (
        "It subtracts |x|², not |x|²/2.",
        _variant(1),
    ),
    ("It subtracts |x|/2, not |x|²/2: the norm is not squared.", _variant(norm=True)),
    (
        "The 1/√r is missing: a dot product of features is then a sum over the r draws, and the "
        "estimate of exp(x·y) is a mean.",
        _variant(root=False),
    ),
    (
        "It divides by r. The features of the key are divided, too, and r² is too much: divide "
        "by √r.",
        lambda x, omega: _positive(x, omega) / math.sqrt(omega.shape[-2]),
    ),
    (
        "It divides by √d, the width of x; the mean is over the r draws, so it is √r.",
        lambda x, omega: _positive(x, omega) * math.sqrt(omega.shape[-2] / x.shape[-1]),
    ),
    (
        "x is scaled once more: it has been multiplied by d^(-1/4) already.",
        lambda x, omega: _positive(x * x.shape[-1] ** -0.25, omega),
    ),
    (
        "The mean of the squares is taken; |x|² is their sum.",
        lambda x, omega: _variant(0.5 / x.shape[-1])(x, omega),
    ),
    (
        "These are the logarithms of the features: the exponential is missing.",
        lambda x, omega: x @ omega.mT - x.square().sum(-1, keepdim=True) / 2,
    ),
    (
        "That is cos ω·x, half of the trigonometric features: they can be negative. It should "
        "be exp(ω·x - |x|²/2) / √r.",
        lambda x, omega: (x @ omega.mT).cos() / math.sqrt(omega.shape[-2]),
    ),
    (
        "The rows are divided by their sum: that is a softmax over the draws, and the "
        "norm of x is lost.",
        lambda x, omega: (x @ omega.mT).softmax(-1),
    ),
)


@returns_verdict
def check_positive_features(function: Function) -> str:
    """Are these Performer's features? `positive_features(x, omega) -> (n, r)`.

    `x` (n, d) is a query or a key already times d^(-1/4), `omega` (r, d) the drawn rows. Called
    with n = 7, d = 5 and r = 11, 3.
    """
    for r in (11, 3):
        x, omega = random_tensors((7, 5), (r, 5), seed=r)
        given = {"x": x, "omega": omega}
        require(function, given, _positive, shape="n r", known_mistakes=_POSITIVE_MISTAKEN)
    check_arguments_and_dtype(function, given)
    return "Every feature is positive, and the mean of their dot products over ω is exp(x·y)."


# ---- the linear order of products


def _attended(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    return phi_q @ (phi_k.mT @ v) / (phi_q @ phi_k.sum(0))[:, None]


_ORDER_MISTAKEN: tuple[KnownMistake, ...] = (
    (
        "The denominator is missing: each row is divided by φ(q)·Σφ(k), the sum of its weights.",
        lambda q, k, v: q @ (k.mT @ v),
    ),
    (
        "It divides by the number of keys; the weights of a row sum to φ(q)·Σφ(k).",
        lambda q, k, v: q @ (k.mT @ v) / len(k),
    ),
    (
        "Every row is divided by one number, the sum over all queries; each query has its own sum.",
        lambda q, k, v: q @ (k.mT @ v) / (q @ k.sum(0)).sum(),
    ),
    (
        "It divides by the sum of the keys' features alone; the denominator is its dot product "
        "with φ(q).",
        lambda q, k, v: q @ (k.mT @ v) / k.sum(),
    ),
    (
        "It uses a softmax: the features replace it, and their products are the weights.",
        lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    ),
)


class _Largest(TorchDispatchMode):
    """Records the shape of the largest tensor that is made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = ()

    def __torch_dispatch__(
        self,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for made_here in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made_here, Tensor) and made_here.numel() > math.prod(self.shape or (0,)):
                self.shape = tuple(made_here.shape)
        return out


@returns_verdict
def check_linear_order(function: Function) -> str:
    """Is it attention without the n × m map? `linear_attention(phi_q, phi_k, v) -> (n, e)`.

    `phi_q` (n, r) and `phi_k` (m, r) are features, all positive, and `v` (m, e) values; every query
    attends to every key. Called with (n, m, r, e) = (7, 11, 5, 3) and (97, 101, 5, 3), where no
    tensor may be larger than the inputs.
    """
    for n, m in ((7, 11), (97, 101)):
        q, k, v = random_tensors((n, 5), (m, 5), (m, 3), seed=n)
        given = {"phi_q": q.exp(), "phi_k": k.exp(), "v": v}
        require(function, given, _attended, shape="n e", known_mistakes=_ORDER_MISTAKEN)
    _without_a_map(function, given)
    check_arguments_and_dtype(function, given)
    return "Keys and values are summed once for all queries: the cost grows with n, not n²."


def _without_a_map(function: Function, given: Arguments) -> None:
    with _Largest() as seen:
        answer = run(function, given)
    assert as_float64(answer.value) is not None
    if math.prod(seen.shape or (0,)) <= max(x.numel() for x in given.values()):
        return
    n, m = len(given["phi_q"]), len(given["phi_k"])
    made_of = {n: "n", m: "m", 5: "r", 3: "e"}
    axes = " × ".join(made_of.get(size, str(size)) for size in seen.shape)
    raise Mistake(
        f"The numbers are right, but a tensor of {axes} = {seen.shape} is made on the way: "
        "multiply keys and values first, φ(q) (φ(k)ᵀ v)."
    )
