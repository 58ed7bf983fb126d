import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.figures.labels import LONGEST, MOST_TICKS, escaped, labels, tick_step, visible


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("cat", "cat"),
        (" cat", "␣cat"),
        ("\n", "↵"),
        ("\t", "⇥"),
        (" ", "␣"),
        ("", "∅"),
        ("\x00", "␀"),
        ("\x1b", "␛"),
        ("\u200b", "U+200B"),
        ("\u202e", "U+202E"),
        ("\ufeff", "U+FEFF"),
        ("\u0301", "◌\u0301"),
        ("a" + "\u0301" * 50, "a\u0301\u0301"),
        ("שלום", "\u2068שלום\u2069"),
        (7, "7"),
        (b"a\xc3", "axC3"),
        ("x" * 500, "x" * (LONGEST - 1) + "…"),
        ("\ud800", "U+D800"),
    ],
)
def test_tokens_are_seen_for_what_they_are(token, shown):
    assert visible(token) == shown


def test_markup_and_tex_are_shown_and_not_read():
    assert labels(["<b>"]) == ["&#60;b&#62;"]
    assert labels(["&lt;"]) == ["&#38;lt;"]
    assert labels(["$x$"]) == ["&#36;x&#36;"]


@given(st.text(max_size=40))
def test_any_text_is_short_printable_and_harmless(text):
    shown = visible(text)
    assert 0 < len(shown) <= LONGEST + 2
    assert all(c.isprintable() or c in "\u2068\u2069" for c in shown)
    label = escaped(shown)
    assert not set("<>$") & set(label)
    assert html.unescape(label) == shown


@pytest.mark.parametrize(("count", "step"), [(1, 1), (40, 1), (41, 2), (81, 5), (201, 10)])
def test_long_axes_thin_their_labels(count, step):
    assert tick_step(count) == step
    assert -(-count // step) <= MOST_TICKS
