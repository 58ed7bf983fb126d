"""What a model is called with, checked at the door; every refusal is a sentence."""

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from attnlab.core.lookup import checked_ids
from attnlab.core.positions import Positions, positions_of
from attnlab.core.shapes import is_stored
from attnlab.core.visibility import Visibility
from attnlab.models.mixers import structural
from attnlab.structures.structure import Structure


class Reader(Protocol):
    """The parts of a model that decide which input fits it."""

    vocab: Any
    features: int | None
    max_len: int
    embedding: Any


class VectorReader(Reader, Protocol):
    """A model that can be given vectors in the place of tokens."""

    dim: int

    @property
    def embeds_by_position(self) -> bool: ...

    def parameters(self) -> Iterator[Any]: ...


class Reading(NamedTuple):
    """What a model reads, checked: nothing behind the door checks it again.

    ``tokens``    (b, n) int64 within the vocabulary, or (b, n, features); fillers are 0. Where
                  ``embedded``, vectors (b, n, dim) that take the place of those of tokens.
    ``padding``   (b, n) bool, True at real tokens; that of the structure if there is one.
    ``structure`` what connects the tokens, where the model is told; or which token sees which.
    ``start``     positions that were read before, one number or one for each row (b,).
    """

    tokens: Tensor
    padding: Tensor | None = None
    structure: Any = None
    start: int | Tensor = 0
    embedded: bool = False

    @classmethod
    def of(
        cls, model: Reader, tokens: Tensor, padding: Tensor | None = None, structure: Any = None,
        start: int | Tensor = 0,
    ) -> "Reading":  # fmt: skip
        """The reading, or a ValueError or TypeError that says what does not fit the model."""
        check_input(tokens, padding, _largest(start), model)
        if structure is not None:
            padding = padding_of(structure, model, tokens, padding)
        if model.features is not None:
            if padding is not None:  # a NaN in a padded vector must not spread
                tokens = tokens.masked_fill(~padding[..., None], 0)
            return cls(tokens.to(model.embedding.weight.dtype), padding, structure, start)
        if padding is not None:
            tokens = tokens.masked_fill(~padding, 0)
        return cls(in_vocabulary(tokens, model.vocab), padding, structure, start)

    @classmethod
    def either(
        cls, model: Any, tokens: Tensor | None, inputs_embeds: Tensor | None,
        padding: Tensor | None = None, structure: Any = None, start: int | Tensor = 0, *,
        names: tuple[str, str] = ("tokens", "inputs_embeds"),
    ) -> "Reading":  # fmt: skip
        """The reading of tokens, or of vectors in their place: one of the two, by those names."""
        if (tokens is None) == (inputs_embeds is None):
            raise ValueError(
                f"give either {names[0]} or {names[1]}, the vectors that take the place of theirs; "
                f"{'neither is' if tokens is None else 'both are'} given"
            )
        if tokens is not None:
            return cls.of(model, tokens, padding, structure, start)
        assert inputs_embeds is not None
        return cls._of_vectors(model, names[1], inputs_embeds, padding, structure, start)

    @classmethod
    def _of_vectors(
        cls, model: VectorReader, name: str, vectors: Tensor, padding: Tensor | None,
        structure: Any, start: int | Tensor,
    ) -> "Reading":  # fmt: skip
        check_vectors(name, vectors, model)
        _check_place(name, vectors, padding, _largest(start), model)
        if structure is not None:
            padding = padding_of(structure, model, vectors, padding)
        if padding is not None:  # a NaN in a padded vector must not spread
            vectors = vectors.masked_fill(~padding[..., None], 0)
        own = (each.dtype for each in model.parameters() if each.is_floating_point())
        return cls(vectors.to(next(own, vectors.dtype)), padding, structure, start, embedded=True)

    @property
    def positions(self) -> Positions:
        """Where each token stands: one after the other, unless the structure says otherwise."""
        if isinstance(self.structure, Visibility) and self.structure.positions is not None:
            return self.structure.positions
        n, device = self.tokens.shape[1], self.tokens.device
        return positions_of(n, device, padding=self.padding, start=self.start)


class Memory(NamedTuple):
    """What a decoder reads beside its own tokens, checked: the encoded source (b, m, dim), its
    padding, and what connects its tokens."""

    values: Tensor | None = None
    padding: Tensor | None = None
    structure: Any = None

    @classmethod
    def of(
        cls, model: Any, tokens: Tensor, values: Tensor | None, padding: Tensor | None,
        structure: Any,
    ) -> "Memory":  # fmt: skip
        """The memory, or a ValueError or TypeError that says what does not fit the model."""
        if (values is None) == (model.kind == "encoder_decoder"):
            raise ValueError(
                "memory=model.encode(source) belongs to an encoder_decoder, and only to that; "
                f"this model's kind is {model.kind!r} and memory is "
                f"{'missing' if values is None else 'given'}"
            )
        if values is None:
            if padding is not None:
                raise ValueError("memory_padding needs the memory that it belongs to")
            return cls(structure=structure)
        check_memory(values, tokens, getattr(model, "memory_dim", model.dim))
        if padding is not None:
            check_padding("memory_padding", padding, values)
        if structure is not None and visibility(structure) is None:
            padding = padding_of(structure, model, values, padding)
        return cls(values, padding, structure)


