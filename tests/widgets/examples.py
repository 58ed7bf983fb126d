"""An example of every widget, and one with hostile words of each that shows words of its user.

Both stand in the folder of the widget (`attnlab_widgets/<name>/example.py`); a widget without an
example there is made without arguments.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import attnlab_widgets
from attnlab_widgets.base import BaseWidget, HasStill


def _made_by(kind: type, name: str) -> Any:
    """That function of the widget's example; None where there is none."""
    if importlib.util.find_spec(f"{kind.__module__}.example") is None:
        return None
    return getattr(importlib.import_module(f"{kind.__module__}.example"), name, None)


KINDS = [
    kind
    for kind in (getattr(attnlab_widgets, name) for name in attnlab_widgets.__all__)
    if isinstance(kind, type) and issubclass(kind, HasStill)
]
EXAMPLES: dict[type, Callable[[], Any]] = {
    kind: _made_by(kind, "example") or kind for kind in KINDS
}
PAGES: dict[type[BaseWidget], Callable[[], BaseWidget]] = {
    kind: make for kind, make in EXAMPLES.items() if issubclass(kind, BaseWidget)
}
"""The widgets that are a page of their own, which `save_html` writes."""

HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\">",
    "</script><script>document.title = 'taken'</script>",
    "\"'&amp;",
    "שלום",
    "\u202egnp.exe",
    "\x07\x1b[31m\n",
    "👩‍🚀\u200b",
)
"""Tokens that a page must show as text: tags, quotes, right to left, control characters."""

HOSTILE_EXAMPLES: dict[type[BaseWidget], Callable[[Sequence[str]], BaseWidget]] = {
    kind: make for kind in PAGES if (make := _made_by(kind, "hostile"))
}
"""The widgets that show words of their user: an example of each with these words."""
