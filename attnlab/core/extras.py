"""Names that need an extra of the package: without it they say which, when they are called."""

import importlib
from typing import Any, NoReturn

OURS = ("attnlab", "attnlab_widgets")


def of_widgets(module: str, name: str) -> Any:
    """``name`` of a module of ``attnlab_widgets``.

    Without the packages of the extra ``widgets`` a function stands in its place, which names the
    extra when it is called: so ``help(attnlab)`` and Tab work on every installation.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in OURS:
            raise
        return _refusing(module, name, missing)


def _refusing(module: str, name: str, missing: str) -> Any:
    sentence = (
        f"{name} needs the package {missing}, which is not installed; the extra `widgets` brings "
        "it: pip install 'attnlab[widgets]'"
    )

    def refuse(*_: object, **__: object) -> NoReturn:
        raise ImportError(sentence, name=missing)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__, refuse.__doc__ = module, sentence
    return refuse
