"""A figure with a description in words.

A ``Picture`` is a plotly figure that also says what it shows: ``.description`` in sentences,
``.rows`` as a table. A notebook shows the figure and, folded beneath it, both of these. Nothing is
loaded from a network: JupyterLab and VS Code have plotly's renderer installed; pages that have none
(nbconvert, print) get a static SVG. Only in Colab, whose cells are separate web pages, plotly is
loaded by Colab's own renderer.
"""

import sys
from collections.abc import Mapping, Sequence
from json import loads
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from attnlab.core.files import write_file
from attnlab.core.markup import escape
from attnlab.figures import static
from attnlab.figures.theme import auto_css, auto_css_of_browser, colours

Row = Mapping[str, Any]
MOST_ROWS = 64
PLOTLY = "application/vnd.plotly.v1+json"
# plotly's "Share chart" button would upload the reader's data: no figure here offers it. Buttons
# for what the mouse does anyway would cover the title: dragging zooms, a double click zooms out.
CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["zoom", "pan", "select", "lasso", "zoomin", "zoomout", "autoscale"],
}


class Picture(go.Figure):
    """A plotly figure with a description; every function of this package returns one.

    ``description``  what is seen, in sentences (also the alternative text of the SVG)
    ``rows``         the same as a table: dicts with the same keys
    ``theme``        "light", "dark" or "auto"
    """

    _description = ""
    _rows: tuple[Row, ...] = ()
    _theme = "auto"

    def __init__(
        self,
        data: Any = None,
        layout: Any = None,
        frames: Any = None,
        skip_invalid: bool = False,
        *,
        description: str = "",
        rows: Sequence[Row] = (),
        theme: str = "auto",
    ) -> None:
        super().__init__(data, layout, frames, skip_invalid)
        self._description, self._rows, self._theme = description, tuple(rows), theme

    @property
    def description(self) -> str:
        return self._description

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self._rows]

    @property
    def theme(self) -> str:
        return self._theme

    def table(self) -> str:
        """The rows as an HTML table; at most ``MOST_ROWS``, and it says how many are left out."""
        if not self._rows:
            return ""
        head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in self._rows[0])
        body = "".join(_table_row(row) for row in self._rows[:MOST_ROWS])
        left = len(self._rows) - MOST_ROWS
        more = f"<p>{left} more rows are in <code>.rows</code>.</p>" if left > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def folded(self) -> str:
        """Description and table as folded HTML, in which dollars in tokens are not read as TeX."""
        style = f"<style>{auto_css()}</style>" if self._theme == "auto" else ""
        return (
            f'{style}<details class="tex2jax_ignore mathjax_ignore">'
            "<summary>This figure in words</summary>"
            f"<p>{escape(self._description)}</p>{self.table()}</details>"
        )

    def svg(self) -> str:
        """The figure as static SVG, drawn without a browser."""
        return static.draw(self, self._description)

    def save_svg(self, path: str | Path) -> Path:
        """Write the static SVG, for papers and slides."""
        return write_file(path, self.svg())

    def save_html(self, path: str | Path) -> Path:
        """Write a standalone interactive HTML page, description included; it loads nothing."""
        figure = self.to_html(
            full_html=False, include_plotlyjs=True, div_id="figure", config=CONFIG
        )
        look = colours(self._theme)
        css = f"body{{background:{look.paper};color:{look.ink};font-family:sans-serif}}"
        css += auto_css_of_browser() if self._theme == "auto" else ""
        title = escape(static.plain(self.layout.title.text or "Figure"))
        return write_file(
            path,
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{css}</style></head><body>"
            f'<div role="figure" aria-label="{escape(self._description)}">{figure}</div>'
            f"{self.folded()}</body></html>",
        )

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Show it in the notebook; with arguments, or outside of one, as plotly would."""
        if args or kwargs or "ipykernel" not in sys.modules:
            super().show(*args, **kwargs)
        else:
            self._ipython_display_()

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None, validate: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        if "google.colab" in sys.modules:
            html = self.to_html(full_html=False, include_plotlyjs="cdn", config=CONFIG)
            return {"text/html": html, "text/plain": self._description}
        return {
            PLOTLY: loads(self.to_json(validate=validate)) | {"config": CONFIG},
            "text/html": static.page(self, self._description),
            "text/plain": self._description,
        }

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        display({"text/html": self.folded(), "text/plain": self._as_text()}, raw=True)

    def _as_text(self) -> str:
        return f"{len(self._rows)} rows in words: see .description and .rows"

    def __reduce__(self) -> Any:
        return _rebuilt, (self.to_dict(), self._description, self._rows, self._theme)


def _rebuilt(
    figure: dict[str, Any], description: str, rows: tuple[Row, ...], theme: str
) -> Picture:
    return Picture(figure, description=description, rows=rows, theme=theme)


def _table_row(row: Row) -> str:
    first, *others = (escape(_cell(value)) for value in row.values())
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
