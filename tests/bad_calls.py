"""Bad calls, made from signatures, and the verdict on what became of each of them.

A target is a call that is right. Each of its arguments in turn is replaced by values that the
argument's annotation forbids (the call must be refused), that it allows but the function may not
(the call must be refused or give a right result) and that are welcome (integers of numpy). Refused
means: in a sentence of attnlab's own, not in the words of whatever broke first.
"""

import collections.abc
import dis
import inspect
import itertools
import math
import numbers
import resource
import signal
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor, nn

LIBRARY = str(Path(__file__).parents[1] / "attnlab")
SECONDS = 2.0  # of the processor
MEMORY = 2 << 30  # bytes that calls may ask for, beyond what the process held before them
REFUSE, EITHER, WELCOME = "refuse", "either", "welcome"

RAW = (
    "not supported between",
    "unhashable type",
    "index out of range",
    "out of range for",
    "has no attribute",
    "unsupported operand",
    "object is not",
    "object cannot be",
    "object does not support",
    "division by zero",
    "must be real number, not",
    "can't allocate memory",
    "invalid literal for",
    "Expected all tensors",
    "unexpected keyword",
    "Could not run",
    "cannot be interpreted as",
)
"""Parts of messages of Python, numpy and PyTorch, which say nothing about the call."""


@dataclass(frozen=True)
class Call:
    """One call: what it is of, its words for a report, and what has to become of it."""

    target: str
    words: str
    make: Callable[[], Any]
    want: str = EITHER


# ---- bad values


class Stranger:
    """An object of an unknown class."""

    def __repr__(self) -> str:
        return "an object"


VALUES: tuple[Any, ...] = (
    *(1.5, math.nan, math.inf, -math.inf, True, False, "12", "", "yes", None, 1, 0, -1, 10**9, 2j),
    *([], [0], [1.5], [math.nan], [None], ["a"], [[]], [-1], (), (1, 2), {}, {"a": 1}, {"a": None}),
    *(b"x", Stranger(), int, len, np.float64(1.5), np.array([1, 2]), np.bool_(True)),
    *(torch.ones(2), torch.tensor(2), slice(3), range(2), Ellipsis),
    *(2**70, torch.ones(2, device="meta"), torch.ones(2).to(torch.float8_e4m3fn)),
    *(torch.eye(2).to_sparse(), sympy.Symbol("n")),
)


