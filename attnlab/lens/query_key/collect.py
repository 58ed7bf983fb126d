"""Collect queries and keys of any torch model over many sequences, in bounded memory.

    points = collect(model, batches, tokenizer.convert_ids_to_tokens)

or, where the model is called in a way of its own, batch by batch:

    collector = Collector()
    for inputs, texts in batches:
        with attnlab.watch(model) as seen:
            model(inputs)
        collector.add(seen, texts)
    points = collector.points()

At most ``most`` tokens are kept (of an encoder and a decoder the longer text counts). Of more,
whole sequences are drawn at random; of a sequence that is longer, some of its tokens. Vectors are
stored in float16, so that each token and head takes 4·d bytes for query and key and at most 200 for
the rest, and n / 8 more for a mask of n keys that differs between heads; ``points()`` needs twice
that for a moment. Beside it there are only the recording of one batch and the weights of one layer.
"""

import copy
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.lens.query_key.outside import outside_products
from attnlab.lens.query_key.pieces import Call, Layer, Piece, assemble
from attnlab.lens.query_key.points import Points
from attnlab.lens.query_key.texts import Grid, Text, checked_tokens, texts_of, tokens_of
from attnlab.lens.record import Attention, Seen
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
    _check_batches(model, batches)
    collector = Collector(most=most, seed=seed, grid=grid)
    at = 0
    for batch in batches:
        inputs = _inputs(model, batch)
        with watch(model, only=only) as seen, torch.no_grad():
            model(**batch) if isinstance(batch, Mapping) else model(batch)
        rows = slice(at, at + len(inputs.own))
        with_source = inputs.source is not None
        collector.add(
            seen,
            _texts(inputs.own, read, or_places=with_source),
            padding=inputs.padding,
            source_tokens=_texts(inputs.source, read, or_places=True) if with_source else None,
            source_padding=inputs.source_padding,
            labels=None if labels is None else labels[rows],
            images=None if images is None else images[rows],
        )
        at = rows.stop
    for name, given in ("labels", labels), ("images", images):
        if given is not None and len(given) != at:
            raise ValueError(
                f"`{name}` should be one per sequence: got {len(given)}, and the batches hold {at} "
                "sequences"
            )
    return collector.points()


class Collector:
    """Collects recordings of one model; ``points()`` gives what it has kept.

    ``most`` tokens are kept; ``seed`` draws which sequences if there are more; ``grid`` are the
    (rows, columns) of patches where the sequences are images.
    """

    def __init__(self, *, most: int = MOST, seed: int = 0, grid: Grid | None = None) -> None:
        seed = check_integer("`seed`", seed, at_least=0)
        self._reservoir = _Reservoir(check_integer("`most`", most, at_least=1), seed)
        self._grid = grid
        self._kept: dict[int, _Kept] = {}
        self._layers: list[Layer] = []
        self._given: tuple[bool, tuple[int, ...] | None] | None = None

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
        if source_tokens is None and source_padding is not None:
            raise ValueError("`source_padding` needs `source_tokens`, the texts that it is about")
        if source_tokens is not None and tokens is None:
            raise ValueError("give `tokens`, those of the decoder, beside `source_tokens`")
        b, _, n, _ = seen[0].shape
        own = _length("tokens", tokens) or n
        source = _length("source_tokens", source_tokens)
        layers = [Layer.of(each, _kind(each, own, source)) for each in seen]
        self._check(seen, layers, own, source)
        described = {"labels": labels, "images": images, "grid": self._grid}
        mine = texts_of(b, own, tokens, padding=padding, **described)
        theirs = (
            mine
            if source is None
            else texts_of(b, source, source_tokens, what="source_tokens", padding=source_padding)
        )
        shape = None if mine[0].image is None else mine[0].image.shape
        given = (labels is not None, shape)
        if self._given not in (None, given):
            raise ValueError(
                "every batch needs what the first had: labels or none, images of one size or none"
            )
        reservoir = copy.deepcopy(self._reservoir)
        lengths = [max(len(x), len(y)) for x, y in zip(mine, theirs, strict=True)]
        numbers = dict(enumerate(reservoir.offer(length) for length in lengths))
        new = {
            number: _Kept.of(mine[row], None if source is None else theirs[row], number, reservoir)
            for row, number in numbers.items()
            if number in reservoir.sizes
        }
        # One layer after the other: the weights of all together would be the largest of all.
        self._layers = self._layers or layers
        for record, layer in zip(seen, self._layers, strict=True) if new else ():
            layer.outside = layer.outside or outside_products(record)
            call = Call.of(record, layer.kind)
            for row, number in numbers.items():
                if number in new:
                    new[number].add(call, row)
        self._given, self._reservoir = given, reservoir
        kept = self._kept | new
        self._kept = {number: kept[number] for number in sorted(reservoir.sizes)}

    def points(self) -> Points:
        """What was kept, in the order in which it came."""
        if not self._kept:
            raise ValueError("nothing was collected: give at least one batch")
        kept = list(self._kept.values())
        own = tokens_of([one.own for one in kept], self._grid)
        source = own if kept[0].own is kept[0].source else tokens_of([one.source for one in kept])
        sides = {"self": (own, own), "cross": (own, source), "encoder": (source, source)}
        layers = [
            assemble(layer, [one.pieces[at] for one in kept], sides[layer.kind])
            for at, layer in enumerate(self._layers)
        ]
        return Points(tuple(layers), self._reservoir.sentence())

    def _check(self, seen: Seen, layers: list[Layer], own: int, source: int | None) -> None:
        for record, layer in zip(seen, layers, strict=True):
            b, _, n, m = record.shape
            lengths = {"self": (own, own), "cross": (own, source), "encoder": (source, source)}
            if b != seen[0].shape[0] or (n, m) != lengths[layer.kind]:
                others = "" if source is None else f", and those of the source {source}"
                raise ValueError(
                    f"{record.name!r} attended with {n} queries and {m} keys in {b} rows, but the "
                    f"{seen[0].shape[0]} sequences have {own} tokens{others}; give the tokens of "
                    "each side; run whole sequences, without the cache of a decoder; where its "
                    "keys are no tokens, leave the layer out by `only`"
                )
        known, new = ({(x.name, x.shape) for x in each} for each in (self._layers, layers))
        if self._layers and known != new:
            odd = ", ".join(f"{name!r} {shape}" for name, shape in sorted(known ^ new)[:4])
            raise ValueError(
                "every batch should call the same attention layers; only some of the batches have "
                f"(heads, width) in {odd}; collect them apart, or choose layers by `only`"
            )


