"""Checks of what a model is called with; every refusal is a sentence."""

from typing import Any, Protocol

import torch
from torch import Tensor

from attnlab.core.lookup import checked_ids
from attnlab.core.shapes import is_stored


class Reader(Protocol):
    """The parts of a model that decide which input fits it."""

    features: int | None
    max_len: int
    embedding: Any


def check_input(tokens: Tensor, padding: Tensor | None, start: int, model: Reader) -> None:
    """Shape, kind of number, length, device and padding of what a model is called with."""
    check_tensor("the input", tokens)
    _check_kind_of_number(tokens, model.features)
    n = tokens.shape[1]
    if n == 0:
        raise ValueError("the sequence is empty (n = 0); give at least one position.")
    if start + n > model.max_len:
        raise ValueError(
            f"the sequence has {start + n} positions, more than the model's "
            f"max_len={model.max_len}. Shorten it, or build the model with a larger max_len."
        )
    home = next(model.embedding.parameters()).device
    if tokens.device != home:
        raise ValueError(
            f"the input is on {tokens.device} but the model is on {home}; "
            "move one of them with .to()."
        )
    if padding is not None:
        check_padding("padding", padding, tokens)


def check_padding(name: str, padding: Tensor, tokens: Tensor) -> None:
    """``padding`` is bool, (b, n) as ``tokens`` are, and on their device."""
    check_tensor(name, padding)
    if padding.device != tokens.device:
        raise ValueError(
            f"{name} is on {padding.device} but the model is on {tokens.device}; move it."
        )
    if padding.dtype != torch.bool or padding.shape != tokens.shape[:2]:
        raise ValueError(
            f"{name} must be bool of shape (b, n) = {tuple(tokens.shape[:2])}, True at real "
            f"tokens; got {padding.dtype} of shape {tuple(padding.shape)}."
        )


def check_tensor(name: str, value: object) -> None:
    """An ordinary tensor: neither another type, nor sparse, nor nested."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a tensor; got a {type(value).__name__}. torch.as_tensor makes one."
        )
    if value.layout != torch.strided or value.is_nested:
        kind = "a nested tensor" if value.is_nested else f"a tensor of layout {value.layout}"
        raise TypeError(f"{name} must be an ordinary dense tensor; got {kind}.")
    if is_stored(value.dtype):
        raise TypeError(f"{name} is {value.dtype}, which only stores; give {name}.bfloat16().")


def check_memory(memory: Tensor, tokens: Tensor, dim: int) -> None:
    """``memory`` is the encoder's output (b, m, dim) for as many sequences as ``tokens`` has."""
    check_tensor("memory", memory)
    if memory.ndim != 3 or memory.shape[0] != len(tokens) or memory.shape[2] != dim:
        raise ValueError(
            f"memory must have shape (b, m, dim) = ({len(tokens)}, m, {dim}); "
            f"got {tuple(memory.shape)}."
        )


def _check_kind_of_number(tokens: Tensor, features: int | None) -> None:
    if features is not None:
        if tokens.ndim != 3 or tokens.shape[2] != features or not tokens.is_floating_point():
            raise ValueError(
                f"the model reads float vectors of shape (b, n, features={features}); "
                f"got {tokens.dtype} of shape {tuple(tokens.shape)}."
            )
        return
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise ValueError(
            f"tokens must be whole numbers (torch.long); got {tokens.dtype}. For float vectors "
            "build the model with features=… instead of vocab."
        )
    if tokens.ndim != 2:
        raise ValueError(
            f"tokens must have shape (b, n); got {tuple(tokens.shape)}. "
            "For one sequence: tokens[None]."
        )


def in_vocabulary(tokens: Tensor, vocab: int | None) -> Tensor:
    """The tokens as int64, after checking their range."""
    advice = f"vocab is {vocab}, and fillers are marked by padding=…, not by a special number"
    return tokens if vocab is None else checked_ids(tokens, vocab, "tokens", advice)