def allowed(value: Any, annotation: Any) -> bool:
    """Whether an annotation allows a value; what cannot be decided is allowed."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or annotation is inspect.Parameter.empty:
        return True
    if isinstance(annotation, typing.TypeVar | str):
        return True
    if origin is typing.Annotated:
        plain, *bounds = args
        bounds = [getattr(each, "least", getattr(each, "at_least", None)) for each in bounds]
        least = next((each for each in bounds if each is not None), None)
        return allowed(value, plain) and (least is None or value >= least)
    if origin in (typing.Union, types.UnionType):
        return any(allowed(value, each) for each in args)
    if annotation is None or annotation is type(None):
        return value is None
    if hasattr(annotation, "dim_str"):
        return isinstance(value, Tensor)
    if origin is typing.Literal:
        return isinstance(value, str) and value in args
    if origin is tuple:
        rest = args[-1] is Ellipsis
        wanted = itertools.repeat(args[0]) if rest else args
        size = several(value) and (rest or len(value) == len(args))
        return size and all(map(allowed, value, wanted))
    if origin in (collections.abc.Sequence, collections.abc.Iterable, list):
        return several(value) and all(allowed(each, args[0]) for each in value)
    if origin in (collections.abc.Mapping, dict):
        named = isinstance(value, Mapping)
        return named and all(allowed(k, args[0]) and allowed(v, args[1]) for k, v in value.items())
    if origin is collections.abc.Callable or annotation is collections.abc.Callable:
        return callable(value)
    if annotation is bool:
        return isinstance(value, bool | np.bool_)
    if annotation in (int, float) and isinstance(value, Tensor):
        return value.dim() == 0  # it counts as a number
    if annotation is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if annotation is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and not (isinstance(value, float) and math.isnan(value))
    kind = origin or annotation
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind)


def several(value: Any) -> bool:
    return isinstance(value, list | tuple | range | np.ndarray | str) or (
        isinstance(value, Tensor) and value.dim() > 0 and listable(value)
    )


def listable(value: Tensor) -> bool:
    """Whether a tensor holds numbers that Python can compare."""
    return not (value.is_meta or value.is_sparse or value.dtype == torch.float8_e4m3fn)


def mistakes(annotation: Any, right: Any) -> Iterator[tuple[str, Any, str]]:
    """(words, value, what has to become of the call) for an argument that is right as ``right``."""
    if isinstance(right, Tensor):
        shapes = [each.dim_str.split() for each in contracts(annotation)]
        fewer = any("..." in shape or len(shape) < right.dim() for shape in shapes)
        yield from tensor_mistakes(right, EITHER if fewer else REFUSE)
    for value in VALUES:
        yield shown(value), value, EITHER if allowed(value, annotation) else REFUSE
    if isinstance(right, int) and not isinstance(right, bool):
        yield f"np.int64({right})", np.int64(right), WELCOME


def contracts(annotation: Any) -> Iterator[Any]:
    """The shapes that an annotation of a tensor allows."""
    if hasattr(annotation, "dim_str"):
        yield annotation
    for each in typing.get_args(annotation):
        yield from contracts(each)


def tensor_mistakes(right: Tensor, fewer_axes: str) -> Iterator[tuple[str, Any, str]]:
    """The same numbers as what is no dense tensor of this shape and kind."""
    yield "a list", right.tolist(), REFUSE
    yield "an array", right.numpy(), REFUSE
    real = right.real if right.is_complex() else right
    if not right.is_complex():
        yield "complex", right.to(torch.complex64), REFUSE
    yield "without its first axis", right[0], fewer_axes
    yield "with an axis more", right[None], EITHER
    yield "with no columns", right[..., :0], REFUSE
    yield "with columns twice", torch.cat([right, right], -1), EITHER
    yield "with rows twice", torch.cat([right, right], 0), EITHER
    yield "without rows", right[:0], EITHER
    yield "sparse", right.to_sparse(), EITHER
    yield "on meta", right.to("meta"), EITHER
    yield "of float8", real.to(torch.float8_e4m3fn), REFUSE
    yield "nested", torch.nested.nested_tensor(list(real.float())), EITHER
    if right.is_floating_point():
        yield "of integers", right.long(), REFUSE
        yield "of bools", right.bool(), REFUSE
    else:
        yield "of floats", real.float(), REFUSE
    if right.dtype == torch.bool:
        yield "of integers", right.long(), REFUSE


def shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"tensor of shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) < 40 else f"{text[:30]}…"


def bad_calls(
    target: str,
    function: Callable[..., Any],
    right: Mapping[str, Any],
    *,
    skip: Mapping[str, Any] = types.MappingProxyType({}),
) -> Iterator[Call]:
    """Calls of ``function``, right but for one argument; of ``right`` all given by keyword.

    ``skip`` holds values of an argument that are right and would only take long.
    """
    parameters = inspect.signature(function).parameters
    by_place = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]

    def call(arguments: Mapping[str, Any]) -> Any:
        rest = {name: value for name, value in arguments.items() if name not in by_place}
        return function(*(arguments[name] for name in by_place if name in arguments), **rest)

    yield Call(target, "the right call", lambda: call(right), WELCOME)
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or name == "self":
            continue
        good = right.get(name, parameter.default)
        for words, value, want in mistakes(parameter.annotation, good):
            if any(value is each or shown(value) == shown(each) for each in skip.get(name, ())):
                continue
            arguments = {**right, name: value}
            yield Call(target, f"{name}={words}", lambda a=arguments: call(a), want)


# ---- the verdict


class Hang(BaseException):
    """A call that takes too long."""


def fault(call: Call) -> str:
    """What is wrong with what became of a call; "" where nothing is."""
    return next((message for _, message in faults([call])), "")


def faults(calls: Iterable[Call]) -> Iterator[tuple[Call, str]]:
    """The calls that end badly, each with what is wrong; all begin with the same random numbers."""
    with bounded():
        for call in calls:
            torch.manual_seed(0)
            if message := _fault(call):
                yield call, message


def _fault(call: Call) -> str:
    try:
        with warnings.catch_warnings(), _timed():
            warnings.simplefilter("ignore")
            result = call.make()
    except Hang:
        return "it hangs"
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if not ours(error):
            return f"raw {words}{where(error)}"
        return f"refused although welcome: {words}" if call.want == WELCOME else ""
    if call.want == REFUSE:
        return f"accepted in silence: {shown(result)}"
    return "" if finite(result) else "NaN in the result"


def ours(error: BaseException) -> bool:
    """Whether an error was raised on purpose, by a ``raise`` in attnlab, in a sentence."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    on_purpose = dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    message = str(error)
    sentence = len(message.split()) > 3 and not any(raw in message for raw in RAW)
    return code.co_filename.startswith(LIBRARY) and on_purpose and sentence


def where(error: BaseException) -> str:
    """The last line of attnlab on the way to an error."""
    places = [
        f" ({Path(frame.filename).relative_to(LIBRARY)}:{frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(LIBRARY)
    ]
    return places[-1] if places else ""


def finite(value: Any) -> bool:
    """Whether there is no NaN in a result, as far as it can be looked into."""
    if isinstance(value, Tensor):
        looked_at = value.layout == torch.strided and not value.is_meta and not value.is_nested
        return not (looked_at and value.is_floating_point() and value.isnan().any())
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or not np.isnan(value).any()
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, Mapping):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    if isinstance(value, nn.Module):
        return all(map(finite, value.parameters()))
    if is_dataclass(value) and not isinstance(value, type):
        return all(finite(getattr(value, each.name)) for each in fields(value))
    return True


@contextmanager
def bounded() -> Iterator[None]:
    """Not more bytes than mistakes may cost, and an end for a call that takes too long."""

    def stop(*_: Any) -> None:
        raise Hang

    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, limits[1]))
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def _timed() -> Iterator[None]:
    """Not more seconds of the processor than a mistake may cost."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
