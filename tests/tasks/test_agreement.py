"""Agreement: whether the hidden verb is singular or plural, with so many attractors."""

from collections import Counter

import numpy as np
import pytest
import torch

from attnlab.structures.tree import Tree
from attnlab.tasks.agreement import Agreement, attractors
from attnlab.tasks.english import ENGLISH
from attnlab.tasks.tree_forms import FORMS

VERBS = ("barks", "bark")


def restored(tree: Tree, target: int) -> Tree:
    """The sentence with a verb of the number in place of the question mark."""
    *before, predicate = tree.children
    for kind in ("Intransitive", "Transitive", "Saying"):
        verb = ENGLISH.lexicon[f"{kind}[{('singular', 'plural')[target]}]"][0]
        whole = Tree("S", (*before, Tree("VP", (Tree(verb), *predicate.children[1:]))))
        if ENGLISH.probability(whole):
            return whole
    raise AssertionError(f"no verb fits into {tree}")


@pytest.mark.parametrize(("fewest", "most"), [(0, 0), (0, 2), (3, 4)])
def test_the_sentences_are_of_the_grammar_and_have_so_many_attractors(fewest, most) -> None:
    task = Agreement(fewest=fewest, most=most, depth=11, words=31)
    generator = np.random.default_rng(3)
    counts: Counter[int] = Counter()
    for _ in range(400):
        tree, target = task.sentence(generator)
        assert tree.depth <= 11
        assert len(tree.leaves()) <= 31
        assert tree.children[-1].children[0].label == "?"
        assert ENGLISH.probability(restored(tree, target)) > 0
        other = Tree("S", (*tree.children[:-1], Tree.of(["VP", VERBS[1 - target]])))
        assert ENGLISH.probability(other) == 0
        counts[len(attractors(tree))] += 1
    assert set(counts) == set(range(fewest, most + 1))
    for count in counts.values():
        assert count == pytest.approx(400 / len(counts), rel=0.25)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(S (NP the dog) (VP ?))", []),
        ("(S (NP (NP the dog) (PP near (NP the cats))) (VP ? (NP the boys)))", ["cats"]),
        ("(S (PP near (NP the trees)) (NP the dog) (VP ?))", []),
        (
            "(S (NP (NP the men) (SBAR that (S (NP my child) (VP sees)))"
            " (PP by (NP these shelves))) (VP wait))",
            ["child"],
        ),
    ],
)
def test_attractors_of_a_sentence(text: str, found: list[str]) -> None:
    assert attractors(Tree.read(text)) == found


@pytest.mark.parametrize("form", FORMS)
def test_rows_show_the_sentence(form: str) -> None:
    task = Agreement(form=form, most=1)
    batch = task.batch("train", 61, seed=5)
    assert (batch.structure is not None) == (form in ("tree", "graph"))
    for row, padding in zip(batch.inputs, batch.padding, strict=True):
        shown = task.tokens(row)
        assert shown.count("?") == 1
        assert [token != "·" for token in shown] == padding.tolist()
        assert {"tree": "S", "words": None, "graph": "S", "brackets": "(S"}[form] in (*shown, None)
    words = Agreement(form="words", most=1)
    other = words.batch("train", 61, seed=5)
    for row, short in zip(batch.inputs, other.inputs, strict=True):
        kept = [token for token in task.tokens(row) if token in ENGLISH.vocabulary]
        assert kept == [token for token in words.tokens(short) if token not in "?·"]
    assert torch.equal(batch.targets, other.targets)


def test_both_classes_are_equally_frequent() -> None:
    targets = Agreement(form="words").batch("train", 2000, seed=1).targets
    assert targets.double().mean() == pytest.approx(0.5, abs=0.05)


def test_neither_the_first_noun_nor_the_last_decides() -> None:
    generator, task = np.random.default_rng(2), Agreement(fewest=0, most=2)
    right = Counter()
    for _ in range(500):
        tree, target = task.sentence(generator)
        words = [leaf.label for leaf in tree.leaves()]
        nouns = {
            noun
            for n, found in ENGLISH.lexicon.items()
            if n[:5] in ("Being", "Thing")
            for noun in found
        }
        before = [word for word in words[: words.index("?")] if word in nouns]
        for place in (0, -1):
            number = ENGLISH.numbers[before[place]]
            right[place] += number == ("singular", "plural")[target]
    assert right[0] / 500 < 0.95
    assert right[-1] / 500 < 0.8


def test_the_example_says_what_is_asked() -> None:
    task = Agreement(form="words", fewest=1, most=1)
    example = task.example(5)
    words = [token for token in example.tokens if token != "·"]
    assert example.title == f"{len(words)} words, {example.labels[0]}"
    assert " ".join(words) in example.description
    assert f"It is {example.labels[0]}; before it stand" in example.description
    alone = Agreement(form="tree", most=0).example(0)
    assert alone.tokens[-1] in ENGLISH.labels


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"form": "trees"}, "there is no form 'trees'; did you mean 'tree'"),
        ({"most": 13, "words": 99}, "most should be at most 12, got 13"),
        ({"depth": 65}, "depth should be at most 64, got 65"),
        ({"words": 1025}, "words should be at most 1,024, got 1025"),
        ({"fewest": 3}, "fewest should be at most 2, as most is, got 3"),
        ({"fewest": -1}, "fewest should be at least 0"),
        ({"most": 3, "depth": 5}, "with 3 attractors need depth=6 or more, got depth=5"),
        ({"words": 19}, "with 2 attractors need words=20 or more, got words=19"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        Agreement(**options)


def test_the_least_options_that_are_allowed_give_sentences() -> None:
    for most, depth, words in ((0, 2, 10), (1, 4, 15), (3, 6, 25)):
        task = Agreement(fewest=most, most=most, depth=depth, words=words)
        assert len(task.batch("train", 7, seed=0)) == 7
