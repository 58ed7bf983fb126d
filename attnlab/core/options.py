"""Options: written once, checked against their own annotations.

The options of a mechanism are the fields of a frozen dataclass on its page:

    @dataclass(frozen=True, kw_only=True)
    class Window(Options):
        window: Size = 512
        dilation: Size | tuple[Size, ...] = 1

Creating one with a value that does not fit its annotation raises an error, in a sentence.
``attnlab.build`` uses the field names to separate these options from its other arguments.
"""

import functools
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Union

from attnlab.core.integers import check_integer
from attnlab.core.shown import shown
from attnlab.core.suggest import choose


@dataclass(frozen=True)
class AtLeast:
    """The smallest number that an annotation allows."""

    least: int


Size = Annotated[int, AtLeast(1)]
"""An integer of at least 1: a width, a length, a number of things there must be."""

Count = Annotated[int, AtLeast(0)]
"""An integer of at least 0."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one mechanism. Subclasses are frozen dataclasses with keyword-only fields."""

    def __post_init__(self) -> None:
        for name, annotation in annotations_of(type(self)).items():
            object.__setattr__(self, name, check_value(name, getattr(self, name), annotation))
        self.check()

    def check(self) -> None:
        """Raise a ValueError for options that contradict each other."""

    def __str__(self) -> str:
        """The options that differ from their defaults, as one writes them in a call."""
        given = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return ", ".join(f"{name}={value!r}" for name, value, usual in given if value != usual)


def annotations_of(options: type[Options]) -> dict[str, Any]:
    """Field → annotation, ``Annotated`` bounds included."""
    return _annotations(options)  # type: ignore[arg-type]


@functools.cache
def _annotations(options: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(options, include_extras=True)
    return {field.name: hints[field.name] for field in fields(options)}


def check_value(name: str, value: Any, annotation: Any) -> Any:
    """``value`` in the type that ``annotation`` names: int, bool, float, str, ``Literal``, tuples
    and unions of these, or a class.

    Raises TypeError or ValueError in a sentence that starts with ``name``.
    """
    alternatives = _alternatives(annotation)
    if value is None and type(None) in alternatives:
        return None
    chosen = [one for one in alternatives if one is not type(None) and _may_be(value, one)]
    if not chosen:
        expected = " or ".join(_named(one) for one in alternatives)
        raise TypeError(f"{name} should be {expected}, got {shown(value)}")
    return _checked_as(name, value, chosen[0])


def check_share(name: str, value: Any) -> float:
    """``value`` as a float from 0 to 1; a TypeError or ValueError in a sentence otherwise."""
    share: float = check_value(name, value, float)
    if not 0 <= share <= 1:
        raise ValueError(f"{name} should be a share from 0 to 1, got {value!r}")
    return share


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is Union:
        return tuple(one for part in typing.get_args(annotation) for one in _alternatives(part))
    return (annotation,)


def _plain(annotation: Any) -> tuple[Any, int | None]:
    """The type without its ``Annotated``, and the bound given in it."""
    if typing.get_origin(annotation) is Annotated:
        plain, *more = typing.get_args(annotation)
        return plain, next((one.least for one in more if isinstance(one, AtLeast)), None)
    return annotation, None


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _may_be(value: Any, annotation: Any) -> bool:
    """Whether ``value`` is of the kind that ``annotation`` names, whatever its size."""
    plain, _ = _plain(annotation)
    origin = typing.get_origin(plain)
    if plain is Any:
        return True
    if plain is bool:
        return _is_bool(value)
    if plain is int:
        return isinstance(value, numbers.Integral) and not _is_bool(value)
    if plain is float:
        return isinstance(value, numbers.Real) and not _is_bool(value)
    if origin is Literal:
        return isinstance(value, str)
    if origin in (tuple, Sequence):
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if plain is Callable or origin is Callable:
        return callable(value)
    return not isinstance(origin or plain, type) or isinstance(value, origin or plain)


def _checked_as(name: str, value: Any, annotation: Any) -> Any:
    plain, least = _plain(annotation)
    origin = typing.get_origin(plain)
    if plain is int:
        return check_integer(name, value, at_least=least)
    if plain is bool:
        return bool(value)
    if plain is float:
        whole = isinstance(value, numbers.Integral)
        return _finite(name, float(check_integer(name, value) if whole else value), least)
    if origin is Literal:
        choose(name, value, dict.fromkeys(typing.get_args(plain)))
    if origin in (tuple, Sequence):
        inner = typing.get_args(plain)
        return _items(name, tuple(value), inner if origin is tuple else (*inner, ...))
    return value


def _finite(name: str, value: float, least: int | None) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} should be a finite number, got {value}")
    if least is not None and value < least:
        raise ValueError(f"{name} should be at least {least}, got {value}")
    return value


def _items(name: str, values: tuple[Any, ...], annotations: tuple[Any, ...]) -> tuple[Any, ...]:
    if annotations[-1] is not Ellipsis and len(values) != len(annotations):
        raise ValueError(f"{name} should hold {len(annotations)} values, got {values!r}")
    return tuple(
        check_value(
            f"{name}[{i}]",
            value,
            annotations[min(i, len(annotations) - 2)]
            if annotations[-1] is Ellipsis
            else annotations[i],
        )
        for i, value in enumerate(values)
    )


def _named(annotation: Any) -> str:
    """The annotation in words, for an error."""
    plain, _ = _plain(annotation)
    names = {
        bool: "True or False",
        int: "a whole number",
        float: "a number",
        str: "a text",
        type(None): "None",
    }
    if plain in names:
        return names[plain]
    if typing.get_origin(plain) is Literal:
        return " or ".join(map(repr, typing.get_args(plain)))
    if typing.get_origin(plain) in (tuple, Sequence):
        return "a sequence"
    if plain is Callable or typing.get_origin(plain) is Callable:
        return "a function"
    return f"a {getattr(plain, '__name__', plain)}"


# ---- functions


@functools.lru_cache(maxsize=1024)
def takes_structure(module: Any) -> bool:
    """Whether a module is told what connects its tokens, as ``module(x, structure=…)``."""
    return "structure" in inspect.signature(module.forward).parameters


@functools.lru_cache(maxsize=1024)
def takes_visibility(module: Any) -> bool:
    """Whether a module is told which token sees which, as ``module(x, visibility=…)``."""
    return "visibility" in inspect.signature(module.forward).parameters


def takes_padding(module: Any) -> bool:
    """Whether a module is told which tokens are real, as ``module(x, padding=…)``."""
    return "padding" in inspect.signature(module.forward).parameters


def parameters_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function, or of a class when it is made → their annotations.

    Those that have a name: a module without ``__init__`` has ``*args`` and ``**kwargs`` of PyTorch.
    """
    target = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    read = _by_name if isinstance(function, type | types.FunctionType) else _by_name.__wrapped__
    return dict(read(function, target))


@functools.lru_cache(maxsize=1024)
def _by_name(function: Callable[..., Any], target: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function or a class, read once: to read them takes longer than to build
    many a layer."""
    hints = typing.get_type_hints(inspect.unwrap(target), include_extras=True)
    nameless = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = inspect.signature(function).parameters.values()
    return {each.name: hints.get(each.name, Any) for each in taken if each.kind not in nameless}
