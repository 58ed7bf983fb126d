"""Calling the learner's function: whatever happens becomes an `Answer` or a sentence.

A check has the right formula and a list of known mistakes, each a formula with a sentence. The
learner's result is compared with the right one. Where it differs, it is compared with the result of
each known mistake on the same numbers; if none agrees, the message says where it differs.
"""

import itertools
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnlab.exercises.verdict import Function, Mistake, Verdict, type_name

Arguments = Mapping[str, Any]  # by the names of the exercise; they are passed by position
KnownMistake = tuple[str, Callable[..., object]]  # the sentence, and the mistaken formula
Parts = tuple[Tensor, ...]

LARGEST_COUNT = 10**9  # of layers or directions that a function may give
LONGEST_ERROR = 300  # characters of an exception that a message repeats

# everything else: 1e-5
_TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 5e-2, torch.float32: 5e-5}

_HINTS = {
    "shapes cannot be multiplied": (
        "In `a @ b` the last axis of a must be as long as the second-to-last axis of b: is a "
        "transpose missing?"
    ),
    "view size is not compatible": (
        "After a transpose the numbers are no longer in order in memory: use `reshape`, which "
        "copies them, not `view`."
    ),
    "must match the size of tensor": (
        "Axes are matched from the right: give each tensor an axis of size 1 where the other has "
        "one of its own, as in `x[:, None, None]`."
    ),
    "is invalid for input of size": (
        "The product of the new sizes must be the number of elements of the tensor."
    ),
    "not implemented for 'Bool'": (
        "A matrix product needs numbers, not True and False: convert with `.float()`."
    ),
    "Boolean value of Tensor with more than one value is ambiguous": (
        "Combine masks with `&` and `|` (not `and`, `or`), and put each comparison in parentheses: "
        "`a <= b | c` means `a <= (b | c)`."
    ),
}


@dataclass
class Drawing:
    """How the numbers of a check are drawn: other seeds, longer axes. ``used`` counts draws."""

    seed: int = 0
    times: int = 1
    used: int = 0


_DRAWING: ContextVar[Drawing | None] = ContextVar("drawing", default=None)


