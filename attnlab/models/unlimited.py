"""A trained encoder-decoder that attends to an input of any length (Unlimiformer).

    with retrieving(model, neighbours=256):
        states = encode(model.encode, tokens, model.max_len)   # any number of tokens
        model.decode(prompt, memory=states)

Inside the block every cross-attention of ``model`` fetches, for each query, the states with the
largest scores (``attnlab.mechanisms.learned.unlimiformer``); afterwards the model is as it was.
``model`` is a ``TinyTransformer`` of kind "encoder_decoder", or any torch model whose layers of
cross-attention are those of Hugging Face's T5 or BART; these are given their states as
``encoder_outputs``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.options import Size
from attnlab.core.probe import note
from attnlab.core.search import Index
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.learned.unlimiformer import (
    Projected,
    UnlimiformerOptions,
    found_states,
    in_states,
    weighed,
)


@dataclass(frozen=True)
class Parts:
    """The projections of a layer of cross-attention, its heads, and the scale of its scores."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear
    heads: int
    scale: float


def parts_of(attention: Any) -> Parts:
    """The parts of a layer of attnlab's own, of T5 or of BART; a TypeError for others."""
    if isinstance(attention, FullAttention):
        own = attention.heads
        linears = (own.query, own.key, own.value, own.output)
        return Parts(*linears, own.heads, attention.scale)
    if all(hasattr(attention, name) for name in ("q_proj", "k_proj", "v_proj", "out_proj")):
        linears = tuple(getattr(attention, f"{name}_proj") for name in ("q", "k", "v", "out"))
        return Parts(*linears, attention.num_heads, attention.scaling)
    if all(hasattr(attention, name) for name in ("q", "k", "v", "o", "n_heads")):
        linears = tuple(getattr(attention, name) for name in "qkvo")
        return Parts(*linears, attention.n_heads, getattr(attention, "scaling", 1.0))
    raise TypeError(
        "retrieving knows the cross-attention of TinyTransformer, of T5 and of BART; it does not "
        f"know the projections of a {type(attention).__name__}"
    )


class Retrieving(nn.Module):
    """In place of a layer of cross-attention, with its projections; called as that layer was."""

    def __init__(self, attention: nn.Module, neighbours: int, indexes: Sequence[Index]) -> None:
        super().__init__()
        self.attention = attention  # the original, whose weights these are
        self.neighbours, self.indexes = neighbours, indexes
        parts_of(attention)

    def attend(self, x: Tensor, states: Tensor, padding: Tensor | None) -> Tensor:
        """(b, n, dim) and states (b, m, dim) → (b, n, dim)."""
        own = parts_of(self.attention)
        q, key_map, value_map, bias = Projected.of(x, own.query, own.key, own.value, own.heads)
        moved = in_states(note("queries", q), key_map)
        found = self._search(moved, states, padding)
        out = weighed(moved, found, states, value_map, value_bias=bias, scale=own.scale)
        return own.output(out.to(x.dtype).transpose(1, 2).flatten(2))

    def _search(self, moved: Tensor, states: Tensor, padding: Tensor | None) -> Tensor:
        """(b, h, n, dim) → (b, h, n, k)."""
        if not self.indexes:
            return found_states(
                moved, states, padding, UnlimiformerOptions(neighbours=self.neighbours)
            )
        _check_indexes(self.indexes, states, padding)
        pairs = zip(self.indexes, moved.flatten(1, 2), strict=True)
        found = [index.search(q, self.neighbours).positions for index, q in pairs]
        return torch.stack(found).unflatten(1, moved.shape[1:3])


class _OfTiny(Retrieving):
    def forward(
        self, x: Tensor, *, context: Tensor, context_padding: Tensor | None = None
    ) -> Tensor:
        return self.attend(x, context, context_padding)


class _OfLibrary(Retrieving):
    """In Hugging Face's models. The cache stays empty, for no keys are computed."""

    def masked(self, x: Tensor, states: Tensor, mask: Tensor | None, weights: bool) -> Tensor:
        """``attend`` with the library's mask; ``weights`` says whether it asks for them."""
        if weights:
            raise ValueError(
                "cross-attention by retrieval has no weights over all states; leave "
                "output_attentions out, and record the notes 'neighbours' and 'neighbour_weights'"
            )
        return self.attend(x, states, _padding(mask))


class _OfT5(_OfLibrary):
    def forward(
        self, hidden_states: Tensor, mask: Tensor | None = None, *, key_value_states: Tensor,
        position_bias: Tensor | None = None, past_key_values: Any = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None, None]:  # fmt: skip
        out = self.masked(hidden_states, key_value_states, mask, output_attentions)
        return out, position_bias, None


class _OfBart(_OfLibrary):
    def forward(
        self, hidden_states: Tensor, key_value_states: Tensor, past_key_values: Any = None,
        attention_mask: Tensor | None = None, output_attentions: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        return self.masked(hidden_states, key_value_states, attention_mask, output_attentions), None


def _padding(mask: Tensor | None) -> Tensor | None:
    """Which states are real, by a mask (b, 1, n, m) that is bool or added to the scores."""
    if mask is None:
        return None
    row = mask[:, 0, 0]
    return row if row.dtype == torch.bool else row == 0


def _check_indexes(indexes: Sequence[Index], states: Tensor, padding: Tensor | None) -> None:
    sizes = [index.size for index in indexes]
    if sizes != [states.shape[1]] * len(states):
        raise ValueError(
            f"the indexes hold {sizes} states, but {len(states)} sequences of {states.shape[1]} "
            "states came; give one index for each sequence, of the states that the decoder is given"
        )
    if padding is not None and not padding.all():
        raise ValueError("indexes hold all states, padded ones as well; search without indexes")


@contextmanager
def retrieving(
    model: nn.Module, *, neighbours: Size = 64, indexes: Sequence[Index] = ()
) -> Iterator[nn.Module]:
    """Every cross-attention of ``model`` attends to the best ``neighbours`` states of each query.

    ``indexes`` (one for each sequence, of its states) are searched instead of the states
    themselves: an approximate index is built once for all layers and all steps of decoding.
    """
    check_integer("neighbours", neighbours, at_least=1)
    found = list(_cross_attentions(model))
    if not found:
        raise ValueError(
            f"this {type(model).__name__} has no cross-attention that retrieving knows: give an "
            "encoder-decoder, a TinyTransformer or Hugging Face's T5 or BART"
        )
    try:
        for parent, name, kind in found:
            setattr(parent, name, kind(getattr(parent, name), neighbours, indexes))
        yield model
    finally:
        for parent, name, _ in found:
            replaced = getattr(parent, name)
            if isinstance(replaced, Retrieving):
                setattr(parent, name, replaced.attention)


_KINDS = {"cross": _OfTiny, "EncDecAttention": _OfT5, "encoder_attn": _OfBart}
"""Where a layer keeps its cross-attention → what takes its place."""


def _cross_attentions(model: nn.Module) -> Iterator[tuple[nn.Module, str, type[Retrieving]]]:
    for parent in model.modules():
        for name, kind in _KINDS.items():
            if isinstance(getattr(parent, name, None), nn.Module):
                yield parent, name, kind
