"""Questions about spans: their answers, checked by hand and against the text itself."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.structures.tree import Tree
from attnlab.tasks import asked_spans
from attnlab.tasks.asked_spans import _KIND, _of_documentation, _of_tree, subjects
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.english import ENGLISH
from attnlab.tasks.marked_text import inside_brackets
from attnlab.tasks.sentences import Sentences

RELATIVE = ["SBAR", "that", ["S", ["NP", "many", "old", "cats"], ["VP", "see"]]]
GIRLS = ["NP", ["NP", "the", "girls"], ["SBAR", "that", ["S", ["VP", "sing"]]]]
TREE = Tree.of(
    ["S", ["PP", "near", ["NP", "the", "lamps"]], ["NP", ["NP", "the", "dog"], RELATIVE],
     ["VP", "says", ["SBAR", "that", ["S", GIRLS, ["VP", "laugh"]]]]]
)  # fmt: skip
WORDS = [leaf.label for leaf in TREE.leaves()]


def found(name: str, each: Sequence[tuple[str, tuple]], words: list[str]) -> list[tuple]:  # type: ignore[type-arg]
    return [
        (*(" ".join(words[b:e]) for b, e in spans), answer)
        for question, (spans, answer) in each
        if question == name
    ]


def test_what_the_tree_of_a_sentence_says() -> None:
    each = list(_of_tree(TREE, np.random.default_rng(0)))
    assert found("number", each, WORDS) == [("the", 1), ("the", 0), ("the", 1)]
    kinds = [answer for *_, answer in found("kind", each, WORDS)]
    assert kinds[:9] == [3, 0, 4, 0, 4, 6, 0, 1, 4]
    inside = [word for word, answer in found("clause", each, WORDS) if answer]
    assert " ".join(inside) == "that many old cats see that the girls that sing laugh"
    phrases = found("phrase", each, WORDS)
    assert ("many old cats", 1) in phrases
    whole = {" ".join(WORDS[b:e]) for b, e in TREE.spans()}
    assert all((words in whole) == bool(answer) for words, answer in phrases)
    assert all(" " in words for words, _ in phrases)


def test_the_subject_of_each_verb() -> None:
    kinds = [_KIND[word] for word in WORDS]
    pairs = {WORDS[verb]: WORDS[noun] for verb, noun in subjects(TREE.nodes(), TREE.spans(), kinds)}
    assert pairs == {"says": "dog", "see": "cats", "laugh": "girls", "sing": "girls"}
    each = found("subject", list(_of_tree(TREE, np.random.default_rng(0))), WORDS)
    assert ("dog", "says", 1) in each
    wrong = [noun for noun, verb, answer in each if verb == "says" and not answer]
    assert wrong[0] in ("lamps", "cats")


def test_verbs_agree_with_the_subjects_that_are_found() -> None:
    """The grammar's own agreement, which the code that finds subjects does not look at."""
    generator, checked = np.random.default_rng(1), 0
    for _ in range(200):
        tree = ENGLISH.sample(generator, depth=8)
        words = [leaf.label for leaf in tree.leaves()]
        for verb, noun in subjects(tree.nodes(), tree.spans(), [_KIND[word] for word in words]):
            assert ENGLISH.numbers[words[verb]] == ENGLISH.numbers[words[noun]], words
            checked += 1
    assert checked > 200


def test_every_verb_has_a_subject() -> None:
    generator = np.random.default_rng(2)
    for _ in range(100):
        tree = ENGLISH.sample(generator, depth=8)
        kinds = [_KIND[leaf.label] for leaf in tree.leaves()]
        verbs = [verb for verb, _ in subjects(tree.nodes(), tree.spans(), kinds)]
        assert sorted(verbs) == [at for at, kind in enumerate(kinds) if kind == 5]


