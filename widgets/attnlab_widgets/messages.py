"""Messages of widgets as HTML: errors, news and remarks, with their text escaped."""

import traceback

import ipywidgets as widgets

from attnlab.core.markup import escape


class Line(widgets.HTML):
    """An HTML widget that is hidden while it is empty."""

    def __init__(self, **layout: str) -> None:
        super().__init__(layout=widgets.Layout(display="none", **layout))
        self.observe(self._fit, "value")

    def _fit(self, _change: object) -> None:
        self.layout.display = "flex" if self.value else "none"


def alert(what: str, error: BaseException) -> str:
    """An error as a sentence; for unexpected kinds of error, the traceback folded below."""
    ours = isinstance(error, ValueError | TypeError)
    message = str(error) if ours else f"{type(error).__name__}: {error}"
    html = f'<div role="alert" class="attnlab-alert"><strong>{escape(what)}</strong> '
    html += escape(message)
    if not ours:
        trace = "".join(traceback.format_exception(error))
        html += f"<details><summary>Full traceback</summary><pre>{escape(trace)}</pre></details>"
    return html + "</div>"


def news(text: str) -> str:
    """A status message, announced by screen readers too."""
    return f'<div role="status">{escape(text)}</div>' if text else ""


def aside(text: str) -> str:
    return f'<div class="attnlab-aside">{escape(text)}</div>' if text else ""