def random_tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Standard normal numbers, the same on every call, without touching PyTorch's own generator."""
    drawing = _DRAWING.get() or Drawing()
    drawing.used += 1
    generator = torch.Generator().manual_seed(seed + drawing.seed)
    sizes = [[x if x < 2 else drawing.times * x for x in shape] for shape in shapes]
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def sizes(*cases: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The sizes of the cases of an exercise without random numbers; a hidden test has larger ones.

    What is 0 or 1 stays.
    """
    drawing = _DRAWING.get() or Drawing()
    drawing.used += drawing.times > 1
    return [tuple(x if x < 2 else drawing.times * x for x in case) for case in cases]


def redrawn(check: Callable[..., Verdict], drawing: Drawing) -> Callable[..., Verdict]:
    """The same check on other numbers, and on axes `drawing.times` as long: a hidden test.

    A learner's function that knows the numbers or the sizes of the check by heart fails here.
    """

    def again(*arguments: object, **options: object) -> Verdict:
        token = _DRAWING.set(drawing)
        try:  # a new copy of the module, as some numbers are drawn when it is imported
            spec = find_spec(check.__module__)
            assert spec is not None
            assert spec.loader is not None
            page = module_from_spec(spec)
            spec.loader.exec_module(page)
            verdict: Verdict = getattr(page, check.__name__)(*arguments, **options)
            return verdict
        finally:
            _DRAWING.reset(token)

    return again


# ---- the call


class Named:
    """A function among the arguments that a message can name."""

    def __init__(self, call: Callable[[Any], Any], name: str) -> None:
        self._call, self._name = call, name

    def __call__(self, value: Any) -> Any:
        return self._call(value)

    def __repr__(self) -> str:
        return self._name


@dataclass(frozen=True)
class Answer:
    """The result of one call: its value, or what it `raised`; which arguments it `changed`."""

    call: str
    value: object = None
    raised: str = ""
    hint: str = ""
    changed: tuple[str, ...] = ()


def run(function: Function, given: Arguments) -> Answer:
    """Call the function with copies of the arguments; its exceptions become text.

    A function that makes float32 tensors of its own, as PyTorch does unless told otherwise, is
    called with float32.
    """
    copies = {name: _copy(x) for name, x in given.items()}
    call = _call_text(function, given)
    try:
        try:
            value = function(*copies.values())
        except RuntimeError as error:
            single = {name: _single(x) for name, x in given.items()}
            if "dtype" not in str(error) and "scalar type" not in str(error):
                raise
            given, copies = single, {name: _copy(x) for name, x in single.items()}
            value = function(*copies.values())
    except (Exception, SystemExit, GeneratorExit) as error:
        if isinstance(error, NotImplementedError) and not _hint(error):
            return Answer(call, raised=f"is not written yet ({_error_text(error)})")
        raised = f"raised {_error_text(error)}{_failing_line(function, error)}"
        return Answer(call, raised=raised, hint=_hint(error))
    changed = tuple(
        name for name, x in given.items() if isinstance(x, Tensor) and not _equal(copies[name], x)
    )
    return Answer(call, value, changed=changed)


def _copy(value: Any) -> Any:
    """Copies tensors and lists, so that a function may change what it is given."""
    if isinstance(value, Tensor):
        return value.clone()
    return list(value) if type(value) is list else value


def _single(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _equal(copy: Tensor, original: Tensor) -> bool:
    return copy.dtype == original.dtype and torch.equal(copy, original)


def _call_text(function: Function, given: Arguments) -> str:
    name = str(getattr(function, "__name__", type(function).__name__)).strip("<>")  # <lambda>
    parts = (f"{k} {tuple(x.shape) if isinstance(x, Tensor) else x}" for k, x in given.items())
    return f"{name}({', '.join(parts)})"


def _error_text(error: BaseException) -> str:
    """The kind and the text of an exception, on one line and not too long."""
    try:
        text = textwrap.shorten(str(error)[:1000], LONGEST_ERROR, placeholder=" …")
    except Exception:  # its own __str__ may fail
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _failing_line(function: Function, error: BaseException) -> str:
    """The line of the learner's code where it happened, if the source is available."""
    home = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [f.line for f in traceback.extract_tb(error.__traceback__) if f.filename == home]
    return f" at `{lines[-1]}`" if lines and lines[-1] else ""


def _hint(error: BaseException) -> str:
    text = _error_text(error)
    return next((f" {hint}" for words, hint in _HINTS.items() if words in text), "")


# ---- comparing


def as_float64(value: object) -> Tensor | None:
    """A real dense tensor, NumPy array or number as float64 on the CPU; None for anything else."""
    if isinstance(value, int | float | np.ndarray | np.generic):
        array = np.asarray(value)
        value = torch.from_numpy(array.astype("float64")) if array.dtype.kind in "biuf" else None
    if not isinstance(value, Tensor) or value.is_nested or value.layout != torch.strided:
        return None
    if value.is_complex() or value.is_meta or value.is_quantized:
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
    actual, wanted = as_float64(value), as_float64(expected)
    if actual is None or wanted is None or actual.shape != wanted.shape:
        return False
    near = _TOLERANCE.get(getattr(value, "dtype", torch.float64), 1e-5)
    return torch.allclose(actual, wanted, rtol=near, atol=near, equal_nan=True)


def recognise(
    function: Function,
    cases: Sequence[Arguments],
    known_mistakes: Sequence[KnownMistake],
    others: Callable[[], Iterable[Arguments]] = tuple,
) -> str | None:
    """The sentence of a known mistake whose result equals that of the function.

    Some mistakes run only with equal sizes (queries and keys exchanged, a forgotten transpose), so
    several cases are tried. Of several mistakes that agree there, the first counts that agrees on
    the `others` as well, or else the first.
    """
    for given in cases:
        value = run(function, given).value
        known = known_mistakes if value is not None else ()
        agreeing = [(text, wrong) for text, wrong in known if same(value, result_of(wrong, given))]
        for sentence, mistaken in agreeing if len(agreeing) > 1 else ():
            if all(same(run(function, x).value, result_of(mistaken, x)) for x in others()):
                return sentence
        if agreeing:
            return agreeing[0][0]
    return None


def result_of(mistaken: Function, given: Arguments) -> object:
    """What a known mistake gives on these numbers; None where their sizes do not allow it."""
    try:
        return mistaken(*given.values())
    except (RuntimeError, IndexError):
        return None


def require(
    function: Function,
    given: Arguments,
    truth: Function,
    *,
    shape: str,
    known_mistakes: Sequence[KnownMistake] = (),
    alike: Callable[[], Iterable[Arguments]] = tuple,
    others: Callable[[], Iterable[Arguments]] = tuple,
    explain: Callable[[], str | None] = lambda: None,
) -> Answer:
    """The answer on `given` if it is right; else a `Mistake` that says what is wrong.

    `shape` names the axes of the right result. Mistakes are looked for on the cases `alike` as well
    where the shape is wrong. `explain` is asked where no known mistake agrees.
    """
    answer, expected = run(function, given), as_float64(truth(*given.values()))
    assert expected is not None
    if same(answer.value, expected):
        return answer
    found = as_float64(answer.value)
    fits = found is not None and found.shape == expected.shape
    tried = (given,) if fits else (given, *alike())
    sentence = recognise(function, tried, known_mistakes, others)
    if sentence:
        raise Mistake(sentence + (f" ({answer.call} {answer.raised})" if answer.raised else ""))
    value = expect_tensor(answer, expected, shape)
    if not same(run(function, given).value, value):
        raise Mistake(
            f"Two calls of {answer.call} with the same numbers gave different results: something "
            "in it is random (dropout?) or keeps a value from the last call."
        )
    raise Mistake(explain() or difference(value, expected, answer.call))


def expect_tensor(answer: Answer, expected: Tensor, shape: str, what: str = "") -> Tensor:
    """The answer as a tensor of the expected shape, or a `Mistake` that says what it is."""
    if answer.raised:
        raise Mistake(f"{answer.call} {answer.raised}.{answer.hint}")
    what = what or answer.call
    value = as_float64(answer.value)
    alone = expected.ndim > 0 and not isinstance(answer.value, Tensor | np.ndarray)  # one number
    if value is None or alone:
        raise Mistake(_not_a_tensor(answer.value, what))
    if value.shape != expected.shape:
        raise Mistake(_misshapen(value, expected, shape, what))
    return value


def _not_a_tensor(value: object, what: str) -> str:
    if value is None:
        return f"{what} gave None: is the `return` missing?"
    if isinstance(value, tuple | list):
        return (
            f"{what} gave a {type(value).__name__} of length {len(value)}; it should give one "
            "tensor."
        )
    if isinstance(value, Tensor):
        return (
            f"{what} gave a tensor of {value.dtype}, {value.layout} on {value.device}; an ordinary "
            "dense tensor of real numbers is needed."
        )
    return f"{what} gave {type_name(value)}; it should give a torch tensor."


def _misshapen(value: Tensor, expected: Tensor, shape: str, what: str) -> str:
    axes = shape.split()
    wanted = f"({', '.join(axes)}) = {tuple(expected.shape)}"
    for order in itertools.permutations(range(len(axes))):
        if same(value, expected.permute(order)):
            how = "transposed" if len(axes) == 2 else "in another order"
            got = ", ".join(axes[axis] for axis in order)
            return (
                f"The numbers are right but the axes are {how}: {what} gave ({got}) = "
                f"{tuple(value.shape)}; it should give {wanted}."
            )
    return f"Wrong shape: {what} gave {tuple(value.shape)}; it should give {wanted}."


def difference(value: Tensor, expected: Tensor, what: str) -> str:
    """Where two tensors of one shape differ most: used when no known mistake agrees."""
    if not value.isfinite().all():
        place = (~value.isfinite()).nonzero()[0].tolist()
        return (
            f"{what} gave {number(value[tuple(place)])} at {place}; it should be a finite number."
        )
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


def expect_tensors(
    answer: Answer, names: Sequence[str], shapes: Sequence[str], like: Parts
) -> Parts:
    """The named tensors of a returned tuple, each of the shape of its `like`; or a `Mistake`."""
    value = answer.value
    if answer.raised or not isinstance(value, tuple | list):
        if not answer.raised and as_float64(value) is not None:
            raise Mistake(f"{answer.call} gave one tensor; it should give ({', '.join(names)}).")
        expect_tensor(answer if answer.raised else Answer(answer.call, value), like[0], shapes[0])
        raise AssertionError("unreachable: expect_tensor refuses both")
    if len(value) != len(names):
        raise Mistake(
            f"{answer.call} gave {len(value)} values; it should give ({', '.join(names)})."
        )
    return tuple(
        expect_tensor(Answer(answer.call, part), want, shape, what=f"`{name}` from {answer.call}")
        for part, name, shape, want in zip(value, names, shapes, like, strict=True)
    )


def part_faults(
    parts: Parts,
    truth: Parts,
    given: Arguments,
    names: Sequence[str],
    known_mistakes: Sequence[Sequence[KnownMistake]],
) -> list[str]:
    """A sentence for each part that is wrong: the known mistake, or where it differs."""
    found = []
    for name, part, right, known in zip(names, parts, truth, known_mistakes, strict=True):
        if not same(part, right):
            named = (text for text, mistaken in known if same(part, mistaken(*given.values())))
            found.append(next(named, None) or difference(part, right, f"`{name}`"))
    return found


# ---- side effects


def check_side_effects(answer: Answer) -> None:
    """A `Mistake` where the result is right, but an argument was changed, or the result has half
    precision. float32 for float64 is fine: no exercise asks for a dtype."""
    dtype = str(getattr(answer.value, "dtype", "")).removeprefix("torch.")
    if answer.changed:
        right = "The mask is right" if dtype == "bool" else "The numbers are right"
        raise Mistake(
            f"{right}, but {changed_in_place(answer)} The caller still needs the old values: "
            "compute new tensors."
        )
    if dtype in ("float16", "bfloat16"):
        raise Mistake(
            f"The numbers are nearly right, but the result is {dtype}, which keeps two or three "
            "digits: compute in float32 or in the dtype of the inputs."
        )


def changed_in_place(answer: Answer) -> str:
    names = " and ".join(f"`{name}`" for name in answer.changed)
    return (
        f"{names} changed in place (by `+=`, `*=`, an assignment to a slice, or a method whose "
        "name ends in `_`)."
    )
