"""Checks of lesson 21: keys summed over the length, a rank for a share, a count, and a layer."""

import itertools
import numbers
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlab.exercises.answers import NumberExercise
from attnlab.exercises.attempt import LARGEST_COUNT, Arguments, random_tensors, run
from attnlab.exercises.exercise import Exercise, but
from attnlab.exercises.observed import ObservedExercise
from attnlab.exercises.verdict import Function, Mistake, type_name

# ---- keys over the length


def _projected(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return e @ k.masked_fill(~real[:, None], 0)


def _per_token(e: Tensor, k: Tensor, real: Tensor) -> Tensor:
    return _projected(e, k, real) / real.sum()


def _projected_keys_cases() -> Iterator[Arguments]:
    for marks in ("1011011", "1111100", "1111111"):
        yield _keys(marks)


check_projected_keys = Exercise(
    """Are the keys summed over the length, without padding? `project(e, k, real)`.

    `e` is (places, m), `k` (m, d), `real` (m,) bool with True for a real token. It returns
    (places, d). Called with 3 places, m = 7, d = 5, padding in the middle, at the end, and without.
    """,
    right=_projected,
    cases=_projected_keys_cases,
    axes="places d",
    mistakes={
        (lambda e, k, real: e @ k): (
            "Padding is in the sums: E mixes all positions, so a padded key must be set to zero "
            "before."
        ),
        (lambda e, k, real: _projected(e, k, ~real)): (
            "The mask is inverted: True marks a real token; the others must become zero."
        ),
        _per_token: "It divides by the number of real tokens: the weights are in E already.",
        (lambda e, k, real: _projected(e, k, real) / len(real)): (
            "It divides by the number of positions: the weights are in E already."
        ),
        (lambda e, k, real: (e @ k).masked_fill(~real[: len(e), None], 0)): (
            "The zeros are set too late: after E, every row is a sum of many positions, and no row "
            "is padding. Set the keys to zero before the product."
        ),
        (lambda e, k, real: e.masked_fill(~real, -torch.inf).softmax(dim=-1) @ k): (
            "A softmax is applied to E; use E as it is."
        ),
        (lambda e, k, real: e @ k.masked_fill(~real[:, None], -torch.inf)): (
            "Padded keys became −∞: that is right for scores. To add nothing to a sum, a key must "
            "be zero."
        ),
        (lambda e, k, real: e[:, : int(real.sum())] @ k[: int(real.sum())]): (
            "It keeps only the first columns of E; real tokens need not come first."
        ),
    },
    praise="Three places, each a sum over the real positions only.",
)


def _keys(marks: str) -> Arguments:
    e, k = random_tensors((3, 7), (7, 5), seed=5)
    return {"e": e, "k": k, "real": torch.tensor([mark == "1" for mark in marks])}


# ---- the rank for a share

_SPECTRA = {
    "a falling spectrum": ([8.0, 4.0, 2.0, 1.0, 1.0, 0.5, 0.25], 0.9),
    "a flat spectrum": ([3.0] * 10, 0.75),
    "a share that is met exactly": ([3.0, 2.0, 1.0, 1.0, 1.0], 0.8125),
    "a large first value": ([10.0, 1.0, 1.0], 0.9),
}


def _rank(values: Tensor, share: float) -> int:
    return _first(values.square(), share)


def _first(parts: Tensor, share: float, *, above: bool = False) -> int:
    """How many leading parts it takes to reach (or to pass) the share of their sum."""
    kept = parts.cumsum(0) / parts.sum()
    enough = kept > share + 1e-12 if above else kept >= share - 1e-12
    return int(enough.int().argmax()) + 1


def _ranks(function: Function) -> list[int]:
    return [
        _whole(function, {"values": torch.tensor(values, dtype=torch.float64), "share": share})
        for values, share in _SPECTRA.values()
    ]


def _whole(function: Function, given: Arguments) -> int:
    answer = run(function, given)
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    value = answer.value
    if value is None:
        raise Mistake(f"{answer.call} gave None: is the `return` missing?")
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, int | float) and abs(value) > LARGEST_COUNT:
        raise Mistake(f"{answer.call} gave a number that is far too large.")
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or float(value) % 1:
        raise Mistake(f"{answer.call} gave {type_name(value)}; it should give a whole number.")
    return int(float(value))


def _other_rank(found: list[int], wanted: list[int]) -> str:
    name, got, right = next(
        one for one in zip(_SPECTRA, found, wanted, strict=True) if one[1] != one[2]
    )
    values, share = _SPECTRA[name]
    energies = ", ".join(f"{x:g}" for x in itertools.accumulate(x * x for x in values))
    return (
        f"For {name} it gave {got}, where {right} is right: the sums of squares are {energies}; "
        f"find the first that is at least {share:g} of the last."
    )


check_rank = ObservedExercise(
    """Is it the number of directions that carry a share of the energy? `rank(values, share)`.

    `values` (r,) are singular values, largest first. It returns a whole number: the least count of
    leading ones whose squares sum to at least `share` of all squares.
    """,
    right=_rank,
    observe=_ranks,
    mistakes={
        (lambda values, share: _first(values, share)): (
            "It sums the singular values themselves; energy is the sum of their squares."
        ),
        (lambda values, share: _rank(values, share) - 1): (
            "One too few: that is the index of the last direction needed, counted from zero. Give "
            "their number."
        ),
        (lambda values, share: _rank(values, share) + 1): "One too many.",
        (lambda values, share: _first(values.square(), share, above=True)): (
            "Where the sum equals the share exactly, that is enough: ≥, not >."
        ),
        (lambda values, share: _first(values.flip(0).square(), share)): (
            "It starts with the smallest singular values; start with the largest."
        ),
        (lambda values, share: int((values > share * values[0]).sum())): (
            "It counts the singular values above a part of the largest: compare the sum of the "
            "first ones with the share."
        ),
        (lambda values, share: round(share * len(values))): (
            "It takes that share of the number of directions; directions differ in energy."
        ),
    },
    explain=_other_rank,
    praise="Squares, summed from the largest, until they reach the share.",
)


