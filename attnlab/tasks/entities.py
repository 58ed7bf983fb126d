"""Entities: the names of Python's standard library, by their kinds.

In the documentation of Python, "open raises OSError" names a function and an exception. Which words
are such names is read from Python itself: its modules, and of its built-in names the exceptions,
the types and the functions. They are the entities that ``wklm`` replaces.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence


def names_by_kind() -> dict[str, list[str]]:
    """The names of each kind in alphabetical order; a name of two kinds has the first of them."""
    public = {
        name: value
        for name, value in vars(builtins).items()
        if not name.startswith("_") and _is_pythons_own(value)
    }
    types = {name for name, value in public.items() if isinstance(value, type)}
    exceptions = {name for name in types if issubclass(public[name], BaseException)}
    functions = {name for name, value in public.items() if callable(value)} - types
    modules = {name for name in sys.stdlib_module_names if not name.startswith("_")}
    found = {
        "exceptions": exceptions,
        "types": types - exceptions,
        "functions": functions,
        "modules": modules - types - functions,
    }
    return {kind: sorted(names) for kind, names in found.items()}


def _is_pythons_own(value: object) -> bool:
    """False for what others put among the built-in names, such as the ``display`` of a notebook."""
    home = str(getattr(value, "__module__", None) or "builtins")
    return home.partition(".")[0] in sys.stdlib_module_names


def entities(
    words: Sequence[str], by_kind: Mapping[str, Sequence[str]] | None = None
) -> tuple[tuple[int, ...], ...]:
    """The tokens of each kind among the words of a vocabulary, without regard to case: what
    ``attnlab.build("wklm", vocab=…, types=…)`` takes. Kinds with fewer than two are left out.

    words: the word of each token. by_kind: names by kind, those of Python if not given.
    """
    place = {word.lower(): token for token, word in reversed([*enumerate(words)])}
    taken, found = set[int](), list[tuple[int, ...]]()
    for names in (names_by_kind() if by_kind is None else by_kind).values():
        known = sorted({place[name.lower()] for name in names if name.lower() in place} - taken)
        taken.update(known)
        if len(known) > 1:
            found.append(tuple(known))
    return tuple(found)
