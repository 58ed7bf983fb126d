"""Reading a pattern from the code that it writes: ``read(pattern.code) == pattern``.

Nothing is evaluated: the text is parsed, and only the algebra's own names, operators and methods
are followed.
"""

import ast
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from attnlab.core.patterns import primitives
from attnlab.core.patterns.algebra import Pattern
from attnlab.core.suggest import suggestion

_NAMES = (
    *("axial", "block_diagonal", "blocks", "causal", "dilated", "edges", "fixed", "full"),
    *(
        "global_",
        "hub",
        "local",
        "local_2d",
        "per_head",
        "places",
        "prefix",
        "random",
        "strided",
        "summaries",
    ),
)
PRIMITIVES: dict[str, Callable[..., Pattern]] = {n: getattr(primitives, n) for n in _NAMES}
METHODS = ("causal", "blocks", "shifted")

_PAGES: dict[str, Callable[..., Pattern]] = {}

P = ParamSpec("P")
R = TypeVar("R", bound=Pattern)


def readable(make: Callable[P, R]) -> Callable[P, R]:
    """Lets ``read`` follow a pattern that belongs to one page of the shelf.

    ``make`` is what the pattern's ``code`` calls.
    """
    _PAGES[make.__name__] = make
    return make


@functools.lru_cache(maxsize=256)
def read(text: str) -> Pattern:
    """The pattern that ``text`` writes, as in ``(local(2) | strided(8)).causal()``.

    Raises ValueError, in a sentence, where it writes none.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"cannot read the pattern {text!r}: {error.msg}") from None
    pattern = _value(tree)
    if not isinstance(pattern, Pattern):
        raise ValueError(f"{text!r} is not a pattern")
    return pattern


def _value(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left, ast.BitAnd(), right):
            return _pattern(left) & _pattern(right)
        case ast.BinOp(left, ast.BitOr(), right):
            return _pattern(left) | _pattern(right)
        case ast.UnaryOp(ast.Invert(), inner):
            return ~_pattern(inner)
        case ast.Call(ast.Name(name), args, keywords):
            return _call(_primitive(name), name, args, keywords)
        case ast.Call(ast.Attribute(of, name), args, keywords) if name in METHODS:
            return _call(getattr(_pattern(of), name), name, args, keywords)
        case ast.List(items) | ast.Tuple(items):
            return [_value(item) for item in items]
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            return -number
        case ast.Constant(int() | str() as value):
            return value
    raise ValueError(f"a pattern cannot contain {ast.unparse(node)!r}")


def _pattern(node: ast.expr) -> Pattern:
    value = _value(node)
    if not isinstance(value, Pattern):
        raise ValueError(f"{ast.unparse(node)!r} is not a pattern")
    return value


def _primitive(name: str) -> Callable[..., Pattern]:
    if name == "held":
        return primitives.held
    if name in _PAGES:
        return _PAGES[name]
    if name not in PRIMITIVES:
        raise ValueError(f"there is no pattern {name!r}{suggestion(name, PRIMITIVES)}")
    return PRIMITIVES[name]


def _call(
    function: Callable[..., Pattern], name: str, args: list[ast.expr], keywords: list[ast.keyword]
) -> Pattern:
    named = {keyword.arg: _value(keyword.value) for keyword in keywords if keyword.arg}
    try:
        return function(*map(_value, args), **named)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