# ---- the parameters of E and F

check_projection_parameters = NumberExercise(
    "Is it what an E and an F per layer add to 12 layers, with n = 512 and k = 128?",
    right=12 * 2 * 128 * 512,
    tolerance=0.02,
    unit="parameters",
    mistakes={
        12 * 128 * 512: "E and F are two matrices.",
        12 * 12 * 2 * 128 * 512: (
            "That is without sharing: the heads of a layer share E and F here."
        ),
        128 * 512: "That is one matrix for all layers: layerwise sharing.",
        2 * 128 * 512: "That is one layer; there are 12.",
        12 * 2 * 128 * 768: "E and F act on the length, n = 512, and not on the model width.",
    },
)


# ---- a layer

Step = Callable[[Tensor], Tensor]


def _places(e: Tensor, y: Tensor) -> Tensor:
    return e[:, : y.shape[-2]] @ y


def _joined(out: Tensor) -> Tensor:
    return out.transpose(0, 1).flatten(1)


def _made(
    x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor,
    e: Tensor, f: Tensor, real: Tensor, *,
    keys: bool = True, values: bool = True, out: bool = True, scale: float | None = None,
    places: Callable[[Tensor, Tensor], Tensor] = _places, axis: int = -1, join: Step = _joined,
) -> Tensor:  # fmt: skip
    """The layer; a known mistake replaces one of the steps or leaves one out."""
    k, v = x @ wk, x @ wv
    k = k.masked_fill(~real[:, None], 0) if keys else k
    v = v.masked_fill(~real[:, None], 0) if values else v
    scores = x @ wq @ places(e, k).mT * (wq.shape[-1] ** -0.5 if scale is None else scale)
    found = join(scores.softmax(axis) @ places(f, v)) @ wo
    return found.masked_fill(~real[:, None], 0) if out else found


def _linformer_layer_cases() -> Iterator[Arguments]:
    for marks in ("1101011", "1111111"):
        yield _layer_inputs(marks)


check_linformer_layer = Exercise(
    """Is it a Linformer layer? `layer(x, Wq, Wk, Wv, Wo, E, F, real) -> (n, dim)`.

    `x` is (n, dim), `real` (n,) bool; `Wq`, `Wk`, `Wv` are (heads, dim, d) and `Wo` (heads · d,
    dim); `E` and `F` are (places, L) for n ≤ L, one pair for all heads. The rows of padding are
    zero in the result. Called with n = 7, dim = 11, 3 heads of d = 2, 5 places, L = 13, with and
    without padding.
    """,
    right=_made,
    cases=_linformer_layer_cases,
    axes="n dim",
    mistakes={
        but(keys=False, values=False): (
            "Padding is in the sums: set the keys and values of padding to zero before E and F."
        ),
        but(values=False): "The padded values are in the sums: only the keys were set to zero.",
        but(keys=False): "The padded keys are in the sums: only the values were set to zero.",
        but(out=False): (
            "The rows of padding should be zero in the result: set them to zero at the end."
        ),
        (lambda x, wq, wk, wv, wo, e, f, real: _made(x, wq, wk, wv, wo, e, f, ~real)): (
            "The mask is inverted: True marks a real token."
        ),
        but(scale=1.0): "The scores are not scaled: multiply them by 1/√d.",
        (lambda *given: _made(*given, scale=given[0].shape[-1] ** -0.5)): (
            "The scores are scaled by the model width: d is the width of one head."
        ),
        but(places=lambda e, y: e[:, -y.shape[-2] :] @ y): (
            "The last columns of E and F are used: a shorter sequence takes the first ones, since "
            "column j belongs to position j."
        ),
        (lambda x, wq, wk, wv, wo, e, f, real: _made(x, wq, wk, wv, wo, f, e, real)): (
            "E and F are exchanged: E makes the keys, F the values."
        ),
        (lambda x, wq, wk, wv, wo, e, f, real: _made(x, wq, wk, wv, wo, e, e, real)): (
            "E is used for keys and values; F is missing."
        ),
        but(axis=-2): (
            "The softmax runs over the queries; each query has weights over the places, `dim=-1`."
        ),
        but(join=lambda out: out.reshape(out.shape[1], -1)): (
            "The heads are joined without a transpose: from (heads, n, d) first to (n, heads, d)."
        ),
    },
    praise=(
        "The queries attend to five places, whatever the length, and padding is in none of them."
    ),
)


def _layer_inputs(marks: str) -> Arguments:
    shapes = {"x": (7, 11), "Wq": (3, 11, 2), "Wk": (3, 11, 2), "Wv": (3, 11, 2), "Wo": (6, 11)}
    shapes |= {"E": (5, 13), "F": (5, 13)}
    given = dict(zip(shapes, random_tensors(*shapes.values(), seed=7), strict=True))
    return {**given, "real": torch.tensor([mark == "1" for mark in marks])}
