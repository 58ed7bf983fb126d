"""Collect queries and keys of any torch model over many sequences, in bounded memory.

    points = collect(model, batches, tokenizer.convert_ids_to_tokens)

or, where the model is called in a way of its own, batch by batch:

    collector = Collector()
    for inputs, texts in batches:
        with attnlab.watch(model) as seen:
            model(inputs)
        collector.add(seen, texts)
    points = collector.points()

At most ``most`` tokens are kept. Of more, whole sequences are drawn at random; of a sequence that
is longer, some of its tokens. Vectors are stored in float16, so that each token and head takes 4·d
bytes for query and key, and about 60 for the rest.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.lens.query_key.pieces import Call, Piece, assemble
from attnlab.lens.query_key.points import Points
from attnlab.lens.query_key.texts import Grid, Text, texts_of, tokens_of
from attnlab.lens.record import Seen
from attnlab.lens.sides import kind_of
from attnlab.lens.watch import watch

MOST = 2500
Texts = Sequence[Sequence[str]]


def collect(
    model: nn.Module,
    batches: Iterable[Tensor | Mapping[str, Any]],
    read: Callable[[Any], Sequence[str]] | None = None,
    *,
    labels: Sequence[Any] | None = None,
    images: Any = None,
    grid: Grid | None = None,
    most: int = MOST,
    seed: int = 0,
    only: str | Sequence[str] | None = None,
) -> Points:
    """Run the model on every batch and keep its queries and keys, per layer and head.

    ``batches``  each a tensor, for ``model(batch)``, or keyword arguments, for ``model(**batch)``
                 (what a Hugging Face tokenizer returns, say); their ``attention_mask`` or
                 ``padding`` says which tokens are real
    ``read``     from the ids of one sequence to the texts of its tokens; without it tokens are
                 named by their positions
    ``labels``   one per sequence of all batches (the class of an image, say); a list instead of a
                 single label has one for each token
    ``images``   (S, height, width) or (S, height, width, 3), values from 0 to 1, of the sequences
                 of all batches; ``grid`` is then the (rows, columns) of their patches, which are
                 the last tokens of each sequence
    ``most``     tokens that are kept; ``seed`` draws them
    ``only``     keeps the modules whose path matches a pattern, as in ``watch``

    The model runs in the mode it is in, without gradients. Raises ValueError where it has no
    attention with queries and keys.
    """
    collector = Collector(most=most, seed=seed, grid=grid)
    at = 0
    for batch in batches:
        inputs = _inputs(batch)
        with watch(model, only=only) as seen, torch.no_grad():
            model(**batch) if isinstance(batch, Mapping) else model(batch)
        rows = slice(at, at + len(inputs.own))
        collector.add(
            seen,
            _named(inputs.own, read),
            padding=inputs.padding,
            source_tokens=_named(inputs.source, read),
            source_padding=inputs.source_padding,
            labels=None if labels is None else labels[rows],
            images=None if images is None else images[rows],
        )
        at = rows.stop
    return collector.points()


class Collector:
    """Collects recordings of one model; ``points()`` gives what it has kept.

    ``most`` tokens are kept; ``seed`` draws which sequences if there are more; ``grid`` are the
    (rows, columns) of patches where the sequences are images.
    """

    def __init__(self, *, most: int = MOST, seed: int = 0, grid: Grid | None = None) -> None:
        self._reservoir = _Reservoir(check_integer("`most`", most, at_least=1), seed)
        self._grid = grid
        self._kept: dict[int, _Kept] = {}
        self._calls: list[Call] = []

    def add(
        self,
        seen: Seen,
        tokens: Texts | None = None,
        *,
        padding: Tensor | None = None,
        source_tokens: Texts | None = None,
        source_padding: Tensor | None = None,
        labels: Sequence[Any] | None = None,
        images: Any = None,
    ) -> None:
        """Keep what ``attnlab.watch`` recorded of one batch.

        ``tokens`` are the texts of each sequence, padding included (b lists of n), or None: they
        are then named by their positions. ``source_tokens`` are those that an encoder read.
        ``padding`` (b, n) is True for real tokens. ``labels`` and ``images``: as in ``collect``.
        """
        if len(seen) == 0:
            raise ValueError(f"there are no queries and keys to collect: {repr(seen)[1:-1]}")
        b, _, n, _ = seen[0].shape
        own = n if tokens is None else _length(tokens)
        source = None if source_tokens is None else _length(source_tokens)
        calls = [Call.of(each, _kind(each.name, *each.shape[2:], own, source)) for each in seen]
        self._check(calls, own, source)
        draw = self._reservoir.draw
        mine = texts_of(
            b, own, tokens, padding=padding, labels=labels, images=images, grid=self._grid
        )
        theirs = (
            mine
            if source is None
            else texts_of(b, source, source_tokens, what="source_tokens", padding=source_padding)
        )
        numbers = [self._reservoir.offer(len(text)) for text in mine]
        for row, number in enumerate(numbers):
            if number in self._reservoir.sizes:
                both = [text[row].sampled(self._reservoir.most, draw) for text in (mine, theirs)]
                self._kept[number] = _Kept.of(calls, row, both[0], both[0 if source is None else 1])
        for number in self._kept.keys() - self._reservoir.sizes.keys():
            del self._kept[number]

    def points(self) -> Points:
        """What was kept, in the order in which it came."""
        if not self._kept:
            raise ValueError("nothing was collected: give at least one batch")
        kept = [self._kept[number] for number in sorted(self._kept)]
        own = tokens_of([one.own for one in kept], self._grid)
        source = own if kept[0].own is kept[0].source else tokens_of([one.source for one in kept])
        sides = {"self": (own, own), "cross": (own, source), "encoder": (source, source)}
        layers = [
            assemble(
                call,
                [one.pieces[at] for one in kept],
                [len(one.source if call.kind == "encoder" else one.own) for one in kept],
                sides[call.kind],
            )
            for at, call in enumerate(self._calls)
        ]
        return Points(tuple(layers), self._reservoir.sentence())

    def _check(self, calls: list[Call], own: int, source: int | None) -> None:
        for call in calls:
            n, m = call.weights.shape[2:]
            lengths = {"self": (own, own), "cross": (own, source), "encoder": (source, source)}
            if (n, m) != lengths[call.kind]:
                others = "" if source is None else f", and those of the source {source}"
                raise ValueError(
                    f"{call.name!r} has {n} queries and {m} keys, but the sequences have {own} "
                    f"tokens{others}; give the tokens of each side, or leave the layer out "
                    "by `only`"
                )
        if not self._calls:
            self._calls = [call.described() for call in calls]
        known, new = ([(c.name, c.heads) for c in each] for each in (self._calls, calls))
        if known != new:
            raise ValueError(
                f"every batch must call the same attention layers; the first called {known}, this "
                f"one {new}"
            )


@dataclass(frozen=True, eq=False)
class _Kept:
    """One sequence in all layers."""

    own: Text
    source: Text
    pieces: list[Piece]

    @classmethod
    def of(cls, calls: list[Call], row: int, own: Text, source: Text) -> "_Kept":
        sides = {"self": (own, own), "cross": (own, source), "encoder": (source, source)}
        return cls(own, source, [call.piece(row, *sides[call.kind]) for call in calls])


@dataclass(eq=False)
class _Reservoir:
    """Draws sequences so that those kept hold at most ``most`` tokens.

    Each sequence gets a random number when it comes; while there are too many tokens, the sequence
    with the largest number is dropped. One that is longer than ``most`` counts as ``most``.
    """

    most: int
    seed: int
    sizes: dict[int, int] = field(default_factory=dict)
    """Sequences that are kept, by their number, and how many tokens each counts."""

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        self._order = np.random.default_rng(self.seed)
        self._heap: list[tuple[float, int]] = []
        self._sequences = self._tokens = self._held = 0

    def offer(self, length: int) -> int:
        """The number of the next sequence; it is kept as long as it is among ``sizes``."""
        number = self._sequences
        self._sequences += 1
        self._tokens += length
        self.sizes[number] = min(length, self.most)
        self._held += self.sizes[number]
        heapq.heappush(self._heap, (-self._order.random(), number))
        while self._held > self.most:
            _, dropped = heapq.heappop(self._heap)
            self._held -= self.sizes.pop(dropped)
        return number

    def sentence(self) -> str | None:
        """What was left out, if anything was."""
        if self._held == self._tokens:
            return None
        return (
            f"{self._held:,} of {self._tokens:,} tokens are kept, from {len(self.sizes):,} of "
            f"{self._sequences:,} sequences, drawn at random (seed {self.seed})."
        )


@dataclass(frozen=True, eq=False)
class _Inputs:
    """A batch: token ids of the queries' side and, with an encoder, of the source."""

    own: Any
    source: Any = None
    padding: Tensor | None = None
    source_padding: Tensor | None = None


