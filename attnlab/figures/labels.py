"""Tokens as labels: visible and escaped.

A token may be a newline, a lone space, a zero-width mark, a right-to-left override or a piece of
HTML. In a label each must be visible and must not be interpreted: plotly reads a subset of HTML and
TeX between dollars, and a page reads all of HTML.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

from attnlab.core.markup import printable

LONGEST = 12
MOST_TICKS = 40
_SIGNS = {" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡", "\u00a0": "⍽"}
_INVISIBLE = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
_RIGHT_TO_LEFT = {"R", "AL", "AN"}


def visible(token: Any, longest: int = LONGEST) -> str:
    """A token as one short line of printable text, at most ``longest`` characters long.

    Spaces and line ends become signs, invisible characters their code points, long tokens lose
    their end to an ellipsis. Right-to-left text is isolated so that it cannot reorder its
    neighbours.
    """
    text = _text(token)
    if not text:
        return "∅"
    parts: list[str] = []
    marks = 0
    for character in text:
        is_mark = unicodedata.category(character).startswith("M")
        marks = marks + 1 if is_mark else 0
        if marks <= 2:
            parts.append(_sign(character, alone=is_mark and not parts))
        if sum(map(len, parts)) > longest:
            return _isolated(_shortened(parts, longest))
    return _isolated("".join(parts))


def escaped(text: str) -> str:
    """Escape text for a plotly label, so that no tag, entity or TeX in it is interpreted."""
    text = printable(text)
    for character, entity in (("&", "&#38;"), ("<", "&#60;"), (">", "&#62;"), ("$", "&#36;")):
        text = text.replace(character, entity)
    return text


def labels(tokens: Sequence[Any]) -> list[str]:
    """Visible and escaped labels of tokens."""
    return [escaped(visible(token)) for token in tokens]


def sentence(title: str) -> str:
    """The title with a full stop added, unless it ends with a punctuation mark already."""
    return title if title.endswith((".", "!", "?")) else f"{title}."


def tick_step(count: int) -> int:
    """The step between labelled tokens that gives at most ``MOST_TICKS`` labels."""
    step = 1
    while -(-count // step) > MOST_TICKS:
        step = next(size for size in _nice_steps() if size > step)
    return step


def _nice_steps() -> list[int]:
    return [digit * 10**power for power in range(7) for digit in (1, 2, 5)]


def _text(token: Any) -> str:
    if isinstance(token, bytes):
        return "".join(chr(b) if 32 <= b < 127 else f"x{b:02X}" for b in token)
    return token if isinstance(token, str) else str(token)


def _sign(character: str, *, alone: bool) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if ord(character) < 32:
        return chr(0x2400 + ord(character))
    if unicodedata.category(character) in _INVISIBLE:
        return f"U+{ord(character):04X}"
    return "◌" + character if alone else character


def _shortened(parts: list[str], longest: int) -> str:
    kept = ""
    for part in parts:
        if len(kept) + len(part) > longest - 1:
            break
        kept += part
    return kept + "…"


def _isolated(text: str) -> str:
    if any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in text):
        return f"\u2068{text}\u2069"
    return text
