"""The colours of all figures: light, dark, and an ``auto`` that follows the page.

Perceptually even and safe for colour-blind readers: cividis for amounts, blue–white–vermillion for
signed amounts, four Okabe–Ito colours for categories. Those four are the ones that keep a contrast
of 3:1 on both papers, so a run has the same colour in every theme; the other Okabe–Ito colours fail
on white. Categories always differ in marker and dash too.

``auto`` draws with the light colours and carries a few CSS rules that replace each of them by its
dark counterpart where the page is dark. Where a page drops the rules, the figure stays light.
"""

import re
from dataclasses import dataclass, fields

from attnlab.core.suggest import choose

CIVIDIS = (
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
)
SIGNED = ("#0072b2", "#7fb4d6", "#f4f4f2", "#eaa678", "#d55e00")
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#808080")
GROUPS = (*SERIES[2:4], "#8a5a00")  # of nodes; blue and orange say what a model does with them
MARKERS = ("circle", "diamond", "square", "triangle-up", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
QUERY, KEY = (SERIES[0], MARKERS[0]), (SERIES[1], MARKERS[1])
# Background and lines of the hatching of masked pairs.
HATCHING = {
    "light": ("#f2f3f4", "#9a9ea3"),
    "dark": ("#20242b", "#6d757f"),
    "auto": ("#f2f3f4", "#9a9ea3"),
}
HATCHING_START = "data:image/svg+xml,%3Csvg id=%22hatching"
MONO = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Theme:
    """The colours that differ between light and dark.

    The light ones are deliberately unusual shades: ``auto`` finds them on a page by their value.
    """

    paper: str
    panel: str
    ink: str
    quiet: str
    grid: str


LIGHT = Theme(paper="#fefefd", panel="#f6f7f9", ink="#1f2329", quiet="#57606b", grid="#d7dde3")
DARK = Theme(paper="#16181d", panel="#20242b", ink="#e6edf2", quiet="#a3adb8", grid="#3a414b")
THEMES = {"light": LIGHT, "dark": DARK, "auto": LIGHT}
_HEX = re.compile("#[0-9a-fA-F]{6}")
_chosen = "auto"


def use_theme(name: str) -> None:
    """Set the theme of all figures made from now on: "light", "dark" or "auto"."""
    global _chosen
    choose("theme", name, THEMES)
    _chosen = name


def theme_name(name: str | None = None) -> str:
    """``name``, or the theme set by ``use_theme`` where it is None."""
    choose("theme", _chosen if name is None else name, THEMES)
    return _chosen if name is None else name


def colours(name: str) -> Theme:
    return choose("theme", name, THEMES)


def contrast(first: str, second: str) -> float:
    """The WCAG contrast ratio of two ``#rrggbb`` colours, from 1 (the same) to 21."""
    dim, bright = sorted((_luminance(first), _luminance(second)))
    return (bright + 0.05) / (dim + 0.05)


def rgb(colour: str) -> tuple[int, int, int]:
    if not isinstance(colour, str) or not _HEX.fullmatch(colour):
        raise ValueError(f"a colour should be text such as '#0072b2', got {colour!r}")
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def blend(scale: tuple[str, ...], share: float) -> str:
    """The colour at ``share`` (0 to 1) of an evenly spaced scale."""
    place = min(max(share, 0.0), 1.0) * (len(scale) - 1)
    left = min(int(place), len(scale) - 2)
    pairs = zip(rgb(scale[left]), rgb(scale[left + 1]), strict=True)
    mixed = (round(a + (b - a) * (place - left)) for a, b in pairs)
    return "#" + "".join(f"{value:02x}" for value in mixed)


DARK_PAGES = ":is([data-jp-theme-light=false],.vscode-dark,html[theme=dark])"
"""The CSS selector of what stands on a dark page."""


def auto_css() -> str:
    """CSS that turns light figures dark on a dark page (JupyterLab, VS Code, Colab)."""
    return _rules(DARK_PAGES)


def auto_css_of_browser() -> str:
    """The styles of a standalone page, which follows the reader's system."""
    body = f"body{{background:{DARK.paper};color:{DARK.ink}}}"
    return f"@media(prefers-color-scheme:dark){{{body}{_rules('body')}}}"


def _rules(page: str) -> str:
    # CSS cannot reach the colours inside the hatching, which is an image: it is inverted.
    hatching = f'{page} [*|href^="{HATCHING_START}"]{{filter:invert(1)}}'
    return "".join(_swap(page, *pair) for pair in _pairs()) + hatching


def _pairs() -> list[tuple[str, str]]:
    return [(getattr(LIGHT, f.name), getattr(DARK, f.name)) for f in fields(Theme)]


def _swap(page: str, light: str, dark: str) -> str:
    # plotly writes style="fill: rgb(…)"; our own SVG writes fill="#…". Both are looked for.
    triple = "rgb({}, {}, {})".format(*rgb(light))
    return (
        f'{page} :is([style*="fill: {triple}"],[fill="{light}"]){{fill:{dark}!important}}'
        f'{page} :is([style*="stroke: {triple}"],[stroke="{light}"]){{stroke:{dark}!important}}'
        f'{page} [style*="background: {triple}"]{{background:{dark}!important}}'
    )


def _luminance(colour: str) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(value) for value in rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
