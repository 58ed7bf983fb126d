"""Trees as tokens: as a tree, as words, as bracketed text."""

import numpy as np
import pytest
import torch

from attnlab.structures.tree import Tree
from attnlab.tasks.tree_forms import FORMS, TreeForm

WORDS, PHRASES = ("the", "dog", "cats", "chase", "barks", "NP"), ("S", "NP", "VP")
BARKS = Tree.of(["S", ["NP", "the", "dog"], ["VP", "barks"]])
CHASE = Tree.of(["S", ["NP", "the", "cats"], ["VP", "chase", ["NP", "the", "dog"]]])


def form_of(name: str) -> TreeForm:
    return TreeForm(name, WORDS, PHRASES, leaves=7, nodes=5)


@pytest.mark.parametrize(
    ("form", "rows"),
    [
        (
            "tree",
            [
                "the dog barks S NP VP · · ·",
                "the cats chase the dog S NP VP NP",
            ],
        ),
        ("words", ["the dog barks · ·", "the cats chase the dog"]),
        ("graph", ["the dog barks S NP VP · · ·", "the cats chase the dog S NP VP NP"]),
        (
            "brackets",
            [
                "(S (NP the dog ) (VP barks ) ) · · · ·",
                "(S (NP the cats ) (VP chase (NP the dog ) ) )",
            ],
        ),
    ],
)
def test_the_forms(form: str, rows: list[str]) -> None:
    batch = form_of(form).batch([BARKS, CHASE], [1, 0])
    shown = [form_of(form).tokens(row) for row in batch.inputs]
    assert [" ".join(row) for row in shown] == rows
    assert batch.inputs.shape[1] <= form_of(form).length
    assert (batch.structure is not None) == (form in ("tree", "graph"))
    if form == "tree":
        assert batch.structure.parents.tolist() == [
            [4, 4, 5, -1, 3, 3, -1, -1, -1],
            [6, 6, 7, 8, 8, -1, 5, 5, 7],
        ]
    if form == "graph":
        up = {(0, 4), (1, 4), (2, 5), (4, 3), (5, 3)}
        graph = batch.structure.graph(0)
        rows = zip(graph.edges.tolist(), graph.kinds.tolist(), graph.features.tolist(), strict=True)
        found = {(*edge, kind, *features) for edge, kind, features in rows}
        assert found == {(a, b, 0, 1, 0) for a, b in up} | {(b, a, 1, 0, 1) for a, b in up}
    assert batch.inputs.max() < form_of(form).vocab
    assert batch.padding.tolist() == [[token != "·" for token in row] for row in shown]
    assert batch.targets.tolist() == [1, 0]
    assert batch.targets.dtype == batch.inputs.dtype == torch.int64


def test_a_word_and_a_phrase_of_the_same_name_are_two_tokens() -> None:
    form = form_of("tree")
    row = form.batch([Tree.of(["S", "NP", ["NP", "dog"]])], [0]).inputs[0]
    assert form.tokens(row[[0, 3]]) == ["NP", "NP"]
    assert row[0] != row[3]


@pytest.mark.parametrize("decided_by", ["words", "brackets"])
def test_the_forms_see_the_same_trees_and_the_splits_share_none(decided_by: str) -> None:
    def draw(form: str, split: str) -> torch.Tensor:
        generator = np.random.default_rng(5)

        def sample() -> tuple[Tree, int]:
            words = [WORDS[place] for place in generator.integers(len(WORDS), size=4)]
            deep = int(generator.integers(2))
            left = ["NP", words[0], words[1]]
            nested = ["S", left, *words[2:]] if deep else ["S", ["VP", left, *words[2:]]]
            return Tree.of(nested), deep

        return form_of(form).draw(split, 300, sample, decided_by=decided_by)

    train = {form: draw(form, "train") for form in FORMS}
    tested = {form: draw(form, "validation") for form in FORMS}
    assert torch.equal(train["tree"].inputs[:, :4], train["words"].inputs)
    for form in FORMS:
        assert torch.equal(train[form].targets, train["words"].targets)
        rows, others = (set(map(tuple, split[form].inputs.tolist())) for split in (train, tested))
        assert min(len(rows), len(others)) > 70
        if form == "words" and decided_by == "brackets":
            assert rows & others  # the same words under another tree
        else:
            assert not rows & others


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: form_of("trees"), ValueError, "there is no form 'trees'; did you mean 'tree'"),
        (lambda: TreeForm("tree", ("a", "a"), ("S",), 2, 2), ValueError, "words names 'a' twice"),
        (lambda: TreeForm("tree", "ab", ("S",), 2, 2), TypeError, "words should be a tuple"),
        (lambda: TreeForm("tree", ("a",), ("S",), 0, 2), ValueError, "leaves should be at least 1"),
        (
            lambda: form_of("words").batch([Tree.of(["S", *["dog"] * 8])], [0]),
            ValueError,
            "a tree has 8 leaves, more than the 7 that leaves=7 allows",
        ),
        (
            lambda: form_of("tree").batch([Tree.of(["S", *[["NP", "dog"]] * 6])], [0]),
            ValueError,
            "a tree has 7 nodes, more than the 5",
        ),
        (
            lambda: form_of("tree").batch([Tree.of(["S", "dogs"])], [0]),
            ValueError,
            "no leaf may be labelled 'dogs' here; did you mean 'dog'.*words names",
        ),
        (
            lambda: form_of("tree").batch([Tree.of(["PP", "dog"])], [0]),
            ValueError,
            "no node may be labelled 'PP' here; did you mean 'VP' or 'NP'.*phrases names",
        ),
        (lambda: form_of("tree").batch([BARKS], [0, 1]), ValueError, "each of the 1 trees, got sh"),
        (
            lambda: form_of("tree").draw("validation", 1, lambda: (BARKS, 0)),
            ValueError,
            "of 1,000 trees only 0 belong to 'validation'",
        ),
        (
            lambda: form_of("tree").draw("train", 1, lambda: (BARKS, 0), decided_by="labels"),
            ValueError,
            "there is no part of a tree 'labels'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(call, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        call()
