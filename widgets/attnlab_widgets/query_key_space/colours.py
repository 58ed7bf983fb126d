"""The colours of a query-key space's points, as its page has them: for the still picture.

``src/lib/colouring.js`` and ``src/lib/tokens.js`` hold the same rules for the page.
"""

import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.figures.theme import blend
from attnlab_widgets.query_key_space.bytes import NORM_STEPS

RAMPS = {
    "light": (("#7fc0e8", "#0072b2", "#0a2a4a"), ("#f7ab73", "#d55e00", "#5a2400")),
    "dark": (("#255f8c", "#56b4e9", "#e2f3ff"), ("#8f4814", "#f08a3c", "#ffe9d2")),
}
FEW = {
    "light": (
        *("#0072b2", "#d55e00", "#009e73", "#b0568f", "#8a5a00"),
        *("#45b0e6", "#5a4fcf", "#c79a00", "#9c1f4a", "#00594c"),
    ),
    "dark": (
        *("#56b4e9", "#f08a3c", "#2ec49a", "#e39cc6", "#d9a441"),
        *("#9fd8ff", "#a79cff", "#f0e06a", "#ff8fab", "#8fe0d2"),
    ),
}
OTHERS = {"light": "#a3aab2", "dark": "#646d78"}
KINDS = ("word", "piece of a word", "number", "punctuation", "space", "special")
TOKENS = 8
_SHADES = 10  # of a scale in the still, which keeps it small
_SPACE = re.compile(r"^[\s␣↵␍⇥⍽ĠĊ▁]*$")
_SPECIAL = re.compile(r"^(<[^<>\s]{1,24}>|\[[A-Z0-9_]{1,24}\]|<\|[^|]*\|>)$")
_START = re.compile(r"^[\s␣Ġ▁]+")


@dataclass
class Colouring:
    """The palette, each point's place in it (queries, then keys), and (name, colour) to explain."""

    palette: list[str]
    places: tuple[np.ndarray, np.ndarray]
    legend: list[tuple[str, str]]


@dataclass
class _Set:
    """The tokens of one side."""

    texts: list[str]
    short: list[str]
    text: np.ndarray
    sequence: np.ndarray
    position: np.ndarray
    classes: tuple[list[str], np.ndarray] | None

    @property
    def counts(self) -> np.ndarray:
        return np.bincount(self.text, minlength=len(self.texts))


def colouring(widget: Any, maps: dict[str, Any], head: dict[str, Any], name: str) -> Colouring:
    """The colours of one head under the chosen colour; ``name`` is "light" or "dark"."""
    space, data = widget._space, widget._data
    layer = space["points"][maps["points"]]["layers"][head["is"][0]]
    q, k = (_tokens(data, space["tokens"][layer[side]]) for side in "qk")
    mode = widget.colour
    if mode in ("norm", "value_norm"):
        return _norms(data, layer["heads"][str(head["is"][1])]["norms"], q, k, mode, name)
    if mode == "modulo" and widget.modulo <= len(FEW[name]):
        few = [str(rest) for rest in range(widget.modulo)]
        return _few(few, [one.position % widget.modulo for one in (q, k)], name)
    if mode == "modulo":
        return _scaled([one.position % widget.modulo for one in (q, k)], name, "position modulo")
    if mode == "position":
        return _scaled([one.position for one in (q, k)], name, "position")
    if mode == "frequency":
        return _scaled([np.log10(one.counts[one.text]) for one in (q, k)], name, "rare to frequent")
    if mode == "kind":
        return _few(list(KINDS), [kinds(one.texts, one) for one in (q, k)], name)
    if mode == "class" and q.classes is not None and k.classes is not None:
        return _few(q.classes[0], [q.classes[1], k.classes[1]], name)
    if mode == "token":
        order = np.argsort(-q.counts, kind="stable")[:TOKENS]
        names = [q.short[at] for at in order]
        places = [_placed(names, one) for one in (q, k)]
        return _few(names, places, name)
    sides = [np.zeros(len(q.text), int), np.ones(len(k.text), int)]
    return _few(["query", "key"], sides, name)