def padding_of(structure: Any, model: Any, tokens: Tensor, padding: Tensor | None) -> Tensor | None:
    """The padding of a structure that fits the tokens and a model that is told structures."""
    if isinstance(structure, Visibility):
        check_visibility(structure, model, tokens)
        return padding
    if not model.reads_structure:
        raise ValueError(
            "no part of this model is told a structure; leave it out, or build the model with "
            f"a mechanism that is, one of {', '.join(structural())}"
        )
    fitting: Tensor = Structure.fitting(structure, tokens, padding).padding
    return fitting


def visibility(structure: Any) -> Visibility | None:
    """Which token of those that are written sees which, if that is what is given."""
    return structure if isinstance(structure, Visibility) else None


def check_visibility(given: Visibility, model: Any, tokens: Tensor) -> None:
    """A ValueError unless it fits the tokens, and a model that answers at each of them."""
    if model.kind == "classifier":
        raise ValueError(
            "which token sees which can be told to models that answer at each token; this model's "
            f"kind is {model.kind!r}"
        )
    given.check_fits(tokens)


def check_input(tokens: Tensor, padding: Tensor | None, start: int, model: Reader) -> None:
    """Shape, kind of number, length, device and padding of what a model is called with."""
    check_tensor("the input", tokens)
    _check_kind_of_number(tokens, model.features)
    _check_place("the input", tokens, padding, start, model)


def _largest(start: int | Tensor) -> int:
    return start if isinstance(start, int) else int(start.max())


def check_vectors(name: str, vectors: Tensor, model: VectorReader) -> None:
    """Vectors (b, n, dim) of real numbers, for a model that has a place for them."""
    check_tensor(name, vectors)
    if model.embeds_by_position:
        raise ValueError(
            f"this model makes the vector of a token from the token and its position together, so "
            f"{name} has no place in it; give tokens, or build it with other positions"
        )
    if vectors.ndim != 3 or vectors.shape[2] != model.dim or not vectors.is_floating_point():
        raise ValueError(
            f"{name} should be float vectors of shape (b, n, dim={model.dim}), as "
            f"model.embedding(tokens) gives them, got {vectors.dtype} of shape "
            f"{tuple(vectors.shape)}"
        )


def _check_place(
    name: str, tokens: Tensor, padding: Tensor | None, start: int, model: Reader
) -> None:
    """Length, device and padding of tokens, or of vectors in their place."""
    n = tokens.shape[1]
    if n == 0:
        raise ValueError("the sequence is empty (n = 0); give at least one position")
    if start + n > model.max_len:
        raise ValueError(
            f"the sequence has {start + n} positions, more than the model's "
            f"max_len={model.max_len}; shorten it, or build the model with a larger max_len"
        )
    table = model.embedding
    home = next(chain(table.parameters(), table.buffers())).device  # of integers: no parameter
    if tokens.device != home:
        raise ValueError(
            f"{name} is on {tokens.device} but the model is on {home}; move one of them with .to()"
        )
    if padding is not None:
        check_padding("padding", padding, tokens)


def check_padding(name: str, padding: Tensor, tokens: Tensor) -> None:
    """``padding`` is bool, (b, n) as ``tokens`` are, and on their device."""
    check_tensor(name, padding)
    if padding.device != tokens.device:
        raise ValueError(
            f"{name} is on {padding.device} but the model is on {tokens.device}; move it"
        )
    if padding.dtype != torch.bool or padding.shape != tokens.shape[:2]:
        raise ValueError(
            f"{name} should be bool of shape (b, n) = {tuple(tokens.shape[:2])}, True at real "
            f"tokens, got {padding.dtype} of shape {tuple(padding.shape)}"
        )


def check_tensor(name: str, value: object) -> None:
    """An ordinary tensor: neither another type, nor sparse, nor nested."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} should be a tensor, got a {type(value).__name__}; torch.as_tensor makes one"
        )
    if value.layout != torch.strided or value.is_nested:
        kind = "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
        raise TypeError(f"{name} should be an ordinary dense tensor, got {kind}")
    if is_stored(value.dtype):
        raise TypeError(f"{name} is {value.dtype}, which only stores; give {name}.bfloat16()")


def check_memory(memory: Tensor, tokens: Tensor, dim: int) -> None:
    """``memory`` is the encoder's output (b, m, dim) for as many sequences as ``tokens`` has."""
    check_tensor("memory", memory)
    if memory.ndim != 3 or memory.shape[0] != len(tokens) or memory.shape[2] != dim:
        raise ValueError(
            f"memory should have shape (b, m, dim) = ({len(tokens)}, m, {dim}), "
            f"got {tuple(memory.shape)}"
        )


def _check_kind_of_number(tokens: Tensor, features: int | None) -> None:
    if features is not None:
        if tokens.ndim != 3 or tokens.shape[2] != features or not tokens.is_floating_point():
            raise ValueError(
                f"the model reads float vectors of shape (b, n, features={features}), "
                f"got {tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        return
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(
            f"tokens should be whole numbers (torch.long), got {tokens.dtype}; for float vectors "
            "build the model with features=… instead of vocab"
        )
    if tokens.ndim != 2:
        raise ValueError(
            f"tokens should have shape (b, n), got {tuple(tokens.shape)}; "
            "for one sequence: tokens[None]"
        )


def in_vocabulary(tokens: Tensor, vocab: int | None) -> Tensor:
    """The tokens as int64, after checking their range."""
    advice = f"vocab is {vocab}, and fillers are marked by padding=…, not by a special number"
    return tokens if vocab is None else checked_ids(tokens, vocab, "tokens", advice)
