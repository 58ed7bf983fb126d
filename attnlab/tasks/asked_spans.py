"""Questions about spans of a text, with answers that are read off the text or its tree.

Edge probes (``attnlab.lens.edge_probes``) are asked about one span of tokens, or about two. Nobody
has labelled these texts by hand. Of documentation, the text itself says the answer:

    begins      does this piece begin a word?
    sentence    does this word, which has a capital, begin a sentence?
    indented    does this piece stand in a line that is indented by 5 or more?
    brackets    does this piece stand inside brackets?
    partner     is the first of two brackets the one that the second closes?
    same word   are two words the same, but for capitals?

Of sentences of ``attnlab.tasks.english``, the tree says it:

    kind        determiner, adjective, adverb, preposition, noun, verb, or "that"
    number      is "the" singular or plural, as its noun is?
    phrase      are these words a phrase of the tree?
    clause      does this word stand in a clause inside the sentence?
    subject     is this noun the head of the subject of this verb?

Where a question has two answers, they are asked of things as alike as the text gives: of words with
a capital, of the same closing bracket with two opening ones, of the same verb with two nouns before
it. Each answer is drawn equally often.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.structures.tree import Tree
from attnlab.tasks import SPLITS
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.english import ENGLISH
from attnlab.tasks.marked_text import PAIRS, windows
from attnlab.tasks.sequences import in_split

DOCUMENTATION = ("begins", "sentence", "indented", "brackets", "partner", "same word")
SENTENCES = ("kind", "number", "phrase", "clause", "subject")
"""In the order of the classical pipeline: words, phrases, and what holds between words."""
DEPTH = 8
"""The most nodes above a word of a sentence, as in ``attnlab.tasks.sentences``."""
WIDEST = 4
"""The most pieces of a word, and the most words of a phrase, that are asked about."""
_KINDS = {
    "Det": 0, "Adj": 1, "Adv": 2, "P": 3, "Being": 4, "Thing": 4,
    "Intransitive": 5, "Transitive": 5, "Saying": 5,
}  # fmt: skip
_KIND = {"that": 6} | {
    word: _KINDS[symbol.partition("[")[0]]
    for symbol, words in ENGLISH.lexicon.items()
    for word in words
}
_NOUN = 4
_MARKS = {"indented": "code", "brackets": "brackets"}
_PLACE = {word: place for place, word in enumerate(ENGLISH.vocabulary)}

Span = tuple[int, int]
Found = tuple[tuple[Span, ...], int]
"""The spans of a question, and its answer."""


class Question(NamedTuple):
    """Examples of one question."""

    text: Int[Tensor, "e"]
    """Which text."""
    spans: Int[Tensor, "e s 2"]
    """First place and the place after the last, of each of s = 1 or 2 spans."""
    label: Int[Tensor, "e"]
    """The answer, from 0."""


class AskedTexts(NamedTuple):
    """Texts as tokens, and examples of each question by its name."""

    tokens: Int[Tensor, "b n"]
    padding: Bool[Tensor, "b n"]
    """True at a real token."""
    questions: Mapping[str, Question]


# ---- documentation


def documentation(
    task: Documentation, split: str, texts: int, examples: int, seed: int
) -> AskedTexts:
    """So many windows of ``task.length`` tokens, and up to ``examples`` examples of each question;
    a function of the arguments. Raises ValueError where the windows hold no example of an answer.
    """
    check_integer("examples", examples, at_least=2)
    drawn = windows(task, split, texts, seed)
    generator = np.random.default_rng([4, seed, SPLITS.index(split)])
    found: dict[str, list[tuple[int, Found]]] = {}
    for row, ids in enumerate(drawn.tokens):
        pieces = [piece.decode("latin-1") for piece in task._pieces(ids)]  # a byte, a character
        own = {name: drawn.marks[mark][row].tolist() for name, mark in _MARKS.items()}
        for name, each in _of_documentation(pieces, own, generator):
            found.setdefault(name, []).append((row, each))
    real = torch.ones_like(drawn.tokens, dtype=torch.bool)
    return AskedTexts(drawn.tokens, real, _drawn(found, examples, generator))


def _of_documentation(
    pieces: list[str], marks: Mapping[str, list[bool]], generator: np.random.Generator
) -> Iterator[tuple[str, Found]]:
    text = "".join(pieces)
    piece_of = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    for at in _chosen(range(1, len(pieces)), 12, generator):
        sign = re.search(r"\w", pieces[at])
        if not sign:
            continue
        before = (pieces[at - 1] + pieces[at])[len(pieces[at - 1]) + sign.start() - 1]
        yield "begins", (((at, at + 1),), int(not re.match(r"\w", before)))
        for name, own in marks.items():
            yield name, (((at, at + 1),), int(own[at]))
    words = [
        (each.group(), each.start(), _pieces_of(piece_of, each.start(), each.end()))
        for each in re.finditer(r"(?<![\w'])[A-Za-z]{3,}(?![\w'])", text)
    ]
    words = [each for each in words if each[2][1] - each[2][0] <= WIDEST]
    for word, begin, span in words:
        between = re.search(r"\s*$", text[:begin])
        before = text[: between.start()][-1:] if between else ""
        ends, goes_on = before in set(".!?"), before == "," or before.islower()
        if word[0].isupper() and (ends or (goes_on and "\n\n" not in text[begin - 3 : begin])):
            yield "sentence", ((span,), int(ends))
    yield from _same(words, generator)
    yield from _partners(text, piece_of, generator)


def _pieces_of(piece_of: np.ndarray, begin: int, end: int) -> Span:
    return int(piece_of[begin]), int(piece_of[end - 1]) + 1


def _same(
    words: list[tuple[str, int, Span]], generator: np.random.Generator
) -> Iterator[tuple[str, Found]]:
    """Each word that has stood before with its last occurrence, and with another word."""
    for at in _chosen(range(1, len(words)), 6, generator):
        word, _, span = words[at]
        name = word.lower()
        earlier = [s for w, _, s in words[:at] if w.lower() == name]
        others = [s for w, _, s in words[:at] if w.lower() != name]
        if earlier and others:
            yield "same word", ((earlier[-1], span), 1)
            yield "same word", ((others[int(generator.integers(len(others)))], span), 0)


def _partners(
    text: str, piece_of: np.ndarray, generator: np.random.Generator
) -> Iterator[tuple[str, Found]]:
    """Each closing bracket with its own opening one, and with another of the same sign."""
    opened: list[int] = []
    for at, sign in enumerate(text):
        if sign in PAIRS.values():
            opened.append(at)
        elif sign in PAIRS and opened and text[opened[-1]] == PAIRS[sign]:
            own = opened.pop()
            others = [
                place for place, other in enumerate(text[:at])
                if other == PAIRS[sign] and place != own
            ]  # fmt: skip
            if others:
                wrong = others[int(generator.integers(len(others)))]
                closing = _pieces_of(piece_of, at, at + 1)
                for place, answer in ((own, 1), (wrong, 0)):
                    opening = _pieces_of(piece_of, place, place + 1)
                    if opening != closing:
                        yield "partner", ((opening, closing), answer)
        elif text[at : at + 2] == "\n\n":
            opened.clear()


# ---- sentences


def sentences(split: str, texts: int, examples: int, seed: int, *, words: int = 15) -> AskedTexts:
    """So many sentences of at most ``words`` words, with the tokens of ``attnlab.tasks.sentences``,
    and up to ``examples`` examples of each question; a function of the arguments. The words decide
    the split. Raises ValueError where they hold no example of an answer.
    """
    check_choice("split", split, SPLITS)
    check_integer("texts", texts, at_least=1)
    check_integer("examples", examples, at_least=2)
    check_integer("words", words, at_least=6)
    generator = np.random.default_rng([5, seed, SPLITS.index(split)])
    trees, rows = list[Tree](), np.zeros((texts, words), dtype=np.int64)
    while len(trees) < texts:
        tree = ENGLISH.sample(generator, depth=DEPTH)
        row = np.zeros((1, words), dtype=np.int64)
        names = [leaf.label for leaf in tree.leaves()]
        if len(names) <= words:
            row[0, : len(names)] = [1 + _PLACE[name] for name in names]
            if in_split(row, split)[0]:
                rows[len(trees)] = row[0]
                trees.append(tree)
    found: dict[str, list[tuple[int, Found]]] = {}
    for at, tree in enumerate(trees):
        for name, each in _of_tree(tree, generator):
            found.setdefault(name, []).append((at, each))
    tokens = torch.from_numpy(rows)
    return AskedTexts((tokens - 1).clamp(min=0), tokens > 0, _drawn(found, examples, generator))


def _of_tree(tree: Tree, generator: np.random.Generator) -> Iterator[tuple[str, Found]]:
    words = [leaf.label for leaf in tree.leaves()]
    kinds = [_KIND[word] for word in words]
    nodes, spans = tree.nodes(), tree.spans()
    inside = np.zeros(len(words), dtype=bool)
    for node, (begin, end) in zip(nodes, spans, strict=True):
        inside[begin:end] |= node.label == "SBAR"
    for at, (word, kind) in enumerate(zip(words, kinds, strict=True)):
        yield "kind", (((at, at + 1),), kind)
        yield "clause", (((at, at + 1),), int(inside[at]))
        if word == "the":
            noun = next(place for place in range(at, len(words)) if kinds[place] == _NOUN)
            plural = ENGLISH.numbers[words[noun]] == "plural"
            yield "number", (((at, at + 1),), int(plural))
    for begin, end in spans[1:]:
        size = end - begin
        unlike = [
            (first, first + size)
            for first in range(len(words) - size + 1)
            if (first, first + size) not in spans
        ]
        if 1 < size <= WIDEST and unlike:
            yield "phrase", (((begin, end),), 1)
            yield "phrase", ((unlike[int(generator.integers(len(unlike)))],), 0)
    for verb, head in subjects(nodes, spans, kinds):
        others = [place for place in range(verb) if kinds[place] == _NOUN and place != head]
        if others:
            wrong = others[int(generator.integers(len(others)))]
            for noun, answer in ((head, 1), (wrong, 0)):
                yield "subject", (((noun, noun + 1), (verb, verb + 1)), answer)


def subjects(nodes: list[Tree], spans: list[Span], kinds: list[int]) -> Iterator[tuple[int, int]]:
    """The places of each verb and of the noun that is the head of its subject."""
    begins = {id(node): begin for node, (begin, _) in zip(nodes, spans, strict=True)}
    for node in nodes:
        for subject, verbs in _parts(node):
            head = next(at for at in range(begins[id(subject)], len(kinds)) if kinds[at] == _NOUN)
            yield begins[id(verbs)], head


def _parts(node: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The subject and the verb phrase of a sentence; of a relative clause without a subject of its
    own, the phrase that it belongs to."""
    labels = [part.label for part in node.children]
    if node.label == "S" and labels[-2:] == ["NP", "VP"]:
        yield node.children[-2], node.children[-1]
    if node.label == "NP" and labels[-1] == "SBAR":
        clause = node.children[-1].children[-1]
        if [part.label for part in clause.children] == ["VP"]:
            yield node, clause.children[0]


