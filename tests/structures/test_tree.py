"""Trees: their parts, equality, bracketed text and trees of nltk; however deep they are."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnlab.structures.tree import Tree

DOG = "(S (NP the dog (SBAR that (S (NP the cats) (VP chase)))) (VP barks))"
DEPTH = 10_000

WORD = st.text("ab-LRB()'\"\\/*é#·", min_size=1, max_size=9)
NESTED = st.recursive(
    WORD,
    lambda child: st.tuples(WORD, st.lists(child, min_size=1, max_size=3)).map(
        lambda pair: [pair[0], *pair[1]]
    ),
    max_leaves=17,
)


def deep(last: str = "dog") -> Tree:
    tree = Tree(last)
    for _ in range(DEPTH):
        tree = Tree("NP", (tree,))
    return tree


def writable(nested: Any) -> bool:
    """Whether no label can be mistaken: joining brackets and hyphens may give -LRB- anew."""
    for tree in Tree.of(nested).subtrees():
        encoded = tree.label.replace("(", "-LRB-").replace(")", "-RRB-")
        if encoded.replace("-LRB-", "(").replace("-RRB-", ")") != tree.label:
            return False
    return True


# ---- parts


def test_spans_of_a_sentence() -> None:
    tree = Tree.read(DOG)
    words = [leaf.label for leaf in tree.leaves()]
    spans = [(node.label, " ".join(words[start:stop])) for node, (start, stop) in parts(tree)]
    assert spans == [
        ("S", "the dog that the cats chase barks"),
        ("NP", "the dog that the cats chase"),
        ("SBAR", "that the cats chase"),
        ("S", "the cats chase"),
        ("NP", "the cats"),
        ("VP", "chase"),
        ("VP", "barks"),
    ]


def parts(tree: Tree) -> list[tuple[Tree, tuple[int, int]]]:
    return list(zip(tree.nodes(), tree.spans(), strict=True))


@given(NESTED)
def test_the_span_of_a_node_holds_its_leaves(nested: Any) -> None:
    tree = Tree.of(nested)
    leaves = tree.leaves()
    for node, (start, stop) in parts(tree):
        assert all(one is two for one, two in zip(node.leaves(), leaves[start:stop], strict=True))


# ---- equality


@given(NESTED, NESTED)
def test_trees_are_equal_as_their_lists_are(one: Any, two: Any) -> None:
    assert Tree.of(one) == Tree.of(one)
    assert hash(Tree.of(one)) == hash(Tree.of(one))
    assert (Tree.of(one) == Tree.of(two)) == (one == two)
    assert len({Tree.of(one), Tree.of(two), Tree.of(one)}) == 1 + (one != two)


@pytest.mark.parametrize(
    "other",
    ["(A b c)", "(A c b)", "(A (B c))", "(A (B c) b)", "(B b)", "(A b (B c))"],
)
def test_trees_differ_by_order_label_and_shape(other: str) -> None:
    tree = Tree.read("(A b)")
    assert tree != Tree.read(other)
    assert Tree.read(other) != tree
    assert hash(tree) != hash(Tree.read(other))


def test_a_tree_is_no_list() -> None:
    assert Tree.read("(A b)") != ["A", "b"]
    assert Tree("a") != "a"


def test_deep_trees_need_no_deep_calls() -> None:
    tree, twin, other = deep(), deep(), deep("cat")
    assert tree == twin
    assert tree != other
    assert hash(tree) == hash(twin)
    text = tree.bracketed()
    assert text == "(NP " * DEPTH + "dog" + ")" * DEPTH
    assert str(tree) == text
    assert repr(tree) == f"<Tree {text}>"
    assert Tree.read(text) == tree
    assert Tree.of(tree.nested()) == tree
    assert tree.depth == DEPTH
    assert tree.spans() == [(0, 1)] * DEPTH
    with pytest.raises(ValueError, match="10000 brackets are never closed"):
        Tree.read(text[:-DEPTH])


# ---- bracketed text


@given(NESTED.filter(writable))
def test_what_is_written_is_read_back(nested: Any) -> None:
    tree = Tree.of(nested)
    assert Tree.read(tree.bracketed()) == tree
    assert str(tree) == tree.bracketed()
    spread = tree.bracketed().replace(" ", "\n \t").replace(")", " )\n")
    assert Tree.read(spread) == tree
    if not tree.is_leaf:
        assert list(Tree.read_all(f"{tree}\n( {tree})\n{tree}")) == [tree] * 3


@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
@given(NESTED.filter(lambda nested: not writable(nested)))
def test_what_would_be_misread_is_not_written(nested: Any) -> None:
    with pytest.raises(ValueError, match="would be read back as"):
        Tree.of(nested).bracketed()
    assert "'" in str(Tree.of(nested))


@pytest.mark.parametrize(
    ("text", "nested"),
    [
        ("dog", "dog"),
        ("  (S\n  (NP the\tdog)\n\n (VP barks ) )\n", ["S", ["NP", "the", "dog"], ["VP", "barks"]]),
        ("( (S (VP go)) )", ["S", ["VP", "go"]]),
        ("((S (VP go)))", ["S", ["VP", "go"]]),
        ("( S go)", ["S", "go"]),
        ("(S(NP(N dog))barks)", ["S", ["NP", ["N", "dog"]], "barks"]),
        (
            "(PRN (-LRB- -LRB-) (NP a-LRB-b) (-RRB- -RRB-))",
            ["PRN", ["(", "("], ["NP", "a(b"], [")", ")"]],
        ),
        ("(NP (-NONE- *T*-1) (NNS 1\\/2))", ["NP", ["-NONE-", "*T*-1"], ["NNS", "1\\/2"]]),
        ("-RRB-", ")"),
    ],
)
def test_the_conventions_of_the_treebank(text: str, nested: Any) -> None:
    assert Tree.read(text).nested() == nested
    if isinstance(nested, list):
        assert [tree.nested() for tree in Tree.read_all(text * 2)] == [nested] * 2


def test_many_trees_are_read_one_by_one() -> None:
    trees = Tree.read_all("(A b)\n(C d) (E ")
    assert next(trees) == Tree.read("(A b)")
    assert next(trees) == Tree.read("(C d)")
    with pytest.raises(ValueError, match="line 2, column 7: 1 bracket is never closed"):
        next(trees)
    assert list(Tree.read_all(" \n")) == []


@pytest.mark.parametrize(
    ("text", "sentence", "place"),
    [
        ("", "there is no tree in the text; write one such as", None),
        ("(S (NP the dog)", "1 bracket is never closed, and it was opened here; add '\\)'", (1, 1)),
        ("(S\n\t(NP the", "2 brackets are never closed, and the last of .* add '\\)\\)'", (2, 2)),
        ("(S a))", "this bracket closes none; remove it", (1, 6)),
        ("(S a) (S b)", "a second tree begins here; read_all reads several trees", (1, 7)),
        ("(S a)\n b", "'b' stands outside all brackets", (2, 2)),
        ("the dog", "'the' stands outside all brackets", (1, 1)),
        ("(S ())", "this bracket is empty; write a label and children", (1, 4)),
        ("()", "this bracket is empty", (1, 1)),
        ("(S\n(NP))", "the node NP has no children; write a leaf without brackets", (2, 1)),
        ("(S (-LRB-))", "the node -LRB- has no children", (1, 4)),
        ("(S ((NP a)))", "the label is missing after this bracket", (1, 4)),
        ("((S a) (S b))", "the label is missing after this bracket", (1, 1)),
        ("(((S a)))", "the label is missing after this bracket", (1, 2)),
        ("( (S a) b)", "the label is missing after this bracket", (1, 1)),
    ],
)
def test_errors_point_at_the_place(text: str, sentence: str, place: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        Tree.read(text)
    if place is not None:
        message = str(caught.value).split("\n")
        line, column = place
        assert message[0].startswith(f"line {line}, column {column}: ")
        assert message[1] == "    " + text.split("\n")[line - 1].replace("\t", " ")
        assert message[2] == " " * (4 + column - 1) + "^"


def test_an_error_in_a_long_line_shows_the_part_around_it() -> None:
    text = "(S " + "word " * 1000 + "() " + "word " * 1000 + ")"
    with pytest.raises(ValueError, match="column 5004: this bracket is empty") as caught:
        Tree.read(text)
    _, part, caret = str(caught.value).split("\n")
    assert len(part) < 130
    assert part[caret.index("^") :].startswith("() word")


def test_brackets_beyond_the_text_are_not_all_listed() -> None:
    with pytest.raises(ValueError, match=r"99 brackets are never closed.*add '\){9}'"):
        Tree.read("(A " * 99)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: Tree("").bracketed(), ValueError, "an empty label cannot be written"),
        (lambda: Tree("a\u2003b").bracketed(), ValueError, "holds white space"),
        (lambda: Tree("-LRB-").bracketed(), ValueError, r"would be read back as '\('"),
        (lambda: Tree.read(["S", "a"]), TypeError, "read from a string, got a list"),
        (lambda: list(Tree.read_all(b"(S a)")), TypeError, "read from a string, got a bytes"),
    ],
)
def test_what_cannot_be_written_or_read(call, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        call()


def test_every_tree_can_be_shown() -> None:
    assert str(Tree("S", (Tree("a b"), Tree("")))) == "(S 'a b' '')"


# ---- trees of nltk


class Node(list):
    """What nltk.Tree is: a list of children with a label."""

    def __init__(self, label: Any, children: list[Any]) -> None:
        super().__init__(children)
        self._label = label

    def label(self) -> Any:
        return self._label


@pytest.fixture
def nltk_without_nltk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", SimpleNamespace(Tree=Node))


@given(NESTED)
def test_trees_of_the_shape_of_nltk(nested: Any) -> None:
    def node(item: Any) -> Any:
        return item if isinstance(item, str) else Node(item[0], [node(part) for part in item[1:]])

    if isinstance(nested, list):
        assert Tree.from_nltk(node(nested)).nested() == nested


@pytest.mark.usefixtures("nltk_without_nltk")
def test_a_tree_becomes_one_of_nltk() -> None:
    there = Tree.read(DOG).to_nltk()
    assert there.label() == "S"
    assert there[0][2].label() == "SBAR"
    assert there[0][:2] == ["the", "dog"]
    assert Tree.from_nltk(there) == Tree.read(DOG)
    assert Tree.from_nltk(deep().to_nltk()) == deep()
    with pytest.raises(ValueError, match="'dog' is a leaf alone, which nltk writes as a string"):
        Tree("dog").to_nltk()


def test_nltk_itself() -> None:
    nltk = pytest.importorskip("nltk", reason="nltk is not installed; its trees cannot be made")
    there = Tree.read(DOG).to_nltk()
    assert there == nltk.Tree.fromstring(DOG)
    assert Tree.from_nltk(there) == Tree.read(DOG)
    assert Tree.from_nltk(nltk.ParentedTree.fromstring(DOG)) == Tree.read(DOG)


def test_without_nltk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(ImportError, match="trees of nltk need nltk: pip install nltk"):
        Tree.read(DOG).to_nltk()


def circle() -> Node:
    below = Node("VP", ["go"])
    below.append(Node("NP", [below]))
    return Node("S", ["they", below])


@pytest.mark.parametrize(
    ("tree", "error", "sentence"),
    [
        (circle(), ValueError, r"tree\[1\]\[1\]\[0\] stands below itself"),
        (Node("S", ["a", Node(None, ["b"])]), TypeError, r"label of tree\[1\] .* got None"),
        (Node("S", ["a", Node("NP", [])]), ValueError, r"tree\[1\], labelled 'NP', has no child"),
        (Node("S", []), ValueError, "tree, labelled 'S', has no children"),
        (Node("S", ["a", ("b", "N")]), TypeError, r"tree\[1\] should be .* or a string, got \('b'"),
        ("dog", TypeError, "tree should be a tree of nltk, got 'dog'"),
        (None, TypeError, "tree should be a tree of nltk, got None"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_place(tree, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        Tree.from_nltk(tree)


def test_a_node_may_stand_at_two_places() -> None:
    shared = Node("NP", ["dog"])
    assert Tree.from_nltk(Node("S", [shared, shared])).nested() == ["S", *[["NP", "dog"]] * 2]


def test_a_long_place_is_shortened() -> None:
    tree = Node("NP", [3])
    for _ in range(999):
        tree = Node("NP", [tree])
    with pytest.raises(TypeError, match=r"^tree(\[0\]){12}…(\[0\]){12} should be") as caught:
        Tree.from_nltk(tree)
    assert len(str(caught.value)) < 150
