"""The base of every attnlab widget: its bundle, its theme, its still picture, and HTML export.

A widget is a folder: its ``__init__.py`` holds the state and validates it, ``<name>.js`` draws it;
``npm run build`` bundles the latter into ``static/<name>.js``.
Large arrays are ``Bytes`` traits: ipywidgets sends them as binary buffers, not as JSON.
"""

import json
import os
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anywidget
import numpy as np
import traitlets

from attnlab.core.files import checked_place, write_file
from attnlab.core.integers import check_integer
from attnlab.core.markup import escape, printable
from attnlab.figures.drawing import Drawing

STATIC = Path(__file__).parent / "static"
LIVE = "Run the notebook to make this picture live."
MOST_BYTES = 90_000
"""Of a still picture: a notebook stores one for each widget, and must stay below a megabyte. A
widget may set a smaller ``most_bytes``."""
_VIEW = "application/vnd.jupyter.widget-view+json"
_ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;.=>?@^_`{|}~"
_QUICK = 1_000_000  # bytes
_LETTERS = np.frombuffer(_ALPHABET, np.uint8)
_DEFLATED = """\
const deflated = atob("{text}");
const bytes = Uint8Array.from(deflated, (letter) => letter.charCodeAt(0));
const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
const bundle = await new Response(stream).arrayBuffer();
const address = URL.createObjectURL(new Blob([bundle], {{ type: "text/javascript" }}));
const widget = await import(address);
URL.revokeObjectURL(address);
export default widget.default;
"""
_TEXT = re.compile(r'^const deflated = atob\("([\w+/=]+)"\);$', re.MULTILINE)
_FACE = re.compile(r"export\s*\{\s*([\w$]+)\s+as\s+default\s*\};?\s*$")
T = TypeVar("T")


# An Enum of strings is for type checkers only: before traitlets 5.13, as on Colab, it has no [].
if TYPE_CHECKING:
    _Choice = traitlets.Enum[str]
else:
    _Choice = traitlets.Enum


class Choice(_Choice):
    """One of a few strings; an array or a list is refused like any other value."""

    def validate(self, obj: Any, value: Any) -> Any:
        if not isinstance(value, str):
            self.error(obj, value)
        return super().validate(obj, value)


class Checked(traitlets.Any):
    """Any value but None: what it may be, a validator of the widget says."""

    allow_none = False


def as_trait_error(check: Callable[..., T], *given: Any) -> T:
    """What ``check`` returns; its errors as those of a trait."""
    try:
        return check(*given)
    except (TypeError, ValueError) as error:
        raise traitlets.TraitError(str(error)) from None


def within(name: str, value: int, least: int, most: int) -> int:
    """A whole number in these bounds; a TraitError otherwise."""
    if not least <= value <= most:
        raise traitlets.TraitError(f"`{name}` should be from {least} to {most}, got {value}")
    return int(value)


def check_range(name: str, value: Any, count: int) -> int:
    """A whole number from 0 to count - 1, as places are counted."""
    found = check_integer(f"`{name}`", value)
    if not 0 <= found < count:
        raise ValueError(f"`{name}` should be 0 to {count - 1} here, got {found}")
    return found


class HasStill:
    """What gives a widget a still picture, for paper and for pages that run no widgets.

    A widget defines ``still``. The stored output then carries it as pixels: GitHub and an untrusted
    JupyterLab show those, but neither SVG nor the styles of HTML.
    """

    model_id: str
    most_bytes = MOST_BYTES
    _ipython_display_ = None  # ipywidgets 7 has one, and it would come before the bundle

    def still(self) -> Drawing | None:
        """The present state as a drawing; None for a widget without one."""
        return None

    def save_svg(self, path: str | Path) -> Path:
        """A static picture of what is shown, drawn without a browser."""
        return write_file(_ending(path, ".svg"), self._must_draw().svg(repr(self)))

    def save_png(self, path: str | Path) -> Path:
        """A static picture as pixels, two per unit (needs Pillow)."""
        return write_file(_ending(path, ".png"), self._must_draw().png())

    def _must_draw(self) -> Drawing:
        drawing = self.still()
        if drawing is None:
            raise TypeError(f"{type(self).__name__} has no still picture")
        return drawing

    def _repr_mimebundle_(self, **options: Any) -> Any:
        above = getattr(super(), "_repr_mimebundle_", None)  # ipywidgets 7 has none
        bundle = above(**options) if above else {_VIEW: _view_of(self.model_id)}
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        drawing = None if data is None else self.still()
        if drawing is None:
            return bundle
        shown = drawing.with_line(LIVE)
        png = b64encode(shown.png(colours=64, most=self.most_bytes)).decode()
        words = printable(repr(self))
        size = {"width": shown.wide, "height": shown.high, "alt": words}
        return {**data, "image/png": png, "text/plain": words}, {**metadata, "image/png": size}


def _view_of(model_id: str) -> dict[str, Any]:
    return {"version_major": 2, "version_minor": 0, "model_id": model_id}


def _ending(path: str | Path, suffix: str) -> Path:
    target = checked_place(path)
    if target.suffix.lower() != suffix:
        raise ValueError(f"`path` should end in {suffix}, got {str(path)!r}")
    return target


class BaseWidget(HasStill, anywidget.AnyWidget):
    """A widget that can be saved as one HTML file, which works without kernel and network.

    ``theme`` is "auto" (follows JupyterLab, VS Code, Colab or the reader's system), "light" or
    "dark".
    """

    _esm: Any  # the bundle: every widget names its own
    theme = Choice(("auto", "light", "dark"), "auto").tag(sync=True)

    def __init_subclass__(cls, **options: Any) -> None:
        """Notebooks store the bundle with each widget: deflated it is less than half as long."""
        path = cls.__dict__.get("_esm")
        if isinstance(path, Path) and os.environ.get("ANYWIDGET_HMR") != "1":  # which follows files
            cls._esm = deflated(path.read_text(encoding="utf-8"))
        super().__init_subclass__(**options)

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> Any:
        """What the page is sent: halves of surrogate pairs, which no message can hold, as escapes.

        Names that are given to a widget may hold them.
        """
        state = super().get_state(key, drop_defaults)
        return _whole(state) if _has_half(state) else state

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """What the page sends. It may set what a user may set; a value that cannot be is answered
        with the present one, for nobody would read an error."""
        given = sync_data if isinstance(sync_data, dict) else {}
        mine = {name: value for name, value in given.items() if self._may_be_set(name, value)}
        try:
            super().set_state(mine)
            refused = set(given) - set(mine)
        except (traitlets.TraitError, TypeError, ValueError, OverflowError):
            refused = set(given)
        if refused & set(self.keys):
            self.send_state([name for name in given if name in self.keys])

    def _may_be_set(self, name: object, value: Any) -> bool:
        trait = self.traits().get(name) if isinstance(name, str) else None
        if trait is None or trait.read_only or str(name).startswith("_"):
            return False
        return not (isinstance(trait, traitlets.Int) and isinstance(value, bool))

    def save_html(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the widget in its present state as one standalone HTML file."""
        target = checked_place(path)
        if target.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"`path` should end in .html, got {str(path)!r}")
        return write_file(target, self.page(title or type(self).__name__))

    def page(self, title: str) -> str:
        """The HTML that ``save_html`` writes."""
        return page_of(title, self._saved_state(), str(self._esm))

    def _saved_state(self) -> dict[str, Any]:
        """The synced traits that are this widget's own."""
        return {key: getattr(self, key) for key in own_names(self.keys)}


_HALF = re.compile("[\ud800-\udfff]")


def _has_half(value: Any) -> bool:
    if isinstance(value, str):
        return not value.isascii() and _HALF.search(value) is not None
    if isinstance(value, dict):
        return any(_has_half(name) or _has_half(each) for name, each in value.items())
    return isinstance(value, list | tuple) and any(map(_has_half, value))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub(lambda found: ascii(found[0])[1:-1], value)
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list | tuple) else value


_NOT_SAVED = {
    *("_anywidget_id", "_css", "_dom_classes", "_esm", "_model_module", "_model_module_version"),
    *("_model_name", "_view_count", "_view_module", "_view_module_version", "_view_name"),
    *("layout", "tabbable", "tooltip"),
}


def own_names(names: Iterable[str]) -> list[str]:
    """The traits of a widget's state that are not ipywidgets' or anywidget's."""
    return sorted(set(names) - _NOT_SAVED)


def page_of(title: str, state: dict[str, Any], bundle: str) -> str:
    """A widget as one standalone page, from its state and the bundle that draws it."""
    saved = json.dumps(packed(state), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return _PAGE.format(
        title=escape(title), state=saved.replace("<", "\\u003c"), script=standalone(bundle)
    )


def packed(state: dict[str, Any]) -> dict[str, Any]:
    """JSON-able: bytes become ``{"deflated": text}``.

    Base 85 (RFC 1924, with "." in the place of "<") is a sixteenth shorter than base 64.
    """
    return {key: _packed(value) for key, value in state.items()}


def _packed(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        level = 9 if len(value) < _QUICK else 6  # a little smaller, in twice the time
        return {"deflated": _as_text(zlib.compress(bytes(value), level))}
    return value


def _as_text(data: bytes) -> str:
    """Base 85, for all words of four bytes at once: `base64.b85encode` takes seconds for 5 MB."""
    words = np.frombuffer(data + bytes(-len(data) % 4), ">u4")
    powers = 85 ** np.arange(4, -1, -1, dtype=np.uint32)
    letters = _LETTERS[words[:, None] // powers % 85].tobytes().decode()
    return letters[: len(letters) - -len(data) % 4]


def deflated(bundle: str) -> str:
    """The bundle as a module that inflates it and has the same default export."""
    return _DEFLATED.format(text=b64encode(zlib.compress(bundle.encode(), 9)).decode())


def inflated(module: str) -> str:
    """The bundle that ``deflated`` was given; any other module is returned as it is."""
    found = _TEXT.search(module)
    return zlib.decompress(b64decode(found[1])).decode() if found else module


def standalone(bundle: str) -> str:
    """The bundle (or what `deflated` made of it) as a script that mounts its default export."""
    bundle = inflated(bundle)
    face = _FACE.search(bundle)
    if face is None:
        raise ValueError("the bundle has no default export at its end; run: npm run build")
    if "</script" in bundle.lower():
        raise ValueError("the bundle would end its own script element")
    return f"{bundle[: face.start()]}\n{face.group(1)}.page(document);"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="attnlab">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; padding: 16px; background: #fefefd; color: #1f2329; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #16181d; color: #e6edf2; }} }}
</style>
</head>
<body>
<main data-attnlab-widget></main>
<noscript>This page draws with JavaScript, which is switched off here.</noscript>
<script type="application/json" data-attnlab-state>{state}</script>
<script type="module">
{script}
</script>
</body>
</html>
"""
