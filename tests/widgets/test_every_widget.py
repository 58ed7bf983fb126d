"""What holds of every widget without a browser: its still picture, its saved page, what it refuses.

tests/browser/test_every_widget.py asks the rest on a page.
"""

import importlib
import json
import math
import pkgutil
import re
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import attnlab_widgets
import numpy as np
import pytest
import traitlets
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.base import LIVE, MOST_BYTES, BaseWidget, HasStill, own_names
from attnlab_widgets.legend import SaysUntrained
from attnlab_widgets.training_lab import TrainingLab
from PIL import Image

from tests.widgets.examples import EXAMPLES, HOSTILE, HOSTILE_EXAMPLES, PAGES


def below(kind: type) -> set[type]:
    return {kind}.union(*map(below, kind.__subclasses__()))


MADE: dict[Any, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def _closed_at_the_end() -> Iterator[None]:
    """What still measures in a thread of its own has come to its end."""
    yield
    for widget in MADE.values():
        getattr(widget, "wait", bool)()
        widget.close()


def made(kind: Any) -> Any:
    """The example, made once: the tests at the end of this file leave it in another state."""
    if kind not in MADE:
        MADE[kind] = EXAMPLES[kind]()
    return MADE[kind]


def name_of(kind: type) -> str:
    return kind.__name__


def test_every_widget_has_an_example_here() -> None:
    for module in pkgutil.walk_packages(attnlab_widgets.__path__, "attnlab_widgets."):
        importlib.import_module(module.name)
    ours = {kind.__name__ for kind in below(HasStill) if kind.__module__.startswith("attnlab_")}
    here = {kind.__name__ for kind in (*EXAMPLES, HasStill, BaseWidget, SaysUntrained, TrainingLab)}
    assert ours == here, "name yours in attnlab_widgets/__init__.py"


# The still picture


@pytest.mark.parametrize("kind", EXAMPLES, ids=name_of)
def test_the_stored_output_has_a_picture_of_the_right_size(kind: Any) -> None:
    widget = made(kind)
    data, metadata = widget._repr_mimebundle_()
    drawing, size = widget.still(), metadata["image/png"]
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"}
    pixels = b64decode(data["image/png"])
    assert len(pixels) <= MOST_BYTES
    image = Image.open(BytesIO(pixels))
    assert any(
        image.size == (round(finer * drawing.wide), round(finer * size["height"]))
        for finer in (2, 1.5, 1)
    )
    assert drawing.wide == size["width"]
    assert drawing.high < size["height"] < 800, "one line more, and it fits a screen"
    assert len(image.convert("RGB").getcolors(256)) > 8
    assert data["text/plain"] == size["alt"] == repr(widget)
    assert LIVE in drawing.with_line(LIVE).svg("")
    assert LIVE not in drawing.svg("")


def test_a_widget_without_a_picture_is_stored_as_before(tmp_path: Any) -> None:
    widget = EXAMPLES[AttentionView]()
    widget.still = lambda: None  # type: ignore[method-assign]
    data, *_ = widget._repr_mimebundle_()
    assert "image/png" not in data
    with pytest.raises(TypeError, match="AttentionView has no still picture"):
        widget.save_png(tmp_path / "a.png")


# A saved page


@pytest.mark.parametrize("kind", PAGES, ids=name_of)
def test_a_saved_page_is_alone_and_holds_the_state(kind: Any, tmp_path: Path) -> None:
    widget = made(kind)
    page = widget.save_html(tmp_path / "page.html", title="<b>&").read_text("utf-8")
    assert "<title>&lt;b&gt;&amp;</title>" in page
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)|@import|url\((?!#)", page)
    assert page.count("<script") == page.count("</script") == 2
    state = json.loads(re.search(r"data-attnlab-state>(.*?)</script>", page, re.DOTALL)[1])  # type: ignore[index]
    assert not {"_esm", "layout", "_model_module"} & set(state)
    for name in (name for name in own_names(widget.keys) if not name.startswith("_")):
        value = getattr(widget, name)
        if not isinstance(value, bytes):
            assert state[name] == json.loads(json.dumps(value)), name
    with pytest.raises(ValueError, match=r"end in \.html"):
        widget.save_html(tmp_path / "page.pdf")


@pytest.mark.parametrize("kind", HOSTILE_EXAMPLES, ids=name_of)
def test_hostile_words_stay_text(kind: Any, tmp_path: Path) -> None:
    widget = HOSTILE_EXAMPLES[kind](HOSTILE)
    page = widget.save_html(tmp_path / "page.html").read_text("utf-8")
    assert page.count("<script") == page.count("</script") == 2
    picture = widget._must_draw().svg(repr(widget))
    for text in (page, picture):
        assert "<img src" not in text
        assert "<script>document" not in text
    assert "\x07" not in picture


def can_be_sent(widget: BaseWidget) -> bool:
    state = json.dumps(widget.get_state(), ensure_ascii=False, default=lambda _: None)
    return bool(state.encode("utf-8"))


@pytest.mark.parametrize("kind", HOSTILE_EXAMPLES, ids=name_of)
def test_half_of_a_surrogate_pair_is_sent_as_an_escape_or_refused(kind: Any) -> None:
    widget, refusal = None, ""
    try:
        widget = HOSTILE_EXAMPLES[kind]((*HOSTILE[:-1], "a\ud800"))
    except (TypeError, ValueError) as error:
        refusal = str(error)
    assert "surrogate" in refusal if widget is None else can_be_sent(widget)


def test_half_of_a_surrogate_pair_in_a_name_is_sent_as_an_escape() -> None:
    maps = np.full((1, 2, 3, 3), 1 / 3, "float32")
    view = AttentionView(maps, ["a", "b", "c"], compare=maps, names=("x\ud800", "y"))
    assert can_be_sent(view)
    assert r"x\ud800" in json.dumps(view.get_state("_recording")).replace(r"\\", "\\")
    assert view.get_state("theme") == {"theme": "auto"}


# What may be set

WRONG: list[Any] = [None, True, -1, 2**70, math.nan, "", "no", [None], [-1, 99999], {}, {"a": None}]
PLACES = [{"vectors": one} for one in (*WRONG, [0, None, 0, 0], [0, 0, 0, 2**70], [1.5, 0, 0, 0])]
ASKED = [*WRONG, *PLACES, *({"kind": one, "name": one} for one in WRONG)]
PRIVATE = {"_esm", "_css", "_anywidget_id", "layout"}


def refusal(widget: Any, name: str, value: Any) -> str:
    """What is said where the value cannot be set; empty where it can."""
    try:
        setattr(widget, name, value)
    except traitlets.TraitError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", PAGES, ids=name_of)
def test_what_cannot_be_set_is_refused_in_a_sentence(kind: Any) -> None:
    """Whatever is accepted can be sent to the page, and an object never can."""
    widget = made(kind)
    for name in (name for name in own_names(widget.keys) if not name.startswith("_")):
        for value in (object(), *WRONG):
            before = getattr(widget, name)
            if refused := refusal(widget, name, value):
                assert len(refused) > 20, (name, value)
                assert getattr(widget, name) == before, (name, value)
            else:
                assert type(value) is not object, name
                json.dumps(getattr(widget, name), default=len)


@pytest.mark.parametrize("kind", PAGES, ids=name_of)
def test_wrong_messages_change_nothing(kind: Any) -> None:
    """Whatever a page sends, a widget neither raises nor changes into what it cannot draw."""
    widget = made(kind)
    names = sorted(set(widget.keys) - PRIVATE)
    for value in WRONG:
        for name in names:
            widget.set_state({name: value})
    for message in ASKED:
        for told in widget._msg_callbacks.callbacks:
            told(widget, message, [])
    widget.set_state(None)
    assert repr(widget)
    assert widget.still().svg("a picture").endswith("</svg>")
