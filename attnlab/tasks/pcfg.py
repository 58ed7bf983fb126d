"""PCFG SET: apply functions to strings, functions of functions.

    reverse A B C                            →  C B A
    append swap A B C , repeat D E           →  C B A D E D E
    remove_first copy A B , echo D E         →  D E E

The encoder reads an expression in prefix notation, the decoder writes the string that it stands
for. There are six functions of one string and four of two, which a comma parts:

    copy  reverse  swap  repeat  echo  shift              swap: the first and the last letter;
    append  prepend  remove_first  remove_second          echo: the last once more; shift: the
                                                          first to the end

Expressions are drawn from a probabilistic context-free grammar, ten parts that can be put together
in any way. Models can be trained on expressions of few functions and asked for more of them
(``fewest``, ``most``): the tokens and the positions are the same for all.

Hupkes, Dankers, Mul, Bruni. Compositionality Decomposed: How do Neural Networks Generalise? JAIR
2020, arXiv:1908.08351. Departures: here each number of functions is equally frequent, strings have
up to three letters of 20, and expressions of long strings are drawn again; theirs follow the
lengths and depths of English sentences and have 520 letters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from attnlab.tasks import Batch, Example, Task
from attnlab.tasks.sequences import display_names, draw_contents, read_and_write, read_and_written

Letters = tuple[str, ...]
OF_ONE: Mapping[str, Callable[[Letters], Letters]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "swap": lambda x: (*x[-1:], *x[1:-1], *x[:1]) if len(x) > 1 else x,
    "repeat": lambda x: x + x,
    "echo": lambda x: x + x[-1:],
    "shift": lambda x: x[1:] + x[:1],
}
OF_TWO: Mapping[str, Callable[[Letters, Letters], Letters]] = {
    "append": lambda x, y: x + y,
    "prepend": lambda x, y: y + x,
    "remove_first": lambda x, y: y,
    "remove_second": lambda x, y: x,
}
LETTERS = tuple("ABCDEFGHIJKLMNOPQRST")
STRING, LONGEST, MOST = 3, 24, 8  # letters of a string and of a result, functions
_UNARY, _BINARY = tuple(OF_ONE), tuple(OF_TWO)
_NAMES = ("start", "end", *OF_ONE, *OF_TWO, ",", *LETTERS)
_IDS = {name: place for place, name in enumerate(_NAMES)}
START, END = 0, 1


@dataclass(frozen=True)
class Pcfg(Task):
    """Expressions of `fewest` to `most` functions (at most 8), each number equally often.

    Tokens are "start", "end", ten functions, the comma and 20 letters. The decoder's row is "start"
    and the string, filled up with "end"; a shorter expression is filled up behind its words, which
    `source_padding` masks. The expression alone decides the split: none
    occurs in both, and it is the same for all `fewest` and `most`.
    """

    fewest: int = 1
    most: int = 3
    name: ClassVar[str] = "pcfg"
    kind: ClassVar[str] = "encoder_decoder"

    def __post_init__(self) -> None:
        self._check_sizes(fewest=1, most=1)
        if not self.fewest <= self.most <= MOST:
            raise ValueError(
                f"fewest should be at most most, and most at most {MOST}, "
                f"got fewest={self.fewest} and most={self.most}"
            )

    @property
    def vocab(self) -> int:
        return len(_NAMES)

    @property
    def length(self) -> int:
        return max(1 + LONGEST, self._widest)

    @property
    def _widest(self) -> int:
        """The words of the longest expression: all functions of two, and strings of three."""
        return 2 * self.most + STRING * (self.most + 1)

    def tokens(self, ids: Tensor | Sequence[int]) -> list[str]:
        """The display name of each token."""
        return display_names(ids, _NAMES)

    def of(self, expressions: Sequence[str]) -> Batch:
        """The batch of these expressions, in their order."""
        if isinstance(expressions, str) or not len(expressions):
            raise ValueError(
                f"expressions should be a list of one expression at least, got {expressions!r}"
            )
        pairs = [
            tuple([_IDS[word] for word in part] for part in (each.split(), value(each)))
            for each in expressions
        ]
        return read_and_write(pairs, start=START, end=END)  # type: ignore[arg-type]

    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        rows = draw_contents(split, size, generator, self._sample)
        return self.of([" ".join(_NAMES[word] for word in row if word != START) for row in rows])

    def _sample(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        found = np.full((rows, self._widest), START)  # zeros change no split
        for row in found:
            words: list[str] = []
            while not words or len(value(" ".join(words))) > LONGEST:
                functions = int(generator.integers(self.fewest, self.most + 1))
                words = _expression(functions, generator)
            row[: len(words)] = [_IDS[word] for word in words]
        return found

    def _describe(self, batch: Batch) -> Example:
        sentence = '"{}" stands for {}.'
        return read_and_written(batch, _NAMES, end=END, title="{}", sentence=sentence)


def value(expression: str) -> list[str]:
    """The string that an expression stands for.

    >>> value("append swap A B C , repeat D E")
    ['C', 'B', 'A', 'D', 'E', 'D', 'E']
    """
    words = expression.split()
    found, after = _value(words, 0) if _known(words) else ((), -1)
    if after != len(words):
        raise ValueError(
            f"{expression!r} is no expression; one is 'append reverse A B , echo C', with the "
            f"functions {', '.join((*OF_ONE, *OF_TWO))} and the letters A to {LETTERS[-1]}"
        )
    return list(found)


def _known(words: Sequence[str]) -> bool:
    return bool(words) and all(word in _NAMES[END + 1 :] for word in words)


def _value(words: Sequence[str], at: int) -> tuple[Letters, int]:
    """The string of the expression that begins at a place, and the place after it; -1 if none."""
    if at < 0 or at >= len(words):
        return (), -1
    word = words[at]
    if word in OF_ONE:
        inner, after = _value(words, at + 1)
        return (OF_ONE[word](inner), after) if after > 0 else ((), -1)
    if word in OF_TWO:
        first, comma = _value(words, at + 1)
        if comma < 0 or words[comma : comma + 1] != [","]:
            return (), -1
        second, after = _value(words, comma + 1)
        return (OF_TWO[word](first, second), after) if after > 0 else ((), -1)
    after = at
    while after < len(words) and words[after] in LETTERS:
        after += 1
    return (tuple(words[at:after]), after) if after > at else ((), -1)


def _expression(functions: int, generator: np.random.Generator) -> list[str]:
    """The words of a random expression of so many functions."""
    if functions == 0:
        count = int(generator.integers(1, STRING + 1))
        return [LETTERS[at] for at in generator.integers(len(LETTERS), size=count)]
    if generator.random() < 0.6:
        return [_one_of(_UNARY, generator), *_expression(functions - 1, generator)]
    left = int(generator.integers(functions))
    return [
        _one_of(_BINARY, generator),
        *_expression(left, generator),
        ",",
        *_expression(functions - 1 - left, generator),
    ]


def _one_of(names: Sequence[str], generator: np.random.Generator) -> str:
    """What ``generator.choice`` gives, which first makes an array of the names."""
    return names[int(generator.integers(len(names)))]
