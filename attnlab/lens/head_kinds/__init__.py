"""Which head does what: the kinds of the heads of a model, measured over many sequences.

    finder = HeadFinder()
    for inputs in batches:
        with attnlab.watch(model) as seen:
            model(inputs)
        finder.add(seen, inputs)
    finder.found()

Each kind has a **share**: the part of a query's attention that goes to certain keys, averaged over
the queries that have such a key.

    previous token   the key one place before the query     (Voita et al. 2019, arXiv:1905.09418)
    next token       the key one place after it
    same token       the query's own place
    first token      the first real token                   (Xiao et al. 2023, arXiv:2309.17453)
    delimiter        tokens such as "." and "[SEP]"         (Clark et al. 2019, arXiv:1906.04341)
    duplicate token  earlier places with the query's token  (Wang et al. 2022, arXiv:2211.00593)
    induction        places before the query, right after an earlier place with the query's token:
                     … A B … A → B                          (Olsson et al. 2022, arXiv:2209.11895)

Beside each share stands what **uniform** attention, the same for all keys that the query may attend
to, would give for the same queries. ``positional`` (0 to 1) says how much of the weights position
alone explains; it is defined at ``positional_share``.

How a head gets its kind, with ``LEAST`` = 0.4, ``TIMES`` = 2, ``QUERIES`` = 20, ``EXPLAINED`` = 0.5
and ``ALL_BUT_EXPLAINED`` = 0.9:

1. A share counts if it is at least LEAST, at least TIMES what uniform attention would give, and
   measured over at least QUERIES queries. Of those that count, the one that exceeds uniform
   attention most is the kind; of equal ones, that which stands first above.
2. "induction" and "duplicate token" are not claimed where position explains at least
   ALL_BUT_EXPLAINED of the weights: if all sequences repeat at one distance, looking back by that
   distance gives the same weights. Measure on repeats of several distances.
3. No share counts, but position explains at least EXPLAINED of the weights: "positional".
4. Everything else is "mixed".

A kind is a statement about the weights on these sequences; it does not say what the rest of the
model makes of them.
"""

from collections.abc import Mapping, Sequence
from reprlib import repr as _short

import torch
from torch import Tensor

from attnlab.core.lazy import modules_of
from attnlab.lens.head_kinds.kinds import Heads
from attnlab.lens.head_kinds.sums import LayerSums, measure
from attnlab.lens.heads import DELIMITERS, check_delimiters
from attnlab.lens.record import Seen
from attnlab.lens.recorded_layers import layers_of

__getattr__ = modules_of(__name__)

Tokens = Tensor | Sequence[str] | Sequence[Sequence[str]]


def find_heads(
    seen: Seen | Mapping[str, Tensor],
    tokens: Tokens,
    *,
    padding: Tensor | None = None,
    mask: Tensor | None = None,
    delimiters: Sequence[str] | frozenset[str] = DELIMITERS,
) -> Heads:
    """The heads of one batch; several batches are added by ``HeadFinder``, which has the details.

    A table: ``print(find_heads(seen, tokens))``.
    """
    finder = HeadFinder(delimiters=delimiters)
    finder.add(seen, tokens, padding=padding, mask=mask)
    return finder.found()


