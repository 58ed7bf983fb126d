"""Reading a pattern from its code: ``read(pattern.code) == pattern``.

The text is parsed, not run as Python: only the names, operators and methods of patterns are
accepted.
"""

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from attnlab.core.patterns.algebra import Pattern, both, either
from attnlab.core.patterns.by_table import held
from attnlab.core.patterns.per_head import per_head
from attnlab.core.patterns.primitives import primitives
from attnlab.core.suggest import suggestion

METHODS = ("causal", "blocks", "shifted")

DEEPEST = 320
"""How many operators, methods and calls may stand inside one another."""

_PAGES: dict[str, Callable[..., Pattern]] = {}

P = ParamSpec("P")
R = TypeVar("R", bound=Pattern)


def readable(make: Callable[P, R]) -> Callable[P, R]:
    """Registers a pattern that a mechanism defines, so that ``read`` accepts it.

    ``make`` is the class or function that the pattern's ``code`` calls.
    """
    _PAGES[make.__name__] = make
    return make


def read(text: str) -> Pattern:
    """The pattern whose code is ``text``, such as ``(local(2) | strided(8)).causal()``.

    Raises ValueError, with the reason, where ``text`` is not the code of a pattern.
    """
    if not isinstance(text, str):
        raise TypeError(f"read takes the code of a pattern, a text, got {text!r}")
    return _read(text, tuple(_makers().items()))


def names(text: str) -> set[str]:
    """The names of the primitives that a pattern's code calls."""
    nodes = ast.walk(_parsed(text))
    called = (node.func for node in nodes if isinstance(node, ast.Call))
    return {made.id for made in called if isinstance(made, ast.Name)}


@functools.lru_cache(maxsize=256)
def _read(text: str, makers: tuple[tuple[str, Callable[..., Pattern]], ...]) -> Pattern:
    """Cached by the text and the current makers, because a notebook may redefine a maker."""
    pattern = _value(_parsed(text))
    if not isinstance(pattern, Pattern):
        raise ValueError(f"{_short(text)} is not a pattern")
    return pattern


def _parsed(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"cannot read the pattern {_short(text)}: {reason}") from None
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    if _depth(tree) > DEEPEST:
        raise _too_deep(text)
    return tree


def _too_deep(text: str) -> ValueError:
    return ValueError(
        f"cannot read the pattern {_short(text)}: more than {DEEPEST} parts stand inside one "
        "another; `listed` takes any mask as a table of keys"
    )


def _depth(tree: ast.expr) -> int:
    """How many operators and calls stand inside one another, found without recursion."""
    level, depth = [tree], 0
    while level:
        depth += 1
        level = [c for node in level for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
    return depth


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:60]} … {text[-15:]}")


def _value(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left, ast.BitAnd(), right):
            return both(_pattern(left), _pattern(right))
        case ast.BinOp(left, ast.BitOr(), right):
            return either(_pattern(left), _pattern(right))
        case ast.UnaryOp(ast.Invert(), inner):
            return ~_pattern(inner)
        case ast.Call(ast.Name(name), args, keywords):
            return _call(_maker(name), name, args, keywords)
        case ast.Call(ast.Attribute(of, name), args, keywords) if name in METHODS:
            return _call(getattr(_pattern(of), name), name, args, keywords)
        case ast.List(items) | ast.Tuple(items):
            return [_value(item) for item in items]
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            return -number
        case ast.Constant(int() | str() as value):
            return value
        case ast.Name(name):
            _maker(name)
            raise ValueError(f"{name!r} needs its brackets: {name}(…)")
    raise ValueError(f"a pattern cannot contain {_short(ast.unparse(node))}")


def _pattern(node: ast.expr) -> Pattern:
    value = _value(node)
    if not isinstance(value, Pattern):
        raise ValueError(f"{_short(ast.unparse(node))} is not a pattern")
    return value


def _makers() -> dict[str, Callable[..., Pattern]]:
    return {**primitives(), "per_head": per_head, "held": held, **_PAGES}


def _maker(name: str) -> Callable[..., Pattern]:
    known = _makers()
    if name not in known:
        offered = [one for one in known if one != "held"]
        raise ValueError(f"there is no pattern {name!r}{suggestion(name, offered)}")
    return known[name]


def _call(
    make: Callable[..., Pattern], name: str, args: list[ast.expr], keywords: list[ast.keyword]
) -> Pattern:
    if any(keyword.arg is None for keyword in keywords):
        raise ValueError(f"{name}: a pattern cannot contain **")
    names = [keyword.arg for keyword in keywords]
    if len(names) > len(set(names)):
        raise ValueError(f"{name}: an argument is given twice")
    named = {str(keyword.arg): _value(keyword.value) for keyword in keywords}
    values = [_value(arg) for arg in args]
    try:
        inspect.signature(make).bind(*values, **named)
        return make(*values, **named)
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from None
