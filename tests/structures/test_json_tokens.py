"""JSON as tokens: what comes back, each loss by name, and what cannot be written."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.structures.json_tokens import TEXT, inverts, read, written

TEXTS = st.text(st.characters(blacklist_characters="<>"), min_size=1, max_size=5)
KEYS = st.text(st.characters(blacklist_characters="<>"), min_size=1, max_size=3)


@st.composite
def kept_documents(draw, used=frozenset()):
    """Objects that hold nothing that is lost: no key inside itself, no list of one."""
    keys = draw(st.lists(KEYS.filter(lambda key: key not in used), min_size=1, max_size=3,
                         unique=True))  # fmt: skip
    found = {}
    for key in keys:
        inner = kept_documents(used | {key}) if len(used) < 2 else TEXTS
        two = {"min_size": 2, "max_size": 3}
        found[key] = draw(st.one_of(TEXTS, inner, st.lists(TEXTS, **two), st.lists(inner, **two)))
    return found


@settings(max_examples=40, deadline=None)
@given(kept_documents())
def test_a_document_comes_back(document):
    assert read(written(document)) == document
    assert read(written(document, reverse=False)) == document
    assert inverts(document)


def test_a_document_by_hand():
    menu = {"item": "tea", "price": "3.5", "with": [{"a": "x"}, {"a": "yz"}]}
    assert "".join(written(menu)) == (
        "<s_with><s_a>x</s_a><sep/><s_a>yz</s_a></s_with><s_price>3.5</s_price><s_item>tea</s_item>"
    )
    assert written({"b": "tea"}) == ["<s_b>", "t", "e", "a", "</s_b>"]
    both = {"b": "1", "c": "2", "a": "3"}
    assert [token for token in written(both) if token in ("1", "2", "3")] == ["2", "1", "3"]
    in_order = written(both, reverse=False)
    assert [token for token in in_order if token in ("1", "2", "3")] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"a": ["x"]}, {"a": "x"}),
        ({"a": [{"b": "x"}]}, {"a": {"b": "x"}}),
        ({"a": 3, "b": 2.5}, {"a": "3", "b": "2.5"}),
        ({"a": None, "b": True}, {"a": "null", "b": "true"}),
        ({"a": {}, "b": "x"}, {"a": "", "b": "x"}),
        ({"a": []}, {"a": ""}),
        ({"a": [{}, {"b": "x"}, {"b": "y"}]}, {"a": [{"b": "x"}, {"b": "y"}]}),
        ({"a": [{"b": "x"}, {}]}, {"a": {"b": "x"}}),
        ({"a": {"a": "x"}}, {"a": "<s_a>x"}),
        ({}, {TEXT: ""}),
        ("tea", {TEXT: "tea"}),
    ],
)
def test_what_does_not_come_back(document, found):
    assert read(written(document)) == found
    assert not inverts(document)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (["<s_a>", "x"], {TEXT: "<s_a>x"}),
        (["<s_a>", "x", "<s_b>", "y", "</s_b>"], {"b": "y"}),
        (["</s_a>", "x", "<s_b>", "y", "</s_b>"], {"b": "y"}),
        (["<s_a>", "<s_b>", "y", "</s_a>"], {"a": "<s_b>y"}),
        (["<s_a>", "x", "<sep/>", "</s_a>"], {"a": ["x", ""]}),
        (["x", "y"], {TEXT: "xy"}),
        ([], {TEXT: ""}),
    ],
)
def test_what_a_model_leaves_open_is_left_out(text, found):
    assert read(text) == found


def test_plain_text_is_a_document_of_its_own():
    assert written({TEXT: "tea"}) == ["t", "e", "a"]
    assert inverts({TEXT: "tea"})
    assert inverts({"a": {TEXT: "tea"}})


def nested(depth):
    document = "x"
    for level in range(depth):
        document = {f"k{level % 2}{level}": document}
    return document


def test_deep_documents_are_read_and_deeper_ones_refused():
    assert inverts(nested(100))
    with pytest.raises(ValueError, match="at most 100 values deep"):
        written(nested(102))
    tokens = [f"<s_{level}>" for level in range(3000)]
    tokens += [f"</s_{level}>" for level in reversed(range(3000))]
    assert isinstance(read(tokens), dict)


@pytest.mark.parametrize(
    ("document", "error", "sentence"),
    [
        ({1: "x"}, TypeError, "a key should be text, got 1, a int"),
        ({"": "x"}, ValueError, "not empty, got ''"),
        ({"a>b": "x"}, ValueError, "without '<' and '>'"),
        ({"a": [["x"]]}, ValueError, "a list inside a list cannot be written"),
        ({"a": ["x", {"b": "y"}]}, ValueError, "both objects and texts"),
        ({"a": "1<sep/>2"}, ValueError, "holds '<sep/>', which would be read"),
        ({"a": "<s_b>"}, ValueError, "holds '<s_b>'"),
        ({"a": math.nan}, ValueError, "JSON has no number nan"),
        ({"a": {1, 2}}, TypeError, "true, false and null, got a set"),
        ({"a": b"x"}, TypeError, "got a bytes"),
    ],
)
def test_what_cannot_be_written_is_refused(document, error, sentence):
    with pytest.raises(error, match=sentence):
        written(document)


def test_other_arguments_are_refused():
    with pytest.raises(TypeError, match="reverse should be True or False, got 1"):
        written({}, reverse=1)
    for tokens in ("<s_a>", [1, 2]):
        with pytest.raises(TypeError, match="tokens should be a list of texts"):
            read(tokens)


def test_what_json_writes_is_what_is_read():
    document = json.loads('{"total": {"tax": 0.5, "sum": [1, 2]}, "name": "ü ☕"}')
    assert read(written(document)) == {"total": {"tax": "0.5", "sum": ["1", "2"]}, "name": "ü ☕"}