class HeadFinder:
    """Adds up what the heads of a model do, batch by batch; ``found()`` gives the heads.

    Batches may differ in length and size, and count by their queries: several batches give what one
    large batch would give. Memory: half a megabyte per head, however many batches there are.

    ``delimiters`` are texts of tokens.
    """

    def __init__(self, *, delimiters: Sequence[str] | frozenset[str] = DELIMITERS) -> None:
        self._delimiters = check_delimiters(delimiters)
        self._layers: dict[str, LayerSums] = {}

    def add(
        self,
        seen: Seen | Mapping[str, Tensor],
        tokens: Tokens,
        *,
        padding: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Add one batch.

        ``seen``     what ``attnlab.watch`` recorded, or weights as {layer's name: (b, h, n, n)}
        ``tokens``   (b, n) token numbers, or texts, one list per sequence; delimiters are found in
                     texts only
        ``padding``  (b, n) bool, True = a real token
        ``mask``     beside weights given as a dict: bool, True = may attend, broadcastable to
                     (b, h, n, n); it decides what uniform attention would be. Records have their
                     own.

        Raises a ValueError where queries and keys are not those of one sequence (cross-attention,
        decoding with a cache), or where the layers are not those of the batches before.
        """
        layers = layers_of(seen, mask)
        texts, numbers = check_batch(layers, tokens, padding, self._layers)
        measured = {
            name: measure(weights, allowed, numbers, padding, texts, self._delimiters)
            for name, weights, allowed in layers
        }
        for name, sums in measured.items():
            self._layers[name] = self._layers[name] + sums if name in self._layers else sums

    def found(self) -> Heads:
        """The heads of all batches so far."""
        if not self._layers:
            raise ValueError("no batch was added yet: call add(seen, tokens) first")
        return Heads(
            [
                head
                for layer, (name, sums) in enumerate(self._layers.items())
                for head in sums.heads(layer, name)
            ]
        )


# ---- reading the arguments


def check_batch(
    layers: Sequence[tuple[str, Tensor, Tensor | None]],
    tokens: object,
    padding: Tensor | None,
    before: Mapping[str, LayerSums],
) -> tuple[list[list[str]] | None, Tensor]:
    """The texts of a batch, if texts were given, and its numbers (b, n); a ValueError or TypeError
    for a batch that does not fit its layers, or the layers of the batches ``before``."""
    texts, numbers = _read_tokens(tokens)
    _check_padding(padding, numbers)
    for name, weights, allowed in layers:
        _check_shape(name, weights, allowed, numbers)
    ours = {name: sums.count for name, sums in before.items()}
    theirs = {name: weights.shape[1] for name, weights, _ in layers}
    if ours and ours != theirs:
        raise ValueError(
            "the layers should be those of the batches before, name → heads: "
            f"{_short(ours)}, got {_short(theirs)}; use a HeadFinder for each model"
        )
    return texts, numbers


def _read_tokens(tokens: object) -> tuple[list[list[str]] | None, Tensor]:
    """The texts, if texts were given, and numbers (b, n) that are equal where tokens are."""
    if isinstance(tokens, Tensor):
        if tokens.dim() != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
            raise TypeError(
                f"tokens should be whole numbers (b, n), got {tokens.dtype} of shape "
                f"{tuple(tokens.shape)}"
            )
        return None, tokens
    if isinstance(tokens, str) or not isinstance(tokens, Sequence) or not len(tokens):
        raise TypeError(
            "tokens should be token numbers (b, n), or texts in lists, one list per sequence, got "
            f"{_short(tokens)}"
        )
    rows = [tokens] if isinstance(tokens[0], str) else tokens
    texts = [list(row) for row in rows if isinstance(row, Sequence) and not isinstance(row, str)]
    if len(texts) < len(rows) or not all(isinstance(text, str) for row in texts for text in row):
        raise TypeError(
            "tokens should hold texts only, one list per sequence, or be a tensor of token numbers"
        )
    lengths = sorted({len(row) for row in texts})
    if len(lengths) > 1:
        raise ValueError(
            f"all sequences of a batch should have one length, padding included, got {lengths}"
        )
    known: dict[str, int] = {}
    numbers = [[known.setdefault(text, len(known)) for text in row] for row in texts]
    return texts, torch.tensor(numbers)


def _check_padding(padding: object, numbers: Tensor) -> None:
    if padding is None:
        return
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        raise TypeError("padding should be a bool tensor (b, n), True = a real token, or None")
    if padding.shape != numbers.shape:
        raise ValueError(
            f"padding should have the shape of the tokens, {tuple(numbers.shape)}, got "
            f"{tuple(padding.shape)}"
        )


def _check_shape(name: str, weights: Tensor, mask: Tensor | None, numbers: Tensor) -> None:
    b, _, n, m = weights.shape
    if (b, n, m) != (*numbers.shape, numbers.shape[1]):
        raise ValueError(
            f"{name!r} has {b} sequences of {n} queries and {m} keys, tokens are {len(numbers)} "
            f"sequences of {numbers.shape[1]}: heads are found in the attention of a sequence to "
            "itself; leave other layers (cross-attention) out by watch(model, only=…), and give "
            "the tokens of this batch"
        )
    fits = mask is None or (
        mask.dim() == 4
        and all(ours in (1, full) for ours, full in zip(mask.shape, weights.shape, strict=True))
    )
    if not fits:
        raise ValueError(
            f"mask should be broadcastable to the weights, {tuple(weights.shape)}, got "
            f"{tuple(mask.shape if mask is not None else ())}"
        )
