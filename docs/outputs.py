"""The stored outputs of a cell as HTML; what is text stays Markdown.

Figures are drawn at once from the picture that their output holds; where scripts run, plotly's own
takes its place when the reader comes near.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from attnlab.predictions import Prediction
from docs.widgets import VIEW, Widgets

PLOTLY = "application/vnd.plotly.v1+json"
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Outputs:
    """Draws the outputs of one notebook; ``add`` keeps a file of the site."""

    def __init__(self, folder: str, widgets: Widgets, add: Callable[[str, Any], None]) -> None:
        self.folder, self.widgets, self.add = folder, widgets, add
        self.count = 0
        self.styles: set[str] = set()

    def draw(self, outputs: Sequence[Mapping[str, Any]], asked: Prediction | None = None) -> str:
        """``asked`` is the prediction of the cell, whose answer no output holds."""
        return "\n".join(self._one(output, asked) for output in outputs)

    def _one(self, output: Mapping[str, Any], asked: Prediction | None) -> str:
        if output["output_type"] == "stream":
            text = _ESCAPES.sub("", "".join(output["text"]))
            return f'<pre class="stream">{escape(text)}</pre>'
        data = {kind: _text(content) for kind, content in output.get("data", {}).items()}
        if VIEW in data:
            return self._widget(data, asked)
        if PLOTLY in data:
            return self._figure(data)
        if "text/html" in data:
            return f'<div class="html">{self._styled_once(data["text/html"])}</div>'
        if "image/svg+xml" in data:
            return f'<div class="html">{data["image/svg+xml"]}</div>'
        if "image/png" in data:
            return self._picture(data)
        return f'<pre class="stream">{escape(str(data.get("text/plain", "")))}</pre>'

    def _widget(self, data: Mapping[str, Any], asked: Prediction | None) -> str:
        fallback = data.get("text/html", "")
        if asked is not None and "<strong>Predict.</strong>" in fallback:
            return f'<div class="predict">{fallback}{_folded(asked)}</div>'
        living = self.widgets.draw(data[VIEW]["model_id"], self.draw)
        if living is not None:
            return living
        if fallback:
            return f'<div class="html">{self._styled_once(fallback)}</div>'
        if "image/png" in data:
            return self._picture(data)
        return f'<pre class="stream">{escape(str(data.get("text/plain", "")))}</pre>'

    def _figure(self, data: Mapping[str, Any]) -> str:
        self.count += 1
        address = f"figures/{self.folder}/{self.count}.js"
        content = json.dumps(data[PLOTLY], separators=(",", ":")).replace("</", "<\\/")
        self.add(address, f'attnlab.figures["{address}"] = {content};\n')
        still = self._styled_once(data.get("text/html", ""))
        return f'<div class="figure" data-figure="{address}">{still}</div>'

    def _picture(self, data: Mapping[str, Any]) -> str:
        self.count += 1
        address = f"figures/{self.folder}/{self.count}.png"
        self.add(address, b64decode(data["image/png"]))
        said = escape(str(data.get("text/plain", "")))
        return f'<img class="still" src="../{address}" alt="{said}" loading="lazy">'

    def _styled_once(self, html: str) -> str:
        """Every figure brings the rules of its dark colours; a page needs them once."""

        def keep(style: re.Match[str]) -> str:
            known = style[0] in self.styles
            self.styles.add(style[0])
            return "" if known else style[0]

        return _STYLE.sub(keep, html)


def _folded(asked: Prediction) -> str:
    words = f"<strong>{escape(asked.answer)}.</strong> {escape(asked.why)}"
    return f"<details><summary>Answer</summary><p>{words}</p></details>"


def _text(content: Any) -> Any:
    return "".join(content) if isinstance(content, list) else content
