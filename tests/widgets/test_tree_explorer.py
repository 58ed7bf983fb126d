"""The tree explorer in Python: its tables, what may be set, what is refused, the still picture."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from attnlab_widgets.tree_explorer import TreeExplorer

from attnlab.lens.tree_tables import MOST, Numbered, read
from attnlab.structures.tree import Tree
from tests.widgets.stored import assert_fresh, write

TREES = [
    "(S (X (Y b c)) a)",
    "(S (NP the dog) (VP chased (NP a cat)))",
    "(S a)",
    "(A (B (C (D one))))",
    "(S (NP (NP a b) c d) (VP (V e) (NP f (PP g h i))) j)",
    "(S (-LRB- -RRB- a-LRB-b) x)",
]


# ---- the equations by plain recursion, with words as their places: an oracle of its own


def places(tree: Tree, first: int = 0) -> tuple[Any, int]:
    """The tree as nested lists without labels, its leaves as numbers from the left."""
    if tree.is_leaf:
        return first, first + 1
    children = []
    for child in tree.children:
        one, first = places(child, first)
        children.append(one)
    return children, first


def words_of(place: Any) -> list[int]:
    return [place] if isinstance(place, int) else [j for one in place for j in words_of(one)]


def in_order(place: Any) -> list[Any]:
    """The phrases, each before those inside it."""
    if isinstance(place, int):
        return []
    return [place, *(phrase for one in place for phrase in in_order(one))]


def index_of(phrases: list[Any], phrase: Any) -> int:
    return next(i for i, one in enumerate(phrases) if one is phrase)


def branch_mean(place: Any, j: int, leaves: Any, values: Any, phrases: list[Any]) -> float:
    """Equation 6: the mean of leaf j and the phrases from ``place`` down to it."""

    def terms(at: Any) -> list[float]:
        if isinstance(at, int):
            return [leaves[at]]
        below = next(one for one in at if j in words_of(one))
        return [values[index_of(phrases, at)], *terms(below)]

    found = terms(place)
    return sum(found) / len(found)


def oracle(text: str, leaves: Any, values: Any, weights: Any) -> dict[str, Any]:
    whole, n = places(read(text))
    phrases = in_order(whole)
    below = [words_of(phrase) for phrase in phrases]
    hat = [
        [branch_mean(p, j, leaves, values, phrases) if j in b else None for j in range(n)]
        for p, b in zip(phrases, below, strict=True)
    ]
    s = [list(leaves)] + [
        [values[i] if j in b else None for j in range(n)] for i, b in enumerate(below)
    ]
    gathered = [
        sum(weights[j] * row[j] for j in b) / len(b) for row, b in zip(hat, below, strict=True)
    ]
    mask = [[key < n for key in range(n + len(phrases))] for _ in range(n)]
    for phrase, b in zip(phrases, below, strict=True):
        inside = in_order(phrase)
        mask.append([j in b for j in range(n)] + [any(one is p for one in inside) for p in phrases])
    return {"s": s, "hat": hat, "gathered": gathered, "mask": mask}


def numbers(text: str) -> dict[str, list[float]]:
    tree = Numbered(read(text))
    n, m = len(tree.leaves), len(tree.nodes)
    return {
        "leaf_values": [round(3 * math.cos(2 * j + 1), 3) for j in range(n)],
        "node_values": [round(-7 + 3.5 * i, 3) for i in range(m)],
        "weights": [round(0.25 + 0.5 * j, 3) for j in range(n)],
    }


@pytest.mark.parametrize("text", TREES)
def test_tables_are_those_of_the_equations(text: str) -> None:
    given = numbers(text)
    widget = TreeExplorer(text, **given)
    wanted = oracle(text, *given.values())

    def filled(rows: Any) -> Any:
        return [[0.0 if x is None else x for x in row] for row in rows]

    np.testing.assert_allclose(widget.interpolation, filled(wanted["s"]))
    np.testing.assert_allclose(widget.averages, filled(wanted["hat"]))
    np.testing.assert_allclose(widget.gathered, wanted["gathered"])
    assert widget.mask.tolist() == wanted["mask"]


def test_the_example_worked_by_hand() -> None:
    """The branch from the root to the second word: (2 + 10 + 20) / 3; the divisor is 3 words."""
    widget = TreeExplorer(
        ["S", "a", ["X", "b", "c"]],
        leaf_values=[1, 2, 3], node_values=[10, 20], weights=[1, 0.5, 2],
    )  # fmt: skip
    np.testing.assert_allclose(widget.averages, [[5.5, 32 / 3, 11], [0, 11, 11.5]])
    np.testing.assert_allclose(widget.gathered, [(5.5 + 16 / 3 + 22) / 3, 14.25])
    # A leaf attends to 3 leaves, the root to all 5, X to its words and itself.
    assert widget.mask.sum(1).tolist() == [3, 3, 3, 5, 3]


def test_a_value_of_zero_below_a_phrase_counts() -> None:
    """What is outside is decided by the tree: a zero inside stays part of the mean."""
    widget = TreeExplorer("(S (X a) b)", leaf_values=[6, 4], node_values=[3, 0])
    np.testing.assert_allclose(widget.averages, [[3, 3.5], [3, 0]])


# ---- text


@pytest.mark.parametrize("text", TREES)
def test_text_is_read_and_written(text: str) -> None:
    widget = TreeExplorer()
    widget.tree = f" (\n{text.replace(' (', '(').replace('(', ' ( ')}\n)"
    assert widget.tree == text, "on one line, without the treebank's outer bracket"
    assert TreeExplorer(read(text)).tree == TreeExplorer(read(text).nested()).tree == text


WRONG = [
    ("", "there is no tree in the text"),
    ("dog", "a tree needs at least one phrase: write (NP dog)"),
    ("the dog", "line 1, column 1: 'the' stands outside all brackets"),
    ("  (S a", "column 3: 1 bracket is never closed, and it was opened here; add ')'"),
    ("(S (NP a) (VP b)", "column 1: 1 bracket is never closed"),
    ("(S (NP a", "column 4: 2 brackets are never closed"),
    ("(S (NP) b)", "column 4: the node NP has no children"),
    ("(S (-LRB-) b)", "column 4: the node -LRB- has no children"),
    ("(S () b)", "column 4: this bracket is empty"),
    ("(S ((NP a)))", "column 4: the label is missing after this bracket: write (NP …)"),
    ("((NP a) b)", "column 1: the label is missing after this bracket: write (S …)"),
    ("(S a) don't", 'column 7: "don\'t" stands outside all brackets'),
    ("(S a))", "column 6: this bracket closes none"),
    ("(S a)(T b)", "column 6: a second tree begins here"),
    ("(S 𝒳 (", "column 6: 2 brackets are never closed"),
    (f"(S {'a ' * 25})", "at most 24 words can be drawn, this tree has 25"),
    (f"{'(S ' * 25}a{')' * 25}", "at most 24 phrases can be drawn, this tree has 25"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_text_that_is_no_tree_names_the_column(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        TreeExplorer(text)


def test_tokens_and_labels_of_any_kind_can_be_written() -> None:
    widget = TreeExplorer(["S", "x y", ["(", "-RRB-", ""]])
    assert widget.tree == "(S x␣y (-LRB- -RRB- ∅))"
    widget = TreeExplorer("(S (X a b) c)", tokens=[" the", "(", 7])
    assert widget.tree == "(S (X ␣the -LRB-) 7)"


# ---- what may be set


def test_a_new_tree_keeps_lists_that_fit() -> None:
    widget = TreeExplorer("(S (X a b) c)", weights=[3, 4, 5], node_values=[7, 8])
    widget.selected, widget.cell = 4, [1, 1]
    widget.tree = "(S a b c)"
    assert widget.weights == [3, 4, 5]
    assert widget.node_values == [10], "one phrase only: begun anew"
    assert (widget.selected, widget.cell) == (3, [0, 1])
    np.testing.assert_allclose(widget.averages, [[5.5, 6, 6.5]])
    widget.tree = "(S (X a b) c d)"
    assert (widget.selected, widget.cell) == (3, [0, 3]), "3 is now the fourth word"


def test_the_page_changes_tree_and_numbers_at_once() -> None:
    widget = TreeExplorer("(S a b)")
    widget.set_state(
        {"tree": "(S (X a) b c)", "leaf_values": [5, 6, 7], "node_values": [1, 2],
         "weights": [1, 2, 3], "selected": 4, "cell": [1, 0]}
    )  # fmt: skip
    assert (widget.leaf_values, widget.node_values, widget.weights) == (
        [5, 6, 7],
        [1, 2],
        [1, 2, 3],
    )
    assert (widget.selected, widget.cell) == (4, [1, 0])
    assert widget.gathered[1] == 3.5


def test_the_cell_follows_what_is_selected() -> None:
    widget = TreeExplorer("(S (X a b) (Y c d))")
    assert (widget.selected, widget.cell) == (4, [0, 3])
    widget.selected = 5
    assert widget.cell == [1, 0], "the first word of X, since the fourth is not below it"
    widget.selected = 1
    assert widget.cell == [1, 1], "X still, since the word is below it"
    widget.selected = 2
    assert widget.cell == [2, 2]
    widget.set_state({"selected": 4, "cell": [0, 1]})
    assert widget.cell == [0, 1], "chosen on the page, in the table"


def test_what_is_chosen_has_to_exist() -> None:
    widget = TreeExplorer("(S (X a b) c)")
    for name, value, said in (
        ("tree", "(S (X a b) c", "`tree`: line 1, column 1: 1 bracket is never closed"),
        ("tree", "dog", "`tree`: a tree needs at least one phrase"),
        ("selected", 5, "`selected` should be a word 0 … 2 or a phrase 3 … 4, got 5"),
        ("selected", -1, "`selected` should be a word 0 … 2"),
        ("cell", [2, 0], "`cell` should be [phrase, word], from [0, 0] to [1, 2], got [2, 0]"),
        ("cell", [0], "`cell` should be [phrase, word]"),
        ("step", "sum", "'step' trait"),
        ("step", "attention", '`step` can be "attention" only where attention was recorded'),
        ("shown", "trained", "shown"),
        ("layer", 1, "`layer` should be from 0 to 0, got 1"),
        ("head", -1, "`head` should be from 0 to 0, got -1"),
        ("weights", [1.0], "`weights` should hold a number for each of the 3 words, got 1"),
        (
            "node_values",
            [1.0, math.nan],
            "`node_values` should be a finite number, got nan",
        ),
    ):
        before = getattr(widget, name)
        with pytest.raises(traitlets.TraitError, match=re.escape(said)):
            setattr(widget, name, value)
        assert getattr(widget, name) == before


# ---- recorded attention


def recorded(widget: TreeExplorer, layers: int = 2, heads: int = 3) -> torch.Tensor:
    torch.manual_seed(0)
    count = len(widget.mask)
    scores = torch.randn(layers, heads, count, count)
    return scores.masked_fill(~torch.from_numpy(widget.mask), -math.inf).softmax(-1)


def test_the_page_gets_every_weight() -> None:
    plain = TreeExplorer("(S (X a b) c)")
    first, second = recorded(plain), recorded(plain, 1, 5).double()
    widget = TreeExplorer(plain.tree, attention={"trained": first, "untrained": second})
    assert (widget.step, widget.shown) == ("attention", "trained")
    sent = np.frombuffer(widget._data, "<f4")
    assert len(sent) == (2 * 3 + 5) * 25
    assert widget._shape == "3: 1 1 0 -1 0", "the page compares shapes by this text"
    for one, maps in zip(widget._maps, (first, second), strict=True):
        found = sent[one["at"] :][: maps.numel()].reshape(maps.shape)
        assert (one["layers"], one["heads"]) == maps.shape[:2]
        np.testing.assert_allclose(found[..., plain.mask], maps.numpy()[..., plain.mask], rtol=1e-6)
        assert np.isnan(found[..., ~plain.mask]).all(), "hatched: the model had the mask"
    widget.layer, widget.head = 1, 2
    np.testing.assert_allclose(widget.recorded[plain.mask], first[1, 2].numpy()[plain.mask], 1e-6)
    widget.shown = "untrained"
    assert (widget.layer, widget.head) == (0, 2)


def test_without_the_subtree_mask_no_weight_is_hatched() -> None:
    widget = TreeExplorer("(S a b)", attention={"full": torch.full((1, 1, 3, 3), 1 / 3)})
    assert np.isfinite(np.frombuffer(widget._data, "<f4")).all()


REFUSED = [
    ({}, "`attention` should name weights"),
    (torch.ones(1, 1, 3, 3) / 3, "`attention` should name weights"),
    (
        {"a": torch.ones(1, 3, 3) / 3},
        "`attention['a']` should have 4 axes (layers, heads, n+m, n+m), got 3",
    ),
    (
        {"a": torch.ones(1, 1, 3, 4) / 4},
        "`attention['a']` should be (layers, heads, 3, 3), the 2 leaves and",
    ),
    (
        {"a": torch.ones(1, 1, 3, 3)},
        "each row of `attention['a']` should add up to 1, got 3.000 to 3.000",
    ),
    (
        {"a": torch.tensor([[[[2.0, -1, 0]] * 3]])},
        "`attention['a']` should hold weights of at least 0",
    ),
    ({"a": torch.ones(200, 200, 3, 3) / 3}, "holds 360,000 weights"),
]


@pytest.mark.parametrize(("attention", "words"), REFUSED)
def test_attention_that_cannot_be_shown_is_refused(attention: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        TreeExplorer("(S a b)", attention=attention)


# ---- without widgets


def test_its_picture_has_the_numbers() -> None:
    widget = TreeExplorer(["S", "a", ["X", "b", "<b>"]])
    picture = widget.still().svg(repr(widget))
    assert "<svg" in picture
    assert "<b>" not in picture
    assert "X gathers 11.25 from b, &lt;b&gt;." in picture
    for number in ("5.5", "10.67", "11", "11.5"):
        assert f">{number}</text>" in picture
    assert repr(widget).startswith("TreeExplorer: (S a (X b <b>)). S gathers 9.06 from a, b, <b>.")


def test_the_picture_shows_the_mask_or_the_attention() -> None:
    widget = TreeExplorer("(S (X a b) c)", step="mask")
    widget.selected = 4
    assert widget.description == "X may attend to a, b, X."
    assert widget.still().svg(repr(widget)).count("✓") == 3
    maps = recorded(widget).numpy()
    widget = TreeExplorer(widget.tree, attention={"<b>": maps})
    widget.selected, widget.layer, widget.head = 4, 1, 2
    row = maps[1, 2, 4]
    first, second, third = np.argsort(-row)[:3]
    assert widget.description == (
        f"X attends most to {'abcSX'[first]} ({row[first]:.2f}), {'abcSX'[second]} "
        f"({row[second]:.2f}), {'abcSX'[third]} ({row[third]:.2f})."
    )
    picture = widget.still().svg(repr(widget))
    assert f">{row[first]:.2f}</text>" in picture
    assert "Attention, &lt;b&gt;, layer 1, head 2" in picture
    widget.tree = "(S a (X b c))"
    assert "gathers" in widget.description, "another shape: its averages instead"
    with pytest.raises(ValueError, match="no attention was recorded for a tree of this shape"):
        _ = widget.recorded


# ---- what the page's own arithmetic must equal


def cases() -> dict[str, Any]:
    tables = []
    for text in TREES:
        given = numbers(text)
        names = Numbered(read(text)).names()
        tables.append({"tree": text, **given, "names": names, **oracle(text, *given.values())})
    errors = []
    for text, _ in WRONG:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            read(text)
        first = str(caught.value).splitlines()[0]
        errors.append({"text": text, "message": first.removeprefix("line 1, ")})
    return {"most": MOST, "tables": tables, "errors": errors}


def test_what_the_page_is_compared_with_is_fresh() -> None:
    assert_fresh("trees.json", cases())


if __name__ == "__main__":
    write("trees.json", cases())
