"""Calling the learner's function: whatever happens becomes an `Answer` or a sentence.

A check states the right formula and the mistaken ones it knows. The learner's result is compared
with the right one; where it differs, it is compared with what each known mistake gives on the same
numbers, then measured, and only then called different.
"""

import itertools
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.exercises.verdict import Function, Mistake, kind_of

Given = Mapping[str, Any]  # the arguments by the names of the exercise, passed by position
Suspect = tuple[str, Callable[..., object]]  # the sentence, and the mistaken formula
Parts = tuple[Tensor, ...]

_TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 5e-2}  # everything else: 1e-5

_HINTS = {
    "shapes cannot be multiplied": (
        "In `a @ b` the last axis of a meets the last but one of b: is one of them not transposed?"
    ),
    "view size is not compatible": (
        "After a transpose the numbers no longer lie in order; `reshape` copies, `view` cannot."
    ),
    "is invalid for input of size": "The sizes asked for do not multiply to what there is.",
    "not implemented for 'Bool'": "Matrix products are of numbers, not of truth: take `.float()`.",
    "Boolean value of Tensor with more than one value is ambiguous": (
        "Join masks with `&` and `|` (not `and`, `or`), each comparison in parentheses of its own: "
        "`a <= b | c` means `a <= (b | c)`."
    ),
}


