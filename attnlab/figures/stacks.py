"""Stacks of coloured blocks on the places of a table, seen from the front, in one panel or more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attnlab.core.arguments import check_list, check_mapping, check_names, check_texts
from attnlab.core.markup import escape
from attnlab.core.suggest import choose
from attnlab.figures import svg
from attnlab.figures.labels import sentence
from attnlab.figures.layout import text_width
from attnlab.figures.theme import colours, theme_name

MOST_PLACES, MOST_PANELS = 12, 12
FILLS = {"red": "#f0a58c", "green": "#8fd6b8", "blue": "#9ccbee", "yellow": "#f2e38a"}
"""Light enough for dark letters on any page: every block bears the name of its colour."""
_INK, _EDGE = "#1b1f24", "#57606b"
_WIDE, _HIGH, _GAP, _SIDE = 58, 32, 8, 16  # pixels: a block, between places, between panels
_MOST_IN_A_ROW = 3
_EXAMPLE = '{"before": [["red", "green"], ["blue"], []]}'

Stacks = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, repr=False)
class StackDrawing:
    """One panel for each entry of ``panels``; a notebook shows the picture.

    ``panels``  caption → for each place of the table its stack, from the lowest block up
    ``theme``   "light", "dark" or "auto", which follows the page
    """

    panels: Mapping[str, Stacks]
    title: str
    theme: str

    @property
    def description(self) -> str:
        """A sentence that says what is drawn."""
        parts = [sentence(self.title)] if self.title else []
        for name, stacks in self.panels.items():
            said = ", ".join(f"({' under '.join(stack)})" if stack else "()" for stack in stacks)
            parts.append(f"{name}: {said}.")
        return " ".join(parts)

    def svg(self) -> str:
        """The picture as SVG, for papers and slides."""
        look, across = colours(self.theme), min(len(self.panels), _MOST_IN_A_ROW)
        places = max(len(stacks) for stacks in self.panels.values())
        highest = max(len(stack) for stacks in self.panels.values() for stack in stacks)
        caption = max(text_width(name) for name in self.panels)
        panel = max(places * (_WIDE + _GAP) - _GAP, round(caption)) + 2 * _SIDE
        tall = max(1, highest) * _HIGH + 44
        top = 34 if self.title else 4
        wide = max(across * panel, round(text_width(self.title, 15)) + 2 * _SIDE)
        parts = [svg.text(escape(self.title), wide / 2, 22, size=15, fill=look.ink)]
        parts = parts if self.title else []
        for number, (name, stacks) in enumerate(self.panels.items()):
            row, column = divmod(number, across)
            middle = (wide - across * panel) / 2 + (column + 0.5) * panel
            floor = top + row * tall + tall - 12
            parts.append(svg.text(escape(name), middle, floor - tall + 28, fill=look.quiet))
            left = middle - (len(stacks) * (_WIDE + _GAP) - _GAP) / 2
            for place, stack in enumerate(stacks):
                x = left + place * (_WIDE + _GAP)
                parts.append(svg.line(x, floor, x + _WIDE, floor, look.ink, 2))
                for height, block in enumerate(stack, start=1):
                    y = floor - height * _HIGH
                    fill = FILLS[block]
                    parts.append(svg.rectangle(x, y, _WIDE, _HIGH - 1, fill=fill, outline=_EDGE))
                    parts.append(svg.text(block, x + _WIDE / 2, y + 20, fill=_INK))
        high = top + -(-len(self.panels) // across) * tall
        return svg.document(parts, wide, high, description=self.description, paper=look.paper)

    def __repr__(self) -> str:
        return self.description

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        dark = replace(self, theme="dark").svg() if self.theme == "auto" else None
        return svg.image(self.svg(), self.description, dark=dark)


def draw_stacks(
    panels: Mapping[str, Sequence[Sequence[str]]], *, title: str = "", theme: str | None = None
) -> StackDrawing:
    """Worlds of blocks side by side, such as before and after a plan, three in a row.

    panels: caption → for each place of the table its stack, from the lowest block up, of colours in
        ``FILLS``; an empty stack is a free place, as in ``World.stacks`` of `attnlab.tasks.blocks`.
    title: stands above them, "" for none.
    """
    check_texts(title=title)
    found: dict[str, Stacks] = {}
    for name, stacks in check_mapping("panels", panels, _EXAMPLE).items():
        places = check_list(name, stacks)
        if not 1 <= len(places) <= MOST_PLACES:
            raise ValueError(f"{name!r} should have 1 to {MOST_PLACES} places, got {len(places)}")
        found[name] = tuple(tuple(check_names(name, stack)) for stack in places)
        for block in (block for stack in found[name] for block in stack):
            choose("colour", block, FILLS)
    if len(found) > MOST_PANELS:
        raise ValueError(f"at most {MOST_PANELS} panels can be seen, got {len(found)}")
    return StackDrawing(found, title, theme_name(theme))