def test_what_documentation_says() -> None:
    pieces = [
        "call",
        " it",
        ".",
        "  Then",
        " name",
        "s",
        "[",
        "f",
        "(",
        "x",
        ")",
        "]",
        " or",
        " (",
        "y",
        ")",
        " Then",
    ]
    text = "".join(pieces)
    last = np.cumsum([len(piece) for piece in pieces]) - 1
    inside = [inside_brackets(text)[at] for at in last]
    marks = {"brackets": inside, "indented": [False] * len(pieces)}
    each = []
    for seed in range(4):
        each += _of_documentation(pieces, marks, np.random.default_rng(seed))
    begins = dict(found("begins", each, pieces))
    assert [begins[piece] for piece in (" it", "s", "x")] == [1, 0, 1]
    assert dict(found("brackets", each, pieces))["x"] == 1
    assert dict(found("brackets", each, pieces))[" or"] == 0
    assert set(found("sentence", each, pieces)) == {("  Then", 1)}, "the last follows a bracket"
    assert ("  Then", " Then", 1) in found("same word", each, pieces)
    partners = [(spans, answer) for name, (spans, answer) in each if name == "partner"]
    assert ((13, 14), (15, 16)) in [spans for spans, answer in partners if answer]
    assert {spans for spans, answer in partners if not answer} == {((8, 9), (15, 16))}


def test_windows_of_documentation_are_asked() -> None:
    task = Documentation("bpe", 64, bpe_size=300)
    asked = asked_spans.documentation(task, "validation", 200, 40, seed=0)
    assert asked.tokens.shape == asked.padding.shape == (200, 64)
    assert set(asked.questions) == set(asked_spans.DOCUMENTATION)
    _check(asked.questions, asked.tokens)
    text, spans, label = asked.questions["same word"]
    for row, (one, other), answer in zip(text, spans.tolist(), label, strict=True):
        words = [_letters(task, asked.tokens[row, slice(*span)]) for span in (one, other)]
        assert (words[0] == words[1]) == bool(answer)
        assert one[1] <= other[0]


def _letters(task: Documentation, ids: Tensor) -> str:
    return "".join(sign for sign in task.decode(ids) if sign.isalpha()).lower()


def test_sentences_are_asked_in_the_tokens_of_their_task() -> None:
    asked = asked_spans.sentences("train", 150, 60, seed=3)
    assert set(asked.questions) == set(asked_spans.SENTENCES)
    _check(asked.questions, asked.tokens)
    names = Sentences().tokens(asked.tokens[0][asked.padding[0]])
    assert set(names) <= set(ENGLISH.vocabulary)
    text, spans, label = asked.questions["kind"]
    for row, (begin, _), answer in zip(text, spans[:, 0].tolist(), label.tolist(), strict=True):
        assert _KIND[ENGLISH.vocabulary[asked.tokens[row, begin]]] == answer
    assert torch.equal(asked.tokens, asked_spans.sentences("train", 150, 60, seed=3).tokens)
    assert not torch.equal(asked.tokens, asked_spans.sentences("train", 150, 60, seed=4).tokens)


def test_no_sentence_is_learned_from_and_asked() -> None:
    sides = [asked_spans.sentences(split, 150, 60, seed=0) for split in ("train", "validation")]
    known, new = ({tuple(row) for row in side.tokens.tolist()} for side in sides)
    assert not known & new


def _check(questions: object, tokens: Tensor) -> None:
    for text, spans, label in questions.values():  # type: ignore[attr-defined]
        assert label.bincount().unique().numel() == 1, "each answer equally often"
        assert text.max() < len(tokens)
        assert (spans[..., 0] < spans[..., 1]).all()
        assert spans.max() <= tokens.shape[1]


def test_texts_without_an_answer_are_refused() -> None:
    with pytest.raises(ValueError, match="examples of the answers of 'kind', and each answer"):
        asked_spans.sentences("train", 1, 10, seed=0, words=6)
    with pytest.raises(ValueError, match="examples should be at least 2"):
        asked_spans.sentences("train", 10, 1, seed=0)
