"""Place a typed text on maps that are there already.

    place = placer(model, maps, task.encode, task.tokens)
    place("for x in range(3):")                  # Maps of the typed tokens
    QueryKeySpace(maps, place=place)             # a sentence can be typed in

With a tokenizer of Hugging Face:

    placer(model, maps, partial(tokenizer, return_tensors="pt"), tokenizer.convert_ids_to_tokens)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.lens.query_key.collect import collect
from attnlab.lens.query_key.maps import Maps

LONGEST = 512
"""Tokens of a typed text: the work grows with the square of their number."""


def placer(
    model: nn.Module,
    maps: Maps,
    encode: Callable[[str], Any],
    read: Callable[[Any], Sequence[str]],
    *,
    only: str | Sequence[str] | None = None,
) -> Callable[[str], Maps]:
    """A function from a text to the maps of its tokens, placed on ``maps``.

    ``encode``  from a text to its ids: a tensor or list (n) or (1, n), or the keyword arguments
                of the model in a dict
    ``read``    from the ids of one sequence to the texts of its tokens
    ``only``    the layers that the maps were collected from, as in ``collect``

    The model runs as it is, on the device of its parameters. The function raises ValueError or
    TypeError for a text that is empty, has more than 512 tokens or cannot be read by the model.
    """
    for name, function in ("encode", encode), ("read", read):
        if not callable(function):
            raise TypeError(f"`{name}` should be a function, got {type(function).__name__}")
    if not isinstance(maps, Maps):
        raise TypeError(f"`maps` are what `project` returns, got {type(maps).__name__}")

    def place(text: str) -> Maps:
        if not isinstance(text, str):
            raise TypeError(f"a text is placed, got {type(text).__name__}")
        if not text.strip():
            raise ValueError("the text is empty; type a few words")
        batch = _on(_device(model), encode(text))
        count = _tokens(batch)
        try:
            points = collect(model, [batch], read, only=only)
        except (IndexError, RuntimeError) as error:
            raise ValueError(
                f"the model cannot read this text of {count} tokens ({error}); is it too long for "
                "it, or `encode` not its own?"
            ) from error
        return maps.place(points)

    return place


def _device(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _on(device: torch.device, ids: Any) -> Any:
    """A batch of one sequence, from what ``encode`` returned."""
    if isinstance(ids, Mapping):
        return {name: _row(value).to(device) for name, value in ids.items()}
    return _row(ids).to(device)


def _row(ids: Any) -> Tensor:
    """(1, n)."""
    try:
        found = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"`encode` should return ids, or the model's keyword arguments in a dict, got "
            f"{type(ids).__name__}"
        ) from error
    row = found[None] if found.dim() == 1 else found
    if row.dim() != 2 or len(row) != 1:
        raise ValueError(
            f"`encode` should return the ids of one sequence, (n) or (1, n), got a tensor of shape "
            f"{tuple(found.shape)}"
        )
    return row


def _tokens(batch: Any) -> int:
    row = next(iter(batch.values())) if isinstance(batch, Mapping) else batch
    count = row.shape[1]
    if count == 0:
        raise ValueError("the text has no tokens; type a few words")
    if count > LONGEST:
        raise ValueError(f"the text has {count:,} tokens, more than {LONGEST}; shorten it")
    return int(count)
