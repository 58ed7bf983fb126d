"""All primitives by their names, found by looking through the files that define them.

To add one, define a ``Primitive`` (or a ``Shorthand``) in one of these files. ``read`` then accepts
its name, and PatternStudio offers it if it has a rule.
"""

from typing import Any, TypeAlias

from attnlab.core.patterns import algebra, by_distance, by_grid, by_place, by_table, shorthands
from attnlab.core.patterns.algebra import Pattern, Primitive
from attnlab.core.patterns.arguments import REQUIRED, Argument
from attnlab.core.patterns.shorthands import Shorthand

FILES = (by_distance, by_place, by_grid, by_table, shorthands, algebra)

Named: TypeAlias = type[Primitive] | Shorthand


def primitives() -> dict[str, Named]:
    """The primitives and shorthands by name; each makes a pattern when it is called."""
    defined = (one for file in FILES for one in vars(file).values())
    return {one.name: one for one in defined if _is_primitive(one)}


def for_page() -> list[dict[str, Any]]:
    """The primitives as data, for the JavaScript of PatternStudio, which computes masks itself."""
    return [_described(one) for one in primitives().values() if _page_knows(one)]


def _is_primitive(one: object) -> bool:
    if isinstance(one, type):
        return issubclass(one, Primitive) and one is not Primitive
    return isinstance(one, Shorthand)


def _page_knows(one: Named) -> bool:
    return isinstance(one, Shorthand) or one.rule is not None


def _described(one: Named) -> dict[str, Any]:
    arguments = [_argument(name, argument) for name, argument in one.arguments.items()]
    known = {"name": one.name, "arguments": arguments}
    if isinstance(one, Shorthand):
        return {**known, "stands_for": one.stands_for}
    cases = {"invalid": one.invalid, "misfit": one.misfit, "remark": one.remark}
    return {**known, "says": one.describing(), "rule": one.rule, **cases}


def _argument(name: str, argument: Argument) -> dict[str, Any]:
    default = argument.default.code if isinstance(argument.default, Pattern) else argument.default
    known = {
        "name": name,
        "kind": argument.kind,
        "at_least": argument.at_least,
        "default": None if argument.default is REQUIRED else default,
        "start": argument.start,
        "called": argument.called,
        "named": argument.named,
        "optional": argument.optional,
    }
    return {key: value for key, value in known.items() if value is not None and value is not False}
