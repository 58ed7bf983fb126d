"""Text that is written into HTML or SVG."""

import html
import re

_UNWRITABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


_UNSEEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")


def escape(text: str, quote: bool = True) -> str:
    """``text`` as it may stand in HTML and in XML, inside quotes too."""
    return html.escape(printable(text), quote)


def printable(text: str) -> str:
    """With an escape such as ``\\x07`` for what XML does not know: control characters, and lone
    surrogates, which can be typed but not sent as UTF-8."""
    return _UNWRITABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def legible(text: str) -> str:
    """``printable`` text, with an escape also for marks without a width, and for those that set the
    direction of writing, which would reorder the text around them."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], printable(text))
