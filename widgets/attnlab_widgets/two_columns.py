"""What widgets with two views side by side share: their columns, a slider of steps, links."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import ipywidgets as widgets

from attnlab_widgets.attention_view import AttentionView

PANELS = ("heads", "matrix")
HELP = (
    "Each small map is a head, the large one is the chosen one: rows are queries, columns keys; "
    "hatched is masked. A head or a cell chosen on one side is chosen on the other."
)
_SHARED = ("layer", "head", "query", "key")


def two_columns() -> widgets.GridBox:
    """Both sides beside each other from 640 pixels on."""
    layout = widgets.Layout(
        grid_template_columns="repeat(auto-fit, minmax(min(100%, 310px), 1fr))",
        grid_gap="8px 16px",
        width="100%",
    )
    return widgets.GridBox([], layout=layout)


def link(views: Sequence[AttentionView]) -> None:
    """What is chosen in one is chosen in the other, on the page and without a kernel."""
    for one, other in pairwise(views):
        for name in _SHARED:
            widgets.jslink((one, name), (other, name))


class Steps(widgets.SelectionSlider):
    """A slider through recorded training steps; hidden while there is only one."""

    def __init__(self, chosen: Callable[[int], None]) -> None:
        self._offering = False
        self._known = [0]
        self._tell = chosen
        super().__init__(
            options=[("0", 0)],
            description="Training step",
            style={"description_width": "initial"},
            layout=widgets.Layout(width="260px", display="none"),
        )
        self.observe(self._moved, "value")

    def offer(self, steps: Iterable[int]) -> None:
        """Other steps; a reader who went back stays there, otherwise the last is chosen."""
        known, found = self._known, sorted(steps) or [0]
        if found == known:
            return
        chosen: int = self.get_interact_value()
        stays = chosen if chosen != known[-1] and chosen in found else found[-1]
        self._known = found
        self._offering = True
        try:
            self.options = [(str(step), step) for step in found]
            self.value = stays
        finally:
            self._offering = False
        self.layout.display = "flex" if len(found) > 1 else "none"

    def _moved(self, change: Any) -> None:
        if not self._offering:
            self._tell(change["new"])
