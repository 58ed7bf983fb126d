"""One slim row of controls for widgets that are made of ipywidgets; the others behind "More"."""

from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from attnlab_widgets.messages import aside


def row_layout() -> widgets.Layout:
    """Lays controls out in a row that wraps where there is no room."""
    return widgets.Layout(
        flex_flow="row wrap", align_items="center", grid_gap="4px 14px", width="100%"
    )


def slim(
    frequent: Sequence[widgets.Widget], more: Sequence[widgets.Widget], help: str
) -> list[widgets.Widget]:
    """The row, and below it what "More" opens: the other controls and how the picture is read."""
    button = widgets.ToggleButton(
        description="More",
        tooltip="More controls, and how to read this",
        layout=widgets.Layout(width="64px", margin="0 0 0 auto"),
    )
    opened = widgets.HBox([*more, widgets.HTML(aside(help))], layout=widgets.Layout(
        flex_flow="row wrap", align_items="center", grid_gap="4px 18px", display="none",
        border="1px solid var(--jp-border-color2, #c3cad2)", padding="6px 10px",
    ))  # fmt: skip

    def open_or_close(change: Any) -> None:
        opened.layout.display = "flex" if change["new"] else "none"

    button.observe(open_or_close, "value")
    return [widgets.HBox([*frequent, button], layout=row_layout()), opened]
