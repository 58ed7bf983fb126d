"""What can be measured: one file, one topic; the command finds them by walking this folder.

A topic is a module whose docstring's first line is its title, with `rows(*, quick, threads)` that
measures everything of the topic in one run and yields its rows. `quick` takes sizes and repeats
small enough for a look whether all runs; its figures are not the ones to report.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def names() -> list[str]:
    """The topics there are, in the order of the alphabet."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def topics() -> Iterator[tuple[str, ModuleType]]:
    for name in names():
        yield name, importlib.import_module(f"{__name__}.{name}")


def title(topic: ModuleType) -> str:
    return (topic.__doc__ or "").strip().splitlines()[0]