def _tokens(data: bytes, packed: dict[str, Any]) -> _Set:
    n, texts = packed["n"], packed["texts"]
    block = _inflated(data, packed["at"])
    wide = np.uint32 if len(texts) > 65535 else np.uint16
    text = np.frombuffer(block, wide, n)
    others = np.frombuffer(block, np.uint16, 2 * n, text.nbytes)
    labels = packed["labels"]
    classes = None
    if labels is not None:
        at = np.frombuffer(_inflated(data, labels["at"]), np.uint16, n)
        classes = (list(labels["names"]), at.astype(int))
    whole = [one[-1] for one in texts]
    return _Set(whole, [one[0] for one in texts], text, others[:n], others[n:], classes)


def _inflated(data: bytes, place: list[int]) -> bytes:
    return zlib.decompress(data[place[0] : place[0] + place[1]])


def _placed(names: list[str], one: _Set) -> np.ndarray:
    places = [names.index(short) if short in names else len(names) for short in one.short]
    return np.array(places)[one.text]


def _few(names: list[str], places: list[np.ndarray], theme: str) -> Colouring:
    """A colour for each of a few names; grey for all others."""
    most = min(len(names), len(FEW[theme]))
    shown = tuple(np.minimum(one, most) for one in places)
    used = sorted({int(at) for one in shown for at in np.unique(one)})
    palette = [*FEW[theme][:most], OTHERS[theme]]
    legend = [(names[at] if at < most else "others", palette[at]) for at in used]
    return Colouring(palette, (shown[0], shown[1]), legend)


def _scaled(values: list[np.ndarray], theme: str, unit: str) -> Colouring:
    low = min(float(one.min()) for one in values)
    span = (max(float(one.max()) for one in values) - low) or 1.0
    return _ramped([(one - low) / span for one in values], theme, unit)


def _ramped(shares: list[np.ndarray | None], theme: str, unit: str) -> Colouring:
    """Shades of two ramps, queries and keys; grey for a side without values."""
    palette, places, legend = [OTHERS[theme]], [], []
    for share, ramp, side in zip(shares, RAMPS[theme], ("queries", "keys"), strict=True):
        if share is None:
            places.append(np.zeros(1, int))
            continue
        places.append(len(palette) + np.rint((_SHADES - 1) * share).astype(int))
        shades = [blend(ramp, at / (_SHADES - 1)) for at in range(_SHADES)]
        palette += shades
        legend += [(f"{side}: low {unit}", shades[0]), ("high", shades[-1])]
    return Colouring(palette, (places[0], places[1]), legend)


def _norms(
    data: bytes, packed: dict[str, Any], q: _Set, k: _Set, mode: str, theme: str
) -> Colouring:
    n, m = len(q.text), len(k.text)
    steps = np.frombuffer(_inflated(data, packed["at"]), np.uint8) / NORM_STEPS
    queries, keys, values = steps[:n], steps[n : n + m], steps[n + m : n + 2 * m]
    if mode == "norm":
        return _ramped([queries, keys], theme, "norm")
    found = _ramped([None, values], theme, "norm of the value")
    return Colouring(found.palette, (np.zeros(n, int), found.places[1]), found.legend)


def kinds(texts: list[str], one: Any) -> np.ndarray:
    """The kind of every token: its place in ``KINDS``."""
    marks = _convention(texts)
    found = np.zeros(len(one.text), int)
    order = np.lexsort((np.arange(len(one.text)), one.sequence))
    before, of = None, None
    for row in order:
        text = texts[one.text[row]]
        before = before if one.sequence[row] == of else None
        found[row] = _kind(text, before, marks)
        before, of = text, one.sequence[row]
    return found


def _convention(texts: list[str]) -> str:
    if any(re.match(r"^##.", text) for text in texts):
        return "piece"
    starts = sum(bool(_START.match(text)) and not _SPACE.match(text) for text in texts)
    return "start" if starts > 0.02 * len(texts) else ""


def _kind(text: str, before: str | None, marks: str) -> int:
    if _SPECIAL.match(text):
        return 5
    if _SPACE.match(text):
        return 4
    word = re.sub(r"^##", "", _START.sub("", text))
    if re.fullmatch(r"[\d.,]*\d[\d.,]*", word):
        return 2
    if not any(sign.isalnum() for sign in word):
        return 3
    if marks == "piece":
        return int(text.startswith("##"))
    goes_on = before is not None and before[-1:].isalnum() and not _START.match(text)
    return int(marks == "start" and goes_on)
