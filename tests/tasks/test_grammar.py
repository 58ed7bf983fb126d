"""Probabilistic grammars: rules as they are read, sampling, the probability of a tree."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from attnlab.structures.tree import Tree
from attnlab.tasks.grammar import Grammar

SMALL = Grammar(
    """
    S         1    NP[n] VP[n]
    NP[n]     0.75 Det[n] Noun[n]
    NP[n]     0.25 NP-core[n] PP
    NP-core[n] 1   Det[n] Noun[n]
    PP        1    near NP[m]
    VP[n]     0.4  Verb[n]
    VP[n]     0.6  Verb[n] NP[m]
    """,
    "Det[n] the the this/these  Noun[n] dog/dogs cat/cats\n    hen/hens  Verb[n] sees/see",
)


def test_a_rule_is_read_once_for_each_number() -> None:
    assert SMALL.expansions["S"] == [
        (0.5, ("NP[singular]", "VP[singular]")),
        (0.5, ("NP[plural]", "VP[plural]")),
    ]
    assert SMALL.expansions["VP[plural]"] == [
        (0.4, ("Verb[plural]",)),
        (0.3, ("Verb[plural]", "NP[singular]")),
        (0.3, ("Verb[plural]", "NP[plural]")),
    ]
    assert SMALL.lexicon["Det[plural]"] == ["the", "the", "these"]
    assert SMALL.lexicon["Noun[singular]"] == ["dog", "cat", "hen"]
    assert SMALL.labels == ("NP", "PP", "S", "VP")
    words = "cat cats dog dogs hen hens near see sees the these this"
    assert " ".join(SMALL.vocabulary) == words
    assert SMALL.numbers == {
        **dict.fromkeys(["cat", "dog", "hen", "sees", "this"], "singular"),
        **dict.fromkeys(["cats", "dogs", "hens", "see", "these"], "plural"),
    }


def all_trees(depth: int) -> list[Tree]:
    """Every tree of S, written without the grammar: agreement is seen, not carried by symbols."""

    def nps(number: str, below: int) -> list[tuple]:
        dets = ("the", "this" if number == "s" else "these")
        nouns = [noun if number == "s" else noun + "s" for noun in ("dog", "cat", "hen")]
        simple = [("NP", *words) for words in product(dets, nouns)]
        if below < 3:
            return simple if below >= 1 else []
        inner = [np for m in "sp" for np in nps(m, below - 2)]
        return simple + [("NP", core, ("PP", "near", np)) for core, np in product(simple, inner)]

    trees = []
    for number in "sp":
        verb = "sees" if number == "s" else "see"
        objects = [np for m in "sp" for np in nps(m, depth - 2)]
        vps = [("VP", verb), *(("VP", verb, np) for np in objects)]
        trees += [("S", np, vp) for np, vp in product(nps(number, depth - 1), vps)]
    return [Tree.of(tree) for tree in trees]


def test_the_probabilities_of_all_trees_sum_to_the_chance_of_their_depth() -> None:
    trees = all_trees(3)
    assert len(trees) == len(set(trees)) == 2 * 6 * 13
    total = sum(SMALL.probability(tree) for tree in trees)
    assert total == pytest.approx(SMALL.chance("S", depth=3))
    assert total == pytest.approx(0.75 * (0.4 + 0.6 * 0.75))
    assert SMALL.chance("S", depth=2) == pytest.approx(0.75 * 0.4)
    assert SMALL.chance("S", depth=64) == pytest.approx(1)
    deeper = sum(SMALL.probability(tree) for tree in all_trees(4))
    assert deeper == pytest.approx(SMALL.chance("S", depth=4))


def test_trees_are_as_frequent_as_they_are_probable() -> None:
    generator, count = np.random.default_rng(3), 6000
    found = Counter(SMALL.sample(generator, depth=3) for _ in range(count))
    assert max(tree.depth for tree in found) == 3
    chance = SMALL.chance("S", depth=3)
    for tree in all_trees(3):
        expected = count * SMALL.probability(tree) / chance
        assert abs(found[tree] - expected) < 5 * expected**0.5 + 1
    assert sum(found[tree] for tree in all_trees(3)) == count


@pytest.mark.parametrize("text", ["(S (NP the dog) (VP see))", "(S (NP these dog) (VP sees))"])
def test_what_the_grammar_does_not_make_has_no_probability(text: str) -> None:
    assert SMALL.probability(Tree.read("(S (NP the dog) (VP sees))")) > 0
    assert SMALL.probability(Tree.read(text)) == 0
    assert SMALL.probability(Tree.read("(NP this dog)"), "NP[singular]") == pytest.approx(1 / 12)
    assert SMALL.probability(Tree.read("(NP this dog)"), "NP[plural]") == 0
    assert SMALL.probability(Tree.read("(AP this dog)"), "NP[plural]") == 0
    assert SMALL.probability(Tree.read("(NP this cow)"), "NP[plural]") == 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_as_many_words_are_counted_as_are_asked_for(count: int) -> None:
    asked = {"count": count, "counted": frozenset({"Noun[singular]", "Verb[plural]"}), "depth": 7}
    generator = np.random.default_rng(5)
    trees = [SMALL.sample(generator, **asked) for _ in range(100)]
    assert {tree.depth for tree in trees} <= set(range(8))
    for tree in trees:
        assert sum(leaf.label in {"dog", "cat", "hen", "see"} for leaf in tree.leaves()) == count


def test_counts_are_shared_out_as_probably_as_by_rejection() -> None:
    counted = frozenset({"Noun[plural]"})
    asked = {"count": 2, "counted": counted, "depth": 4}
    generator = np.random.default_rng(7)
    drawn = [SMALL.sample(generator, depth=4) for _ in range(12000)]
    kept = [tree for tree in drawn if str(tree).count("s)") - str(tree).count("sees)") == 2]
    direct = [SMALL.sample(generator, **asked) for _ in range(len(kept))]
    assert len(kept) / 12000 == pytest.approx(
        SMALL.chance("S", **asked) / SMALL.chance("S", depth=4), rel=0.1
    )
    for label in ("PP", "NP"):
        one, two = (
            np.mean([sum(n.label == label for n in tree.nodes()) for tree in trees])
            for trees in (kept, direct)
        )
        assert one == pytest.approx(two, rel=0.1)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: Grammar("S 0.5 a\nS 0.4 b", ""), ValueError, "of S should sum to 1, they sum to"),
        (lambda: Grammar("S a b", ""), ValueError, "a rule is a symbol, a prob.*got 'S a b'"),
        (lambda: Grammar("S 1", ""), ValueError, "a rule is a symbol, a probability"),
        (lambda: Grammar("S 2 a\nS -1 b", ""), ValueError, "a rule is a symbol, a probability"),
        (lambda: Grammar("S", ""), ValueError, "a rule is a symbol, a probability"),
        (
            lambda: Grammar("S 1 Nuon[n]", "Noun[n] dog/dogs"),
            ValueError,
            r"S becomes Nuon\[singular\], which has neither rules nor words; did you mean 'Noun",
        ),
        (
            lambda: SMALL.sample(np.random.default_rng(0), depth=1),
            ValueError,
            "no tree of S is at most 1 deep; allow a greater depth",
        ),
        (
            lambda: SMALL.sample(
                np.random.default_rng(0), depth=3, count=7, counted=frozenset({"Noun[plural]"})
            ),
            ValueError,
            r"no tree of S with 7 words of Noun\[plural\] is at most 3 deep",
        ),
        (lambda: SMALL.chance("NP", depth=3), ValueError, "no symbol with rules 'NP'; did you"),
        (lambda: SMALL.probability(Tree("a"), "NP"), ValueError, "no symbol with rules 'NP'"),
        (lambda: SMALL.chance("S", depth=65), ValueError, "depth should be at most 64, got 65"),
        (lambda: SMALL.chance("S", depth=0), ValueError, "depth should be at least 1"),
        (lambda: SMALL.chance("S", depth=3, count=-1), ValueError, "count should be at least 0"),
        (
            lambda: SMALL.chance("S", depth=3, counted=frozenset({"Noun"})),
            ValueError,
            "no symbol with words 'Noun'; did you mean 'Noun",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(call, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        call()
