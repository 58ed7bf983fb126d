"""Whatever a page sends, a widget neither raises nor changes into a state that it cannot draw."""

import math
from typing import Any

import pytest

from tests.widgets.examples import EXAMPLES

WRONG: list[Any] = [None, True, -1, 2**70, math.nan, "", "no", [None], [-1, 99999], {}, {"a": None}]
PLACES = [{"vectors": one} for one in (*WRONG, [0, None, 0, 0], [0, 0, 0, 2**70], [1.5, 0, 0, 0])]
ASKED = [*WRONG, *PLACES, *({"kind": one, "name": one} for one in WRONG)]
PRIVATE = {"_esm", "_css", "_anywidget_id", "layout"}
KINDS = [kind for kind in EXAMPLES if "AnyWidget" in {base.__name__ for base in kind.__mro__}]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_wrong_messages_change_nothing(kind: type) -> None:
    widget = EXAMPLES[kind]()
    names = sorted(set(widget.keys) - PRIVATE)
    for value in WRONG:
        for name in names:
            widget.set_state({name: value})
    for message in ASKED:
        for told in widget._msg_callbacks.callbacks:
            told(widget, message, [])
    widget.set_state(None)  # type: ignore[attr-defined]
    assert repr(widget)
    assert widget.still().svg("a picture").endswith("</svg>")
