"""Agreement: the main verb of a sentence is hidden; is it singular or plural?

    the dog near the cats ?                      →  singular
    near this tree the dogs that my girl sees ?   →  plural

The verb agrees with the head of its subject, which is not always the nearest noun, nor the first of
the sentence. A noun of the other number between the head and the verb is an attractor: "cats" in
the first sentence, "girl" in the second. In the tree of the sentence the subject is the noun phrase
beside the verb phrase, and its head the first noun in it.

The sentences come from ``attnlab.tasks.english``. Linzen, Dupoux and Goldberg (Assessing the
ability of LSTMs to learn syntax-sensitive dependencies, TACL 2016, arXiv:1611.01368) ask this
question of sentences of Wikipedia, and count attractors.
"""

from bisect import bisect
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

import numpy as np

from attnlab.core.suggest import check_choice
from attnlab.structures.tree import Tree
from attnlab.tasks import Batch, Example
from attnlab.tasks.english import ENGLISH
from attnlab.tasks.grammar import DEEPEST, NUMBERS
from attnlab.tasks.tree_forms import FORMS, TreeForm
from attnlab.tasks.tree_task import TreeTask

HIDDEN = "?"
_NOUNS = {n: frozenset({f"Being[{n}]", f"Thing[{n}]"}) for n in NUMBERS}
_NUMBER_OF_NOUN = {
    word: number
    for number in NUMBERS
    for symbol in _NOUNS[number]
    for word in ENGLISH.lexicon[symbol]
}
_SENTENCES = ENGLISH.expansions["S"]
_SHARES = list(accumulate(share for share, _ in _SENTENCES))
_WORDS = (HIDDEN, *ENGLISH.vocabulary)
_LARGEST = {"most": 12, "depth": DEEPEST, "words": 1024}


@dataclass(frozen=True)
class Agreement(TreeTask):
    """Sentences whose main verb is a question mark; the classes are "singular" and "plural".

    The number of attractors is drawn first, each from ``fewest`` to ``most`` with equal
    probability, then a sentence that has as many. So a model can be trained on few attractors and
    tested on more. Both classes are equally frequent. The words decide the split: no sentence
    occurs in both, not even with another tree.

    Args:
        form: "tree", "words", "graph" or "brackets" (``attnlab.tasks.tree_forms``).
        fewest: the fewest attractors.
        most: the most attractors.
        depth: the most nodes above a word.
        words: the longest sentence.
    """

    form: str = "tree"
    fewest: int = 0
    most: int = 2
    depth: int = 12
    words: int = 32
    names_of_classes: ClassVar[tuple[str, ...]] = NUMBERS
    name: ClassVar[str] = "agreement"

    def __post_init__(self) -> None:
        check_choice("form", self.form, FORMS)
        self._check_sizes(fewest=0, most=0, depth=2, words=1)
        for name, largest in _LARGEST.items():
            if getattr(self, name) > largest:
                raise ValueError(f"{name} should be at most {largest:,}, got {getattr(self, name)}")
        if self.fewest > self.most:
            raise ValueError(f"fewest should be at most {self.most}, as most is, got {self.fewest}")
        least = {"depth": _least_depth(self.most), "words": 5 * self.most + 10}
        for name, needed in least.items():
            if getattr(self, name) < needed:
                raise ValueError(
                    f"sentences with {self.most} attractors need {name}={needed} or more, got "
                    f"{name}={getattr(self, name)}"
                )

    def sentence(self, generator: np.random.Generator) -> tuple[Tree, int]:
        """A random tree with its main verb hidden, and its class: 0 singular, 1 plural."""
        count = int(generator.integers(self.fewest, self.most + 1))
        while True:
            parts = _SENTENCES[bisect(_SHARES, generator.random() * _SHARES[-1])][1]
            tree = Tree("S", tuple(self._part(symbol, count, generator) for symbol in parts))
            if len(tree.leaves()) <= self.words:
                return tree, NUMBERS.index(_number(parts[-1]))

    def _part(self, symbol: str, count: int, generator: np.random.Generator) -> Tree:
        """A part of the sentence: the subject with its attractors, the verb phrase without verb."""
        depth = self.depth - 1
        if symbol.startswith("NP"):
            counted = _NOUNS[_other(_number(symbol))]
            return ENGLISH.sample(generator, symbol, depth=depth, count=count, counted=counted)
        tree = ENGLISH.sample(generator, symbol, depth=depth)
        if symbol.startswith("VP"):
            return Tree("VP", (Tree(HIDDEN), *tree.children[1:]))  # the verb is the first word
        return tree

    @property
    def _form(self) -> TreeForm:
        return _tree_form(self.form, self.words)

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        return self._form.draw(split, size, lambda: self.sentence(generator))

    def _describe(self, batch: Batch) -> Example:
        shown = self.tokens(batch.inputs[0])
        number = NUMBERS[int(batch.targets[0])]
        words = [token for token in shown if token in _WORDS]
        before = [word for word in words[: words.index(HIDDEN)] if word in _NUMBER_OF_NOUN]
        others = [word for word in before if _NUMBER_OF_NOUN[word] != number]
        ending = f"; before it stand the {_other(number)} {', '.join(others)}" if others else ""
        return Example(
            title=f"{len(words)} words, {number}",
            description=f"Is the hidden verb singular or plural? {' '.join(words)}. It is {number}"
            f"{ending}.",
            tokens=shown,
            labels=[number],
        )


def attractors(tree: Tree) -> list[str]:
    """The nouns between the head of the subject and the verb that are of the other number.

    ``tree`` is a sentence of ``ENGLISH``, whether its main verb is hidden or not.
    """
    subject = tree.children[-2]
    nouns = [leaf.label for leaf in subject.leaves() if leaf.label in _NUMBER_OF_NOUN]
    other = _other(_NUMBER_OF_NOUN[nouns[0]])
    return [noun for noun in nouns if _NUMBER_OF_NOUN[noun] == other]


def _number(symbol: str) -> str:
    """Plural, of VP[plural]."""
    return symbol[symbol.index("[") + 1 : -1]


def _other(number: str) -> str:
    return NUMBERS[1 - NUMBERS.index(number)]


@lru_cache(maxsize=16)
def _tree_form(form: str, words: int) -> TreeForm:
    return TreeForm(form, _WORDS, ENGLISH.labels, leaves=words, nodes=2 * words)


@lru_cache(maxsize=16)
def _least_depth(attractors: int) -> int:
    """The least depth of a sentence with so many attractors."""
    counted = _NOUNS["plural"]
    depth = 1
    while not ENGLISH.chance("NP-who[singular]", depth=depth, count=attractors, counted=counted):
        depth += 1
    return depth + 1
