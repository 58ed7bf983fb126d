"""attnlab: a laboratory for attention.

Every mechanism from scratch on one readable page, proved against its own equation, open to look at.

    attnlab.cards()                                  every mechanism: paper, family, cost, forms
    attnlab.card("full")                             one of them
    attnlab.build("full", dim=64, heads=4)           an nn.Module (b, n, dim) -> (b, n, dim)
    attnlab.goes_with("bigbird", "rope")             whether a layer can take a position scheme
    attnlab.watch(model)                             look inside any torch model
    attnlab.TinyTransformer(256, attention="full")   a small model with any mechanism
    attnlab.train.fit(model, task, steps=500)        train it
    attnlab.wall("one sentence")                     every mechanism on it, side by side

``help(attnlab.core.shapes)`` explains the letters of shapes, such as b, n and dim.

Names are loaded when first used, so that ``import attnlab`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "cards": "attnlab.catalog",
    "card": "attnlab.catalog",
    "build": "attnlab.catalog",
    "goes_with": "attnlab.catalog",
    "TinyTransformer": "attnlab.models.tiny",
    "generate": "attnlab.models.generate",
    "watch": "attnlab.lens.watch",
    "wall": "attnlab_widgets.wall",
}
_ROOMS = (
    "catalog",
    "core",
    "exercises",
    "figures",
    "lens",
    "measure",
    "mechanisms",
    "models",
    "pretrained",
    "tasks",
    "train",
)

__all__ = ["TinyTransformer", "build", "card", "cards", "generate", "goes_with", "wall", "watch"]

if TYPE_CHECKING:
    from attnlab.catalog import build, card, cards, goes_with
    from attnlab.lens.watch import watch
    from attnlab.models.generate import generate
    from attnlab.models.tiny import TinyTransformer


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"attnlab.{name}")
    raise AttributeError(
        f"attnlab has no {name!r}; it has {', '.join(sorted((*__all__, *_ROOMS)))}"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
