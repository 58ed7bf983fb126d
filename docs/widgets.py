"""The stored widgets of a notebook: living where they need no kernel, else as they stood.

A widget of attnlab's own becomes a page of its own, as ``save_html`` writes it, in a frame. One
that is composed of ipywidgets is drawn from its stored state: its pictures and texts, and its
controls with their values, which nobody answers without Python.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from attnlab_widgets.base import own_names, page_of

from docs.places import ROOT

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
NEEDS_PYTHON = "These controls need Python: they answer when you run the lesson."
_FIT = (ROOT / "docs/frame.js").read_text(encoding="utf-8")
_FLAT = """<base target="_top">
<style>
body { padding: 2px; overflow: hidden; background: transparent !important; }
html[theme="light"] body { color: #1f2329; }
html[theme="dark"] body { color: #e6edf2; }
</style>
"""

Outputs = Callable[[Sequence[Mapping[str, Any]]], str]


class Widgets:
    """The widgets that one notebook stores; ``add`` keeps a file of the site."""

    def __init__(
        self, metadata: Mapping[str, Any], folder: str, add: Callable[[str, str], None]
    ) -> None:
        stored = metadata.get("widgets", {}).get(STATE, {}).get("state", {})
        self.models: Mapping[str, Any] = stored
        self.folder, self.add = folder, add
        self.count = 0

    def draw(self, name: str, outputs: Outputs) -> str | None:
        """The widget of that id as HTML; None where the notebook does not hold it."""
        model = self.models.get(name)
        if model is None:
            return None
        if model["model_name"] == "AnyModel":
            return self._living(model)
        drawn = self._composed(name, outputs)
        return f'<div class="composed">{drawn}<p class="note">{NEEDS_PYTHON}</p></div>'

    def _living(self, model: Mapping[str, Any]) -> str | None:
        state = {name: model["state"][name] for name in own_names(model["state"])}
        for buffer in model.get("buffers", []):  # arrays, which JSON cannot hold
            state[buffer["path"][0]] = b64decode(buffer["data"])
        title = state.get("title") or "A widget of attnlab"
        try:
            living = framed(page_of(title, state, model["state"]["_esm"]))
        except (KeyError, ValueError):
            return None
        self.count += 1
        address = f"widgets/{self.folder}/{self.count}.html"
        self.add(address, living)
        return frame(f"../{address}", title)

    def _composed(self, name: str, outputs: Outputs) -> str:
        model = self.models[name]
        kind, state = model["model_name"].removesuffix("Model"), model["state"]
        if kind == "Any":
            return self._living(model) or ""
        if kind == "Output":
            return outputs(state.get("outputs", []))
        if kind in ("HTML", "HTMLMath"):
            return f"<div>{state.get('value', '')}</div>"
        if kind in ("VBox", "HBox", "GridBox", "Box"):
            inside = "".join(
                self._composed(child.removeprefix("IPY_MODEL_"), outputs)
                for child in state.get("children", [])
                if child.removeprefix("IPY_MODEL_") in self.models
            )
            return f'<div class="{kind.lower()}">{inside}</div>'
        return _control(kind, state)


def _control(kind: str, state: Mapping[str, Any]) -> str:
    """A control as it stood: its name and its value."""
    if kind == "Button":
        return f"<button disabled>{escape(state.get('description', ''))}</button>"
    value = state.get("value")
    options = state.get("_options_labels")
    if options is not None and isinstance(state.get("index"), int):
        value = options[state["index"]]
    if isinstance(value, float):
        value = f"{value:.4g}"
    if isinstance(value, bool):
        value = "yes" if value else "no"
    label = escape(str(state.get("description", "")))
    shown = "" if value is None else f"<output>{escape(str(value))}</output>"
    return f'<span class="control">{label} {shown}</span>' if label or shown else ""


def frame(address: str, title: str) -> str:
    """A living widget; the script of the site gives its frame the height that it asks for."""
    return (
        f'<iframe class="widget" src="{escape(address)}" title="{escape(title)}" '
        'loading="lazy"></iframe>'
    )


def framed(html: str) -> str:
    """The page of a widget such that it tells its height, and follows light and dark."""
    html = html.replace("</head>", f"{_FLAT}</head>", 1)
    return html.replace("</body>", f"<script>\n{_FIT}</script>\n</body>", 1)