# ---- drawing


def _chosen(places: range, count: int, generator: np.random.Generator) -> list[int]:
    """So many different places at random, in order; all where there are not more."""
    if len(places) <= count:
        return list(places)
    return sorted(int(at) for at in generator.choice(np.array(places), size=count, replace=False))


def _drawn(
    found: Mapping[str, list[tuple[int, Found]]], examples: int, generator: np.random.Generator
) -> dict[str, Question]:
    return {name: _balanced(name, own, examples, generator) for name, own in found.items()}


def _balanced(
    name: str, found: list[tuple[int, Found]], examples: int, generator: np.random.Generator
) -> Question:
    """Each answer equally often."""
    label = np.array([answer for _, (_, answer) in found])
    counts = np.bincount(label)
    if len(counts) < 2 or not counts.min():
        raise ValueError(
            f"these texts hold {counts.tolist()} examples of the answers of {name!r}, and each "
            "answer needs one; give more texts"
        )
    each = min(int(counts.min()), max(1, examples // len(counts)))
    chosen = np.concatenate([
        generator.permutation(np.flatnonzero(label == answer))[:each]
        for answer in range(len(counts))
    ])  # fmt: skip
    kept = [found[at] for at in generator.permutation(chosen)]
    return Question(
        torch.tensor([text for text, _ in kept]),
        torch.tensor([spans for _, (spans, _) in kept]),
        torch.tensor([answer for _, (_, answer) in kept]),
    )
