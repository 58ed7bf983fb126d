"""Scores of documents: by hand, and the distance of trees against all ways to match them."""

import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.structures.json_tokens import read, written
from attnlab.systems import document_scores
from attnlab.systems.document_scores import field_f1, fields, text_edits, tree_score

MENU = {"menu": [{"name": "tea", "count": 2}, {"name": "milk"}], "total": "3.50"}


def test_fields_by_hand():
    wanted = [("menu.name", "tea"), ("menu.count", "2"), ("menu.name", "milk"), ("total", "3.50")]
    assert sorted(fields(MENU)) == sorted(wanted)
    assert fields({"a": ["", " x ", {}], "b": {"d": ""}, "c": []}) == [("a", "x")]
    assert fields({"a": None, "b": [True, False, 2.5]}) == [
        ("a", "null"), ("b", "true"), ("b", "false"), ("b", "2.5"),
    ]  # fmt: skip
    assert fields([{"a": "x"}, {"a": "y"}]) == [("a", "x"), ("a", "y")]


def test_f1_counts_fields_of_all_documents_together():
    assert field_f1([MENU], [MENU]) == 1
    assert field_f1([{"a": "x", "b": "y"}, {}], [{"a": "x", "b": "z"}, {"c": "1"}]) == 2 / 5
    assert field_f1([{"a": ["x", "x"]}], [{"a": "x"}]) == pytest.approx(2 / 3)
    assert field_f1([{"a": ["x", "x"]}], [{"a": ["x", "x"]}]) == 1
    assert field_f1([{"b": "x"}], [{"a": "x"}]) == 0
    assert field_f1([{"a": ["x", "y"]}], [{"a": ["y", "x"]}]) == 1


@pytest.mark.parametrize(
    ("written", "right", "score"),
    [
        ({"a": "3.50"}, {"a": "3.50"}, 1),
        ({"a": "3.51"}, {"a": "3.50"}, 4 / 5),
        ({}, {"a": "3.50"}, 0),
        ({"b": "3.50"}, {"a": "3.50"}, 4 / 5),
        ({"a": "3.50", "b": "tea"}, {"a": "3.50"}, 1 / 5),
        ({"a": "3.50"}, {"a": "3.50", "b": "tea"}, 5 / 9),
        ({"text_sequence": "x" * 50}, {"a": "3.50"}, 0),
        ({"b": "tea", "a": 1}, {"a": "1", "b": " tea"}, 1),
        ({"m": [{"a": "x"}]}, {"m": [{"a": "x"}, {"a": "yz"}]}, 4 / 8),
        ({"a": "true", "b": "null"}, {"a": True, "b": None}, 1),
    ],
)
def test_tree_scores_by_hand(written, right, score):
    assert tree_score(written, right) == pytest.approx(score)


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text("ab .1é", max_size=4)


@st.composite
def json_documents(draw, used=frozenset()):
    """What can be written: no key inside itself, and lists of objects or of all else."""
    keys = draw(st.lists(st.sampled_from("uvwxyz").filter(lambda key: key not in used), max_size=3,
                         unique=True))  # fmt: skip
    found = {}
    for key in keys:
        simple = VALUES | TEXTS
        inner = json_documents(used | {key}) if len(used) < 2 else simple
        lists = st.lists(inner, max_size=3) | st.lists(simple, max_size=3)
        found[key] = draw(st.one_of(simple, inner, lists))
    return found


@settings(max_examples=100, deadline=None)
@given(json_documents())
def test_a_document_that_is_written_as_it_should_be_has_all_scores_1(document):
    found = read(written(document))
    assert Counter(fields(found)) == Counter(fields(document))
    if fields(document):
        assert field_f1([found], [document]) == 1
        assert tree_score(found, document) == 1


DOCUMENTS = st.recursive(
    st.text("ab", min_size=1, max_size=2),
    lambda inner: (
        st.dictionaries(st.sampled_from("xy"), inner, max_size=2)
        | st.lists(
            st.dictionaries(st.sampled_from("xy"), inner, min_size=1), min_size=2, max_size=2
        )
    ),
    max_leaves=2,
)
OBJECTS = st.dictionaries(st.sampled_from("xy"), DOCUMENTS, max_size=2)


def in_order(node, found=None, above=()):
    """The nodes, children first, each with those above it."""
    found = [] if found is None else found
    for child in node.children:
        in_order(child, found, (*above, id(node)))
    found.append((node, frozenset(above)))
    return found


def cheapest_matching(one, other):
    """By trying every set of pairs that keeps order and who stands above whom."""
    left, right = in_order(one), in_order(other)
    whole = sum(node.cost for node, _ in (*left, *right))

    def cost_of_pair(a, b):
        if a.leaf != b.leaf:
            change = a.cost + b.cost
        else:
            change = text_edits(a.name, b.name) if a.leaf else int(a.name != b.name)
        return change - a.cost - b.cost

    def fits(pairs, i, j):
        return all(
            (id(left[i][0]) in left[k][1]) == (id(right[j][0]) in right[m][1]) for k, m in pairs
        )

    def best(i, j, pairs):
        if i == len(left):
            return 0
        found = best(i + 1, j, pairs)
        for k in range(j, len(right)):
            if fits(pairs, i, k):
                gain = cost_of_pair(left[i][0], right[k][0])
                found = min(found, gain + best(i + 1, k + 1, [*pairs, (i, k)]))
        return found

    return whole + best(0, 0, [])


@settings(max_examples=40, deadline=None)
@given(OBJECTS, OBJECTS)
def test_the_distance_is_that_of_the_cheapest_matching(one, other):
    trees = [document_scores._tree("", document_scores._normalised(each)) for each in (one, other)]
    assert document_scores._edits(*trees) == cheapest_matching(*trees)


def test_edits_of_texts_by_hand():
    words = ["", "tea", "team", "meat", "cheese", "chess"]
    assert [text_edits(a, b) for a, b in pairwise(words)] == [3, 1, 2, 5, 2]
    assert text_edits("tea", "tea") == 0


def test_what_has_no_score_is_refused():
    with pytest.raises(ValueError, match="needs the right one, got 1 and 2"):
        field_f1([{}], [{}, {}])
    with pytest.raises(ValueError, match="F1 is not defined"):
        field_f1([{}], [{"a": ""}])
    with pytest.raises(ValueError, match="the right document holds no field"):
        tree_score({"a": "x"}, {"a": []})


def test_without_apted_a_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "apted", None)
    with pytest.raises(ImportError, match=r"needs the package apted.*attnlab\[documents\]"):
        tree_score({"a": "x"}, {"a": "y"})
    assert field_f1([{"a": "x"}], [{"a": "x"}]) == 1
