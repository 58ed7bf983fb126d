"""The English grammar: numbers agree, rates are as given, the same words have two trees."""

from collections import Counter

import numpy as np
import pytest

from attnlab.structures.tree import Tree
from attnlab.tasks.english import ENGLISH

PLURALS = {"children", "women", "men", "mice", "geese", "wolves", "shelves"}
SINGULAR_DETERMINERS, PLURAL_DETERMINERS = {"this", "every", "one"}, {"these", "all", "many"}
PREPOSITIONS = {"near", "behind", "beside", "with", "by"}
LABELS = {"S", "NP", "VP", "PP", "SBAR"}


@pytest.fixture(scope="module")
def sentences() -> list[Tree]:
    generator = np.random.default_rng(11)
    return [ENGLISH.sample(generator, depth=12) for _ in range(3000)]


def number_of_noun(noun: str) -> str:
    return "plural" if noun.endswith("s") or noun in PLURALS else "singular"


def number_of_verb(verb: str) -> str:
    return "singular" if verb.endswith("s") else "plural"


def number_of_phrase(phrase: Tree) -> str:
    """Of its noun, the last word of the first phrase in which words stand alone."""
    while not phrase.children[0].is_leaf:
        phrase = phrase.children[0]
    return number_of_noun(phrase.children[-1].label)


def disagreements(tree: Tree) -> list[str]:
    """What does not agree, found from the forms of the words and the places of the phrases."""
    wrong: list[str] = []

    def agree(phrase: Tree, clause: Tree) -> None:
        verb = clause.children[-1].children[0].label
        if number_of_verb(verb) != number_of_phrase(phrase):
            wrong.append(f"{phrase} {verb}")

    for node in tree.nodes():
        labels = [child.label for child in node.children]
        if node.label == "S" and "NP" in labels:
            agree(node.children[labels.index("NP")], node)
        elif node.label == "NP" and labels[-1] == "SBAR":
            clause = node.children[-1].children[-1]
            if [child.label for child in clause.children] == ["VP"]:  # the head is its subject
                agree(node, clause)
        elif node.label == "NP" and node.children[0].is_leaf:
            first, noun = labels[0], labels[-1]
            wrong_forms = (PLURAL_DETERMINERS, SINGULAR_DETERMINERS)
            if first in wrong_forms[number_of_noun(noun) == "plural"]:
                wrong.append(" ".join(labels))
    return wrong


def test_every_sentence_agrees(sentences: list[Tree]) -> None:
    for tree in sentences:
        assert disagreements(tree) == []
        assert {node.label for node in tree.nodes()} <= LABELS
        assert tree.depth <= 12


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP the dogs) (VP barks))",
        "(S (NP (NP the dog) (PP near (NP the cats))) (VP bark))",
        "(S (PP near (NP the cats)) (NP the dog) (VP bark))",
        "(S (NP these dog) (VP barks))",
        "(S (NP (NP the dog) (SBAR that (S (VP see (NP the cats))))) (VP barks))",
        "(S (NP (NP the dog) (SBAR that (S (NP the cats) (VP sees)))) (VP barks))",
    ],
)
def test_what_does_not_agree_is_noticed_here_and_is_no_sentence(text: str) -> None:
    assert disagreements(Tree.read(text))
    assert ENGLISH.probability(Tree.read(text)) == 0


def test_rates_are_about_as_given(sentences: list[Tree]) -> None:
    fronted = np.mean([len(tree.children) == 3 for tree in sentences])
    assert fronted == pytest.approx(0.25, abs=0.03)
    subjects = Counter(" ".join(shape(tree.children[-2])) for tree in sentences)
    given = {"w w": 0.5, "w w w": 0.14, "NP PP": 0.16, "NP SBAR": 0.16, "NP PP SBAR": 0.04}
    assert set(subjects) == set(given)
    for form, share in given.items():
        assert subjects[form] / 3000 == pytest.approx(share, abs=0.03)
    plural = np.mean([number_of_phrase(tree.children[-2]) == "plural" for tree in sentences])
    assert plural == pytest.approx(0.5, abs=0.03)
    assert ENGLISH.chance("S", depth=12) > 0.95


def shape(phrase: Tree) -> list[str]:
    return ["w" if child.is_leaf else child.label for child in phrase.children]


def test_no_shape_says_the_number(sentences: list[Tree]) -> None:
    """Of each frequent shape of a subject half are plural."""
    found: dict[str, list[bool]] = {}
    for tree in sentences:
        subject = tree.children[-2]
        kinds = " ".join(node.label + str(len(node.children)) for node in subject.nodes())
        found.setdefault(kinds, []).append(number_of_phrase(subject) == "plural")
    frequent = [np.mean(values) for values in found.values() if len(values) > 100]
    assert len(frequent) > 2
    assert frequent == pytest.approx([0.5] * len(frequent), abs=0.15)


def test_a_prepositional_phrase_may_belong_to_the_verb_or_to_the_object() -> None:
    to_verb = Tree.read("(S (NP this man) (VP sees (NP the girl) (PP with (NP the lamp))))")
    to_noun = Tree.read("(S (NP this man) (VP sees (NP (NP the girl) (PP with (NP the lamp)))))")
    assert [leaf.label for leaf in to_verb.leaves()] == [leaf.label for leaf in to_noun.leaves()]
    assert to_verb != to_noun
    assert ENGLISH.probability(to_verb) > 0
    assert ENGLISH.probability(to_noun) > 0


def test_relative_clauses_inside_one_another() -> None:
    inner = "(NP (NP the cats) (SBAR that (S (NP many women) (VP see))))"
    text = f"(S (NP (NP the dog) (SBAR that (S {inner} (VP chase)))) (VP barks))"
    assert disagreements(Tree.read(text)) == []
    assert ENGLISH.probability(Tree.read(text)) > 0


def test_both_kinds_of_each_construction_are_drawn(sentences: list[Tree]) -> None:
    embedded = attached = 0
    for tree in sentences:
        for node in tree.nodes():
            if node.label == "VP" and [c.label for c in node.children[1:]] == ["NP", "PP"]:
                attached += 1
            clause = node.children[-1].label == "SBAR" and node.children[-1].children[-1]
            if node.label == "NP" and clause and len(clause.children) == 2:
                inside = clause.children[0].nodes()
                embedded += any(n.children[-1].label == "SBAR" for n in inside)
    assert attached > 100
    assert embedded > 20


def test_each_form_of_a_word_belongs_to_one_class() -> None:
    classes: dict[str, set[str]] = {}
    for symbol, words in ENGLISH.lexicon.items():
        for word in words:
            classes.setdefault(word, set()).add(symbol.partition("[")[0])
    assert all(len(found) == 1 for found in classes.values())
    assert "that" not in classes
    assert len(ENGLISH.vocabulary) == len(classes) + 1 < 300
    for word, number in ENGLISH.numbers.items():
        (kind,) = classes[word]
        if kind in ("Being", "Thing"):
            assert number_of_noun(word) == number
        elif kind != "Det":
            assert number_of_verb(word) == number
    assert set(ENGLISH.lexicon["P"]) == PREPOSITIONS
