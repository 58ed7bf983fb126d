"""attnlab: a laboratory for attention.

Every mechanism from scratch on one readable page, proved against its own equation, open to look at.

    attnlab.cards()                                  every mechanism: paper, family, cost, forms
    attnlab.card("full")                             one of them
    attnlab.build("full", dim=64, heads=4)           an nn.Module (b, n, dim) -> (b, n, dim)
    attnlab.goes_with("bigbird", "rope")             whether a layer can take a position scheme
    attnlab.watch(model)                             look inside any torch model
    attnlab.view(model, "a text", tokenizer)         run one and show what attends to what
    attnlab.TinyTransformer(256, attention="full")   a small model with any mechanism
    attnlab.train.fit(model, task, steps=500)        train it
    attnlab.wall("one sentence")                     every mechanism on it, side by side
    attnlab.survey()                                 what every mechanism costs, to be checked
    attnlab.replace(model, "longformer")             any mechanism in somebody else's model
    attnlab.register(CARD)                           add a mechanism of your own to all of these

``help(attnlab.core.shapes)`` explains the letters of shapes, such as b, n and dim.

Names are loaded when first used, so that ``import attnlab`` costs next to nothing. Modules that
this file needs itself have an underscore, so that Tab after ``attnlab.`` offers the public names.
"""

import importlib as _importlib
import typing as _typing

import attnlab.core.moved as _moved

__version__ = "0.1.0"

_moved.answer()

_HOMES = {
    "cards": "attnlab.catalog",
    "card": "attnlab.catalog",
    "build": "attnlab.catalog",
    "goes_with": "attnlab.catalog",
    "register": "attnlab.catalog",
    "replace": "attnlab.models.replace",
    "TinyTransformer": "attnlab.models.tiny",
    "survey": "attnlab_widgets.survey",
    "generate": "attnlab.models.generate",
    "view": "attnlab_widgets.view",
    "watch": "attnlab.lens.watch",
    "wall": "attnlab_widgets.wall",
}
_ROOMS = (
    "architecture",
    "catalog",
    "compression",
    "core",
    "exercises",
    "experiments",
    "figures",
    "lens",
    "measure",
    "mechanisms",
    "models",
    "objectives",
    "parallel",
    "predictions",
    "pretrained",
    "structures",
    "systems",
    "tasks",
    "testing",
    "train",
)

__all__ = [
    "TinyTransformer",
    "build",
    "card",
    "cards",
    "generate",
    "goes_with",
    "register",
    "replace",
    "survey",
    "view",
    "wall",
    "watch",
]

if _typing.TYPE_CHECKING:
    from attnlab_widgets.survey import survey
    from attnlab_widgets.view import view
    from attnlab_widgets.wall import wall

    from attnlab import exercises as exercises  # the other rooms come with the names below
    from attnlab import measure as measure
    from attnlab import mechanisms as mechanisms
    from attnlab.catalog import build, card, cards, goes_with, register
    from attnlab.lens.watch import watch
    from attnlab.models.generate import generate
    from attnlab.models.replace import replace
    from attnlab.models.tiny import TinyTransformer


def __getattr__(name: str) -> _typing.Any:
    if _HOMES.get(name, "").startswith("attnlab_widgets."):
        return _importlib.import_module("attnlab.core.extras").of_widgets(_HOMES[name], name)
    if name in _HOMES:
        return getattr(_importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        try:
            return _importlib.import_module(f"attnlab.{name}")
        except ModuleNotFoundError as error:  # help and Tab pass over what has no attribute
            raise AttributeError(f"attnlab.{name} needs a package: {error}") from error
    raise AttributeError(
        f"attnlab has no {name!r}; it has {', '.join(sorted((*__all__, *_ROOMS)))}"
    )


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("_")), *_HOMES, *_ROOMS})
