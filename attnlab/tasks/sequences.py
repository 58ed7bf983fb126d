"""What the synthetic tasks share: separate splits, targets shifted by one, display names."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
from torch import Tensor, from_numpy

from attnlab.core.integers import check_integer
from attnlab.tasks import UNSCORED, Batch, Example

SEPARATOR = "|"
_VALIDATION_SHARE = 8  # one content in eight belongs to validation
_FEWEST_CONTENTS = 1000


def in_split(contents: np.ndarray, split: str) -> np.ndarray:
    """Which rows of `contents (rows, width)` belong to `split`.

    A row's own symbols decide: they are hashed (a polynomial modulo 2^64) and one eighth of all
    hash values are validation. So no content can occur in both splits, however many are drawn.
    """
    mixed = contents.astype(np.uint64) @ _powers(contents.shape[1])
    chosen = mixed < np.uint64(2**64 // _VALIDATION_SHARE)
    return chosen if split == "validation" else ~chosen


@cache
def _powers(width: int) -> np.ndarray:
    powers = [pow(0x9E3779B97F4A7C15, place + 1, 2**64) for place in range(width)]
    return np.array(powers, dtype=np.uint64)


def draw_contents(
    split: str,
    size: int,
    generator: np.random.Generator,
    sample: Callable[[np.random.Generator, int], np.ndarray],
    deciding: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """`size` rows of `sample(generator, rows)` that belong to `split`, by rejection.

    `deciding` makes of some rows `(rows, width)` those that `in_split` hashes, if it is not the
    rows themselves; columns of zeros behind them change nothing.
    """
    rows = size * (2 if split == "train" else _VALIDATION_SHARE) + 16
    kept = np.empty((0, 0), dtype=np.int64)
    while len(kept) < size:
        drawn = sample(generator, rows)
        drawn = drawn[in_split(deciding(drawn), split)]
        kept = np.concatenate([kept, drawn]) if len(kept) else drawn
    return kept[:size]


def enough_contents(choices: Iterable[int], options: str) -> None:
    """Refuse options that allow too few different rows for two splits that share none.

    The number of rows is the product of `choices`, one factor per place, multiplied only until it
    is enough: the whole product may have millions of digits.
    """
    count = 1
    for factor in choices:
        count *= factor
        if count >= _FEWEST_CONTENTS:
            return
    raise ValueError(
        f"With {options} there are only {count} different sequences, too few for training and "
        f"validation to share none: at least {_FEWEST_CONTENTS} are needed; make them larger"
    )


def shifted(sequence: np.ndarray, scored: np.ndarray) -> tuple[Tensor, Tensor]:
    """Inputs and targets `(b, n)` of a causal language model from `sequence (b, n + 1)`.

    Position i reads `sequence[:, i]` and is asked for `sequence[:, i + 1]`, where `scored` (same
    shape as `sequence`, or broadcastable to it) says that this token is an answer.
    """
    answers = np.broadcast_to(scored, sequence.shape)[:, 1:]
    targets = np.where(answers, sequence[:, 1:], UNSCORED)
    return from_numpy(np.ascontiguousarray(sequence[:, :-1])), from_numpy(targets)


def next_words(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Batch:
    """Texts of different lengths, in two parts, of which the second is asked for word by word.

    Of a text without a first part all but the first word is asked for.
    """
    texts = [[*asked, *answer] for asked, answer in rows]
    place = np.arange(max(map(len, texts)))
    text = np.array([[*row, *[0] * (len(place) - len(row))] for row in texts], dtype=np.int64)
    begin = np.array([[len(asked)] for asked, _ in rows])
    end = np.array([[len(row)] for row in texts])
    inputs, targets = shifted(text, (begin <= place) & (place < end))
    real = from_numpy(place[1:] < end)
    return Batch(inputs.masked_fill(~real, 0), targets, real)


def without_repeats(
    generator: np.random.Generator, rows: int, symbols: int, width: int
) -> np.ndarray:
    """`(rows, width)` symbols below `symbols`, all different within a row."""
    return np.argsort(generator.random((rows, symbols)), axis=1)[:, :width]


def letters(symbols: int, prefix: str = "s") -> list[str]:
    """Display names: the alphabet if it is long enough, else numbered names."""
    if symbols <= 26:
        return [chr(ord("a") + symbol) for symbol in range(symbols)]
    return [f"{prefix}{symbol}" for symbol in range(symbols)]


def display_names(ids: Tensor | Sequence[int], names: Sequence[str]) -> list[str]:
    """The display name of each token, `""` for an unscored target."""
    numbers = token_numbers(ids)
    for token in numbers:
        if token != UNSCORED and not 0 <= token < len(names):
            raise ValueError(f"Tokens are numbers from 0 to {len(names) - 1}, got {token}")
    return ["" if token == UNSCORED else names[token] for token in numbers]


def read_and_write(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, start: int, end: int
) -> Batch:
    """Pairs of what an encoder reads and what a decoder writes, of different lengths.

    The decoder's row is `start` and what is written; the answer after that is `end`, with which
    shorter rows are filled up, as are sources. A source is hidden behind its end.
    """
    sources, written = ([len(pair[side]) for pair in pairs] for side in (0, 1))
    n, m = 1 + max(written), max(sources)
    rows = np.full((len(pairs), n + 1), end, dtype=np.int64)
    rows[:, 0] = start
    source = np.full((len(pairs), m), end, dtype=np.int64)
    for row, (asked, answer) in enumerate(pairs):
        source[row, : len(asked)] = asked
        rows[row, 1 : 1 + len(answer)] = answer
    real = np.arange(n + 1) <= np.array(written)[:, None] + 1
    inputs, targets = shifted(rows, real)
    return Batch(
        inputs,
        targets,
        padding=from_numpy(real[:, 1:]),
        source=from_numpy(source),
        source_padding=from_numpy(np.arange(m) < np.array(sources)[:, None]),
    )


def read_and_written(
    batch: Batch, names: Sequence[str], *, end: int, title: str, sentence: str
) -> Example:
    """The example of the first pair of `read_and_write`.

    `title` has a place for the words that are read, `sentence` one for them and one for what is
    written.
    """
    assert batch.source is not None
    assert batch.source_padding is not None
    labels = display_names(batch.targets[0], names)
    words = display_names(batch.source[0][batch.source_padding[0]], names)
    answer = " ".join(label for label in labels if label not in ("", names[end]))
    return Example(
        title=title.format(" ".join(words)),
        description=sentence.format(" ".join(words), answer),
        tokens=display_names(batch.inputs[0], names),
        labels=labels,
        source=words,
    )


def token_numbers(ids: Tensor | Sequence[int]) -> list[int]:
    """Tokens `(n,)` as Python integers; a TypeError where they are not a row of whole numbers."""
    if isinstance(ids, Tensor | np.ndarray):
        if ids.ndim != 1:
            raise TypeError(
                f"Tokens are to be one row (n,), got shape {tuple(ids.shape)}; give one row, for "
                "example tokens[0]"
            )
        ids = ids.tolist()
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise TypeError(
            f"Tokens are a tensor (n,) or a list of whole numbers, got a {type(ids).__name__}"
        )
    items = (token.tolist() if isinstance(token, Tensor) else token for token in ids)
    return [check_integer("a token", item) for item in items]
