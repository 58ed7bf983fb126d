"""Probabilistic context-free grammars with number agreement: sampling, and the chance of a tree.

    S            1     NP-who[n] VP[n]
    NP-who[n]    0.8   Det[n] Noun[n]
    NP-who[n]    0.2   Det[n] Noun[n] that VP[n]

A line says what a symbol becomes, and with what probability. In brackets stands the number: ``[n]``
is singular or plural, the same in the whole rule, so that a verb agrees with its subject. A letter
that does not stand on the left is either with probability 1/2. A rule with a number is short for
one rule per number, so the grammar is context-free. The words of a symbol stand after it,

    Det[n]       the the this/these
    Noun[n]      dog/dogs child/children

and are chosen with equal probability, ``the`` with twice that of ``this`` here. A slash parts the
singular from the plural. What has neither rules nor words, such as "that", is itself a word.

In the trees, words are leaves of their phrase. A node is labelled with its symbol without the
number and without what follows a hyphen: NP.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from math import prod
from typing import Any

import numpy as np

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice, suggestion
from attnlab.structures.tree import Tree

NUMBERS = ("singular", "plural")
DEEPEST = 64
_LETTER = re.compile(r"(?<=\[)\w(?=\])")  # n of NP[n]

Expansion = tuple[str, ...]
Way = tuple[tuple[str, int], ...]  # each symbol with the words that count below it


@dataclass(frozen=True, eq=False)
class Grammar:
    """A grammar, written as above: its rules one per line, and the words of its symbols.

    Symbols begin with a capital, words do not. Raises ValueError where a rule or a symbol is
    wrong, or the probabilities of a symbol do not sum to 1.
    """

    rules: str
    words: str

    def __post_init__(self) -> None:
        known = [*self.expansions, *self.lexicon]
        for symbol, rules in self.expansions.items():
            total = sum(share for share, _ in rules)
            if abs(total - 1) > 1e-6:
                raise ValueError(
                    f"the probabilities of {symbol} should sum to 1, they sum to {total:g}"
                )
            for part in (part for _, parts in rules for part in parts):
                if part not in known and part[0].isupper():
                    raise ValueError(
                        f"{symbol} becomes {part}, which has neither rules nor words"
                        f"{suggestion(part, known)}"
                    )

    @cached_property
    def expansions(self) -> dict[str, list[tuple[float, Expansion]]]:
        """What each symbol may become, with probabilities. Numbers are written out: NP[plural]."""
        found: dict[str, list[tuple[float, Expansion]]] = {}
        for line in self.rules.strip().splitlines():
            if line.strip():
                share, expansions = _read_rule(line)
                for symbol, *parts in expansions:
                    found.setdefault(symbol, []).append((share, tuple(parts)))
        return found

    @cached_property
    def lexicon(self) -> dict[str, list[str]]:
        """The words of each symbol."""
        found: dict[str, list[str]] = {}
        symbol = ""
        for word in self.words.split():
            if word[0].isupper():
                symbol = word
                continue
            forms = word.split("/")
            for place, (name,) in enumerate(_numbered([symbol])):
                found.setdefault(name, []).append(forms[min(place, len(forms) - 1)])
        return found

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word once, in alphabetical order."""
        literal = {
            part for rules in self.expansions.values() for _, parts in rules for part in parts
        }
        literal -= {*self.expansions, *self.lexicon}
        return tuple(sorted(literal.union(*self.lexicon.values())))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Every label of a node once, in alphabetical order."""
        return tuple(sorted({_label(symbol) for symbol in self.expansions}))

    @cached_property
    def numbers(self) -> dict[str, str]:
        """The number of each word that has different forms: {"dogs": "plural", …}."""
        found = {}
        for number, other in (NUMBERS, NUMBERS[::-1]):
            for symbol, words in self.lexicon.items():
                if symbol.endswith(f"[{number}]"):
                    twins = self.lexicon[symbol.replace(number, other)]
                    found.update({word: number for word in words if word not in twins})
        return found

    def sample(
        self,
        generator: np.random.Generator,
        symbol: str = "S",
        *,
        depth: int = 12,
        count: int = 0,
        counted: frozenset[str] = frozenset(),
    ) -> Tree:
        """A random tree of ``symbol``, at most ``depth`` deep and with ``count`` counted words.

        ``counted`` names the symbols whose words are counted. The probabilities are those of the
        grammar given such a depth and count; no tree is drawn in vain. Raises ValueError where
        there is none.
        """
        if not self.chance(symbol, depth=depth, count=count, counted=counted):
            what = f" with {count} words of {' and '.join(sorted(counted))}" if counted else ""
            raise ValueError(
                f"no tree of {symbol}{what} is at most {depth} deep; allow a greater depth"
            )
        done: list[Tree] = []
        waiting: list[tuple[str, int, int, int]] = [(symbol, depth, count, -1)]
        while waiting:
            symbol, depth, count, children = waiting.pop()
            if children >= 0:
                done[-children:] = [Tree(_label(symbol), tuple(done[-children:]))]
            elif symbol in self.expansions:
                chances, ways = self._ways(symbol, depth, count, counted)
                way = ways[bisect(chances, generator.random() * chances[-1])]
                waiting.append((symbol, depth, count, len(way)))
                waiting.extend((part, depth - 1, share, -1) for part, share in reversed(way))
            else:
                words = self.lexicon.get(symbol, [symbol])
                done.append(Tree(words[int(generator.random() * len(words))]))
        return done[0]

    def chance(
        self, symbol: str, *, depth: int, count: int = 0, counted: frozenset[str] = frozenset()
    ) -> float:
        """The probability that a tree of ``symbol`` has such a depth and count."""
        check_choice("symbol with rules", symbol, self.expansions)
        check_integer("depth", depth, at_least=1)
        check_integer("count", count, at_least=0)
        if depth > DEEPEST:
            raise ValueError(f"depth should be at most {DEEPEST}, got {depth}")
        for word in counted:
            check_choice("symbol with words", word, self.lexicon)
        return self._chance(symbol, depth, count, counted)

    def probability(self, tree: Tree, symbol: str = "S") -> float:
        """The probability of a tree of ``symbol``; 0 where the grammar does not make it.

        The sum over the numbers and symbols that its labels leave open.
        """
        check_choice("symbol with rules", symbol, self.expansions)
        inside: list[dict[str, float]] = []  # of subtrees whose parent has not come yet
        for subtree in reversed(list(tree.subtrees())):
            if subtree.is_leaf:
                inside.append(self._word_chances.get(subtree.label, {}))
            else:
                children = [inside.pop() for _ in subtree.children]
                inside.append(self._inside(subtree.label, children))
        return inside[0].get(symbol, 0.0)

    def _inside(self, label: str, children: list[dict[str, float]]) -> dict[str, float]:
        """The probability of a node with these children for each symbol of its label."""
        found: dict[str, float] = {}
        for symbol, rules in self.expansions.items():
            if _label(symbol) == label:
                found[symbol] = sum(
                    share * prod(map(_or_zero, children, parts))
                    for share, parts in rules
                    if len(parts) == len(children)
                )
        return found

    @cached_property
    def _word_chances(self) -> dict[str, dict[str, float]]:
        """For each word, the probability that a symbol becomes it."""
        found: dict[str, dict[str, float]] = {word: {word: 1.0} for word in self.vocabulary}
        for symbol, words in self.lexicon.items():
            for word in words:
                found[word][symbol] = words.count(word) / len(words)
        return found

    def _ways(self, *state: Any) -> tuple[list[float], list[Way]]:
        """The sums of the chances of all ways to expand a symbol, and the ways."""
        if state not in self._kept:
            self._kept[state] = self._found_ways(*state)
        return self._kept[state]

    @cached_property
    def _kept(self) -> dict[Any, tuple[list[float], list[Way]]]:
        return {}

    def _found_ways(
        self, symbol: str, depth: int, count: int, counted: frozenset[str]
    ) -> tuple[list[float], list[Way]]:
        chances, ways = [], []
        for share, parts in self.expansions[symbol] if depth > 0 else ():
            for counts in _divisions(count, len(parts)):
                way = tuple(zip(parts, counts, strict=True))
                below = (self._chance(part, depth - 1, share, counted) for part, share in way)
                if (chance := share * prod(below)) > 0:
                    chances.append(chance)
                    ways.append(way)
        return list(accumulate(chances)), ways

    def _chance(self, symbol: str, depth: int, count: int, counted: frozenset[str]) -> float:
        if symbol in self.expansions:
            chances, _ = self._ways(symbol, depth, count, counted)
            return chances[-1] if chances else 0.0
        return float(count == (symbol in counted))


def _read_rule(line: str) -> tuple[float, list[list[str]]]:
    """The probability of a rule, and parent and children once for each choice of numbers."""
    parent, *right = line.split()
    try:
        share, children = float(right[0]), right[1:]
    except (IndexError, ValueError):
        share, children = -1.0, []
    if not 0 <= share <= 1 or not children:
        raise ValueError(
            f"a rule is a symbol, a probability and what the symbol becomes, for example "
            f"'S 1 NP[n] VP[n]', got {line.strip()!r}"
        )
    numbered = list(_numbered([parent, *children]))
    return share * len(list(_numbered([parent]))) / len(numbered), numbered


def _label(symbol: str) -> str:
    """What a node of a symbol is labelled with: NP of NP-who[plural]."""
    return symbol.partition("[")[0].partition("-")[0]


def _numbered(symbols: list[str]) -> Iterator[list[str]]:
    """The symbols with their letters replaced, once for each choice of numbers."""
    letters = sorted({letter for symbol in symbols for letter in _LETTER.findall(symbol)})
    for numbers in product(NUMBERS, repeat=len(letters)):
        named = dict(zip(letters, numbers, strict=True))
        yield [_with_number(symbol, named) for symbol in symbols]


def _with_number(symbol: str, numbers: dict[str, str]) -> str:
    return _LETTER.sub(lambda found: numbers[found[0]], symbol)


def _divisions(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to divide a count among so many parts."""
    if parts == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for others in _divisions(count - first, parts - 1):
            yield (first, *others)


def _or_zero(chances: dict[str, float], symbol: str) -> float:
    return chances.get(symbol, 0.0)