def _inputs(batch: Tensor | Mapping[str, Any]) -> _Inputs:
    if isinstance(batch, Tensor):
        return _Inputs(batch)
    if not isinstance(batch, Mapping) or not batch:
        raise TypeError(
            "each batch must be a tensor, or the keyword arguments of the model in a dict; got "
            f"{type(batch).__name__}"
        )
    if "decoder_input_ids" in batch:
        names = ("decoder_input_ids", "input_ids", "decoder_attention_mask", "attention_mask")
    elif "source" in batch:
        names = ("tokens", "source", "padding", "source_padding")
    else:
        own = next((name for name in ("input_ids", "tokens") if name in batch), next(iter(batch)))
        names = (own, "", "attention_mask" if "attention_mask" in batch else "padding", "")
    return _Inputs(*(batch.get(name) for name in names))


def _kind(name: str, n: int, m: int, own: int, source: int | None) -> str:
    """As ``kind_of``; a model that only encodes (BERT, ViT) has no source but its own tokens."""
    kind = kind_of(name, n, m, own, source)
    return "self" if kind == "encoder" and source is None else kind


def _named(ids: Any, read: Callable[[Any], Sequence[str]] | None) -> Texts | None:
    return None if ids is None or read is None else [list(read(row)) for row in ids]


def _length(tokens: Texts) -> int:
    """Of the first sequence; the others are compared with it later."""
    return len(tokens[0]) if len(tokens) else 0