def made(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Standard normal numbers, the same on every call, without touching PyTorch's own generator."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


# ---- the call


@dataclass(frozen=True)
class Answer:
    """What came of one call: a value, or what was `raised`; which arguments it `changed`."""

    call: str
    value: object = None
    raised: str = ""
    hint: str = ""
    changed: tuple[str, ...] = ()


def ask(function: Function, given: Given) -> Answer:
    """Call the function with copies of the arguments; its exceptions become words."""
    copies = {name: x.clone() if isinstance(x, Tensor) else x for name, x in given.items()}
    call = _spoken(function, given)
    try:
        value = function(*copies.values())
    except (Exception, SystemExit) as error:
        if isinstance(error, NotImplementedError) and not _hint(error):
            return Answer(call, raised=f"is not written yet ({_own_words(error)})")
        raised = f"raised {_own_words(error)}{_place(function, error)}"
        return Answer(call, raised=raised, hint=_hint(error))
    changed = tuple(
        name for name, x in given.items() if isinstance(x, Tensor) and not _equal(copies[name], x)
    )
    return Answer(call, value, changed=changed)


def _equal(copy: Tensor, original: Tensor) -> bool:
    return copy.dtype == original.dtype and torch.equal(copy, original)


def _spoken(function: Function, given: Given) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    name = name.strip("<>")  # <lambda>
    said = (f"{k} {tuple(x.shape) if isinstance(x, Tensor) else x}" for k, x in given.items())
    return f"{name}({', '.join(said)})"


def _own_words(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _place(function: Function, error: BaseException) -> str:
    """The line of the learner's code where it happened, if its source is to be had."""
    home = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [f.line for f in traceback.extract_tb(error.__traceback__) if f.filename == home]
    return f" at `{lines[-1]}`" if lines and lines[-1] else ""


def _hint(error: BaseException) -> str:
    return next((f" {hint}" for words, hint in _HINTS.items() if words in str(error)), "")


# ---- comparing


def plain(value: object) -> Tensor | None:
    """A real dense tensor as float64 on the CPU; None for anything else."""
    if not isinstance(value, Tensor) or value.is_complex() or value.layout != torch.strided:
        return None
    return value.detach().to("cpu", torch.float64)


def same(value: object, expected: object) -> bool:
    """Equal shapes and numbers, up to the rounding of the value's own dtype; NaN equals NaN."""
    if isinstance(expected, tuple):
        return (
            isinstance(value, tuple | list)
            and len(value) == len(expected)
            and all(map(same, value, expected))
        )
    mine, theirs = plain(value), plain(expected)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return False
    near = _TOLERANCE.get(getattr(value, "dtype", torch.float64), 1e-5)
    return torch.allclose(mine, theirs, rtol=near, atol=near, equal_nan=True)


def recognise(
    function: Function, cases: Sequence[Given], suspects: Sequence[Suspect]
) -> str | None:
    """The sentence of the first known mistake that gives exactly what the function gives.

    Some mistakes run only where sizes happen to agree (queries and keys exchanged, a forgotten
    transpose); that is what several cases are for.
    """
    for given in cases:
        value = ask(function, given).value
        for sentence, mistaken in suspects if value is not None else ():
            if same(value, _formula(mistaken, given)):
                return sentence
    return None


def _formula(mistaken: Function, given: Given) -> object:
    try:
        return mistaken(*given.values())
    except (RuntimeError, IndexError):  # a mistake that these sizes do not allow
        return None


def demand(
    function: Function,
    given: Given,
    truth: Function,
    *,
    shape: str,
    suspects: Sequence[Suspect] = (),
    cases: Sequence[Given] = (),
    explain: Callable[[], str | None] = lambda: None,
) -> None:
    """Silent where the function is right on `given`; a `Mistake` that says what is wrong where not.

    `shape` names the axes of the right result; `explain` measures what no suspect explains.
    """
    answer, expected = ask(function, given), plain(truth(*given.values()))
    assert expected is not None
    if same(answer.value, expected):
        return
    fits = getattr(answer.value, "shape", None) == expected.shape
    sentence = recognise(function, (given,) if fits else (given, *cases), suspects)
    if sentence:
        raise Mistake(sentence + (f" ({answer.call} {answer.raised})" if answer.raised else ""))
    value = tensor(answer, expected, shape)
    if not same(ask(function, given).value, value):
        raise Mistake(
            f"Two calls of {answer.call} with the same numbers gave different results: something "
            "in it is random (dropout?) or remembers the last call."
        )
    raise Mistake(explain() or difference(value, expected, answer.call))


def tensor(answer: Answer, expected: Tensor, shape: str, what: str = "") -> Tensor:
    """The answer as a tensor of the expected shape, or a `Mistake` about what it is instead."""
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    what = what or answer.call
    value = plain(answer.value)
    if value is None:
        raise Mistake(_not_a_tensor(answer.value, what))
    if value.shape != expected.shape:
        raise Mistake(_misshapen(value, expected, shape, what))
    return value


def _not_a_tensor(value: object, what: str) -> str:
    if value is None:
        return f"{what} gave None: is the `return` missing?"
    if isinstance(value, tuple | list):
        return (
            f"{what} gave a {type(value).__name__} of {len(value)} things; one tensor is asked for."
        )
    if isinstance(value, Tensor):
        return f"{what} gave a tensor of {value.dtype}, {value.layout}; a real dense one is needed."
    return f"{what} gave {kind_of(value)}; a torch tensor is asked for."


def _misshapen(value: Tensor, expected: Tensor, shape: str, what: str) -> str:
    axes = shape.split()
    wanted = f"({', '.join(axes)}) = {tuple(expected.shape)}"
    for order in itertools.permutations(range(len(axes))):
        if same(value, expected.permute(order)):
            how = "transposed" if len(axes) == 2 else "in another order"
            got = ", ".join(axes[axis] for axis in order)
            return (
                f"The numbers are right but the axes are {how}: {what} gave ({got}) = "
                f"{tuple(value.shape)}; asked for is {wanted}."
            )
    return f"Wrong shape: {what} gave {tuple(value.shape)}; asked for is {wanted}."


def difference(value: Tensor, expected: Tensor, what: str) -> str:
    """Where two tensors of one shape differ most, as a sentence of last resort."""
    if not value.isfinite().all():
        place = (~value.isfinite()).nonzero()[0].tolist()
        return f"{what} gave {number(value[tuple(place)])} at {place}, where a number should be."
    gap = (value - expected).abs()
    place = [int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)]
    got, wanted = value[tuple(place)], expected[tuple(place)]
    return (
        f"The shape is right, the numbers are not: {what} gave {number(got)} at {place}, "
        f"where {number(wanted)} is right."
    )


def number(x: Tensor | float) -> str:
    return f"{float(x):.3g}".replace("-", "−").replace("inf", "∞").replace("nan", "NaN")


# ---- several tensors at once


def named_parts(answer: Answer, names: Sequence[str], shapes: Sequence[str], like: Parts) -> Parts:
    """The named tensors of a returned tuple, each of the shape of its `like`; or a `Mistake`."""
    value = answer.value
    if answer.raised or not isinstance(value, tuple | list):
        if not answer.raised and plain(value) is not None:
            raise Mistake(f"{answer.call} gave one tensor; asked for is ({', '.join(names)}).")
        tensor(answer if answer.raised else Answer(answer.call, value), like[0], shapes[0])
        raise AssertionError("unreachable: `tensor` refuses both")
    if len(value) != len(names):
        raise Mistake(f"{answer.call} gave {len(value)} things; asked for is ({', '.join(names)}).")
    return tuple(
        tensor(Answer(answer.call, part), want, shape, what=f"`{name}` from {answer.call}")
        for part, name, shape, want in zip(value, names, shapes, like, strict=True)
    )


def part_faults(
    parts: Parts,
    truth: Parts,
    given: Given,
    names: Sequence[str],
    suspects: Sequence[Sequence[Suspect]],
) -> list[str]:
    """A sentence for each part that is wrong: the known mistake, or where it differs."""
    found = []
    for name, part, right, known in zip(names, parts, truth, suspects, strict=True):
        if not same(part, right):
            named = (text for text, mistaken in known if same(part, mistaken(*given.values())))
            found.append(next(named, None) or difference(part, right, f"`{name}`"))
    return found


# ---- manners


def mannerly(function: Function, given: Given) -> None:
    """A `Mistake` where right numbers come with a changed argument or another dtype."""
    answer = ask(function, given)
    if answer.changed:
        raise Mistake(
            f"The numbers are right, but {changes(answer)} Whoever called it still needs "
            "them: compute new tensors."
        )
    for dtype in (torch.float64, torch.float32):
        cast = {
            k: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x
            for k, x in given.items()
        }
        value = ask(function, cast).value
        if getattr(value, "dtype", dtype) != dtype:
            went, came = (str(d).removeprefix("torch.") for d in (dtype, value.dtype))  # type: ignore[attr-defined]
            raise Mistake(
                f"The numbers are right, but {went} went in and {came} came out: something inside "
                "casts, or makes a tensor without taking over the dtype of the inputs."
            )


def untouched(function: Function, given: Given) -> None:
    """The same for a mask, of whole numbers and truth: what remains is to leave its arguments."""
    answer = ask(function, given)
    if answer.changed:
        raise Mistake(
            f"The mask is right, but {changes(answer)} Whoever called it still needs them."
        )


def changes(answer: Answer) -> str:
    names = " and ".join(f"`{name}`" for name in answer.changed)
    return (
        f"{names} changed in place (by `+=`, `*=`, an assignment to a slice, or a method that ends "
        "in `_`)."
    )
