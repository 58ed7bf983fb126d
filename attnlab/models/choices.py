"""What a TinyTransformer may be built from and given; every refusal is a sentence."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.suggest import suggestion

KINDS = ("language_model", "classifier", "encoder_decoder")
NORMS = ("pre", "post")
GIVEN = frozenset({"dim", "heads", "causal"})
POSITIONS = ("learned", "sinusoidal", "none")

Attention = str | nn.Module | Callable[..., nn.Module]


class Reader(Protocol):
    """The parts of a model that decide which input fits it."""

    features: int | None
    max_len: int
    embedding: Any


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be a whole number of at least 1; got {size!r}.")


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"there is no {name} {value!r}{suggestion(str(value), known)}")


def check_choices(kind: str, norm: str, positions: str, dropout: float) -> None:
    check_choice("kind", kind, KINDS)
    check_choice("norm", norm, NORMS)
    check_choice("positions", positions, POSITIONS)
    if isinstance(dropout, str) or not 0 <= dropout < 1:
        raise ValueError(f"dropout is a probability, 0 ≤ dropout < 1; got {dropout!r}.")


def check_options(options: Any) -> None:
    """``attention_options``: named options of a mechanism, or a list of them."""
    for each in as_list(options):
        if each is not None and not isinstance(each, Mapping):
            raise TypeError(
                'attention_options are keyword arguments as a dict, such as {"form": "naive"}, or '
                f"a list of one dict (or None) per layer; got {each!r}."
            )
        for name in GIVEN.intersection(each or ()):
            raise ValueError(f"attention_options cannot say {name!r}: the model itself decides it.")


def check_heads(dim: int, heads: int) -> None:
    if dim % heads:
        fits = [h for h in range(1, dim + 1) if dim % h == 0]
        near = min(fits, key=lambda h: abs(h - heads))
        raise ValueError(
            f"heads must divide dim, so that each head has the same width; dim={dim} does not "
            f"split into heads={heads}. The nearest number that fits is heads={near}."
        )


def check_ends(kind: str, vocab: int | None, classes: int | None, features: int | None) -> None:
    """What goes in (tokens or vectors) and what comes out (tokens or classes) must be said once."""
    if kind == "classifier":
        if (vocab is None) == (features is None):
            raise ValueError(
                "a classifier reads either tokens (give vocab) or float vectors (give features); "
                f"got vocab={vocab!r} and features={features!r}."
            )
        if classes is None:
            raise ValueError("a classifier needs the number of classes: give classes=….")
        check_sizes(classes=classes)
    else:
        if vocab is None or features is not None:
            raise ValueError(
                f"kind={kind!r} reads and predicts tokens, so it needs vocab and takes no "
                f"features; got vocab={vocab!r} and features={features!r}."
            )
        if classes is not None:
            raise ValueError(f"classes is for kind='classifier'; kind={kind!r} predicts tokens.")
    check_sizes(**{"features": features} if vocab is None and features is not None else {})
    check_sizes(**{"vocab": vocab} if vocab is not None else {})


def as_list(attention: Any) -> list[Any]:
    return list(attention) if isinstance(attention, list | tuple) else [attention]


def describe(attention: Any, options: Any) -> dict[str, Any]:
    """The JSON-able part of the config for these two; None for code, which no file can hold."""
    named = all(isinstance(a, str) for a in as_list(attention))
    several = isinstance(attention, list | tuple)
    attention = (list(attention) if several else attention) if named else None
    if options is not None:
        options = (
            dict(options) if isinstance(options, Mapping) else [dict(o or {}) for o in options]
        )
    return {"attention": attention, "attention_options": options}


def build_layers(
    attention: Any, options: Any, layers: int, dim: int, heads: int, causal: bool, kind: str
) -> list[nn.Module]:
    """One mixing module per layer."""
    mechanisms = _per_layer("attention", attention, layers)
    every = _per_layer("attention_options", options, layers)
    _refuse_sharing(mechanisms, kind)
    return [
        _build(mechanism, each, dim, heads, causal, kind)
        for mechanism, each in zip(mechanisms, every, strict=True)
    ]


def _per_layer(name: str, value: Any, layers: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        return [value] * layers
    if len(value) != layers:
        raise ValueError(
            f"{name} given as a list needs one entry per layer: {layers}; got {len(value)}."
        )
    return list(value)


def _refuse_sharing(mechanisms: list[Any], kind: str) -> None:
    built = [id(m) for m in mechanisms if isinstance(m, nn.Module)]
    if len(set(built)) < len(built):
        raise ValueError(
            "attention is one module for several layers, which would share its weights. Give a "
            "list of one module per layer, or a function (dim, heads, causal) that builds one."
        )
    if built and kind == "encoder_decoder":
        raise ValueError(
            "an encoder_decoder builds attention for the encoder and again for the decoder, so a "
            "finished module cannot serve. Give a function (dim, heads, causal) that builds one."
        )


def _build(
    mechanism: Any, options: Mapping[str, Any] | None, dim: int, heads: int, causal: bool, kind: str
) -> nn.Module:
    if isinstance(mechanism, str):
        catalog.card(mechanism)  # an unknown name is refused here, with the nearest one
        try:
            return catalog.build(mechanism, dim=dim, heads=heads, causal=causal, **(options or {}))
        except ValueError as error:
            raise ValueError(
                f"attention={mechanism!r} could not be built for kind={kind!r}, "
                f"which asks for causal={causal}: {error}"
            ) from error
    if options:
        raise ValueError(
            "attention_options go to the catalogue with a mechanism's name; a module or callable "
            "already has its own."
        )
    if isinstance(mechanism, nn.Module):
        return mechanism
    if not callable(mechanism):
        raise TypeError(
            "attention must be a catalogue name, a module or a function (dim, heads, causal) that "
            f"builds one; got {mechanism!r}."
        )
    module = mechanism(dim, heads, causal=causal)
    if not isinstance(module, nn.Module):
        raise TypeError(
            "the function given as attention must return an nn.Module; "
            f"got {type(module).__name__}."
        )
    return module


def check_input(tokens: Tensor, padding: Tensor | None, start: int, model: Reader) -> None:
    """Shape, kind of number, length, device and padding of what a model is called with."""
    _check_tensor("the input", tokens)
    _check_kind_of_number(tokens, model.features)
    n = tokens.shape[1]
    if n == 0:
        raise ValueError("the sequence is empty (n = 0); give at least one position.")
    if start + n > model.max_len:
        raise ValueError(
            f"the sequence has {start + n} positions, more than the model's "
            f"max_len={model.max_len}. Shorten it, or build the model with a larger max_len."
        )
    home = model.embedding.weight.device
    if tokens.device != home:
        raise ValueError(
            f"the input is on {tokens.device} but the model is on {home}; "
            "move one of them with .to()."
        )
    if padding is None:
        return
    _check_tensor("padding", padding)
    if padding.device != home:
        raise ValueError(f"padding is on {padding.device} but the model is on {home}; move it.")
    if padding.dtype != torch.bool or padding.shape != tokens.shape[:2]:
        raise ValueError(
            f"padding must be bool of shape (b, n) = {tuple(tokens.shape[:2])}, True at real "
            f"tokens; got {padding.dtype} of shape {tuple(padding.shape)}."
        )


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a tensor; got a {type(value).__name__}. torch.as_tensor makes one."
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
    """The tokens in a dtype that indexes, after checking their range.

    On a GPU the check waits for the device once per call; the alternative, an index error inside a
    kernel, takes the whole CUDA context down. It steps aside while torch.compile traces.
    """
    if vocab is not None and tokens.numel() and not torch.compiler.is_compiling():
        low, high = (int(v) for v in tokens.aminmax())
        if low < 0 or high >= vocab:
            wrong = low if low < 0 else high
            raise ValueError(
                f"tokens must lie in 0 … {vocab - 1} (vocab={vocab}); got {wrong}. "
                "Mark fillers with padding=… instead of a special number."
            )
    return tokens if tokens.dtype in (torch.int64, torch.int32) else tokens.long()