@dataclass(eq=False)
class _Kept:
    """One sequence in all layers."""

    own: Text
    source: Text
    pieces: list[Piece] = field(default_factory=list)

    @classmethod
    def of(cls, own: Text, source: Text | None, number: int, reservoir: "_Reservoir") -> "_Kept":
        draw = np.random.default_rng([reservoir.seed, number])
        own = own.sampled(reservoir.most, draw)
        return cls(own, own if source is None else source.sampled(reservoir.most, draw))

    def add(self, call: Call, row: int) -> None:
        own, source = self.own, self.source
        sides = {"self": (own, own), "cross": (own, source), "encoder": (source, source)}
        self.pieces.append(call.piece(row, *sides[call.kind]))


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


def _check_batches(model: nn.Module, batches: object) -> None:
    if isinstance(batches, Tensor | Mapping):
        raise TypeError("`batches` should be several; put this one into a list: [batch]")


def _inputs(model: nn.Module, batch: Tensor | Mapping[str, Any]) -> _Inputs:
    if isinstance(batch, Tensor):
        return _Inputs(batch)
    tensors = [] if not isinstance(batch, Mapping) else [
        name for name, value in batch.items() if isinstance(value, Tensor)
    ]  # fmt: skip
    if not tensors:
        raise TypeError(
            "each batch should be a tensor, or the keyword arguments of the model in a dict, got "
            f"{type(batch).__name__} (of a pair with targets, give the inputs alone)"
        )
    if "decoder_input_ids" in batch:
        names = ("decoder_input_ids", "input_ids", "decoder_attention_mask", "attention_mask")
    elif "source" in batch:
        names = ("tokens", "source", "padding", "source_padding")
    elif _decodes(model):
        raise ValueError(
            "this model has an encoder and a decoder, so each batch needs `decoder_input_ids` "
            "beside `input_ids`; to look at its encoder alone, collect from model.get_encoder()"
        )
    else:
        own = next((name for name in ("input_ids", "tokens") if name in tensors), tensors[0])
        names = (own, "", "attention_mask" if "attention_mask" in batch else "padding", "")
    return _Inputs(*(batch.get(name) for name in names))


def _decodes(model: nn.Module) -> bool:
    """Whether this is a whole encoder-decoder of Hugging Face (its parts have the same config)."""
    both = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return both and any(name.split(".")[-1] == "decoder" for name, _ in model.named_modules())


def _texts(ids: Any, read: Callable[[Any], Sequence[str]] | None, *, or_places: bool) -> Any:
    """The texts of each sequence's tokens; without ``read`` their places, or None."""
    if read is None:
        return [[str(place) for place in range(len(row))] for row in ids] if or_places else None
    found = [read(row) for row in ids]
    for row, texts in zip(ids, found, strict=True):
        if isinstance(texts, str) or len(texts) != len(row):
            raise ValueError(
                f"`read` should return the texts of all {len(row)} tokens of a sequence in a list, "
                f"as tokenizer.convert_ids_to_tokens does; it returned {str(texts)[:60]!r}"
            )
    return found


def _kind(record: Attention, own: int, source: int | None) -> str:
    return "self" if source is None else kind_of(record.name, *record.shape[2:], own, source)


def _length(what: str, tokens: Texts | None) -> int | None:
    """The length of the first sequence; the others are compared with it later."""
    return None if tokens is None else len(checked_tokens(what, tokens)[0])
