"""Modules that are loaded when they are first named, so that what a message advises can be typed
after ``import attnlab`` alone."""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """The ``__getattr__`` of a package: its modules, each imported when it is asked for."""

    def load(name: str) -> ModuleType:
        try:
            found = None if name.startswith("_") else find_spec(f"{package}.{name}")
        except ModuleNotFoundError as moved:  # it stands elsewhere today
            raise AttributeError(str(moved)) from moved
        if found is None:
            raise AttributeError(f"{package} has no {name!r}")
        return importlib.import_module(f"{package}.{name}")

    return load
