"""The attention modules of a stack of layers, from names, functions or finished modules."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from attnlab import catalog
from attnlab.core.options import takes_structure
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.models import positions
from attnlab.models.options import Options, per_layer
from attnlab.models.shared_cache import check_sources, shared


def build_mixers(
    options: Options, causal: bool, sets: Sequence[int] | None = None
) -> list[nn.Module]:
    """One mixing module per layer; layers of equal numbers in ``sets`` have the same one."""
    sets = range(options.layers) if sets is None else sets
    mechanisms = per_layer("attention", options.attention, options.layers)
    own_options = per_layer("attention_options", options.attention_options, options.layers)
    if options.cache_of is not None:
        check_sources(options.cache_of, options.layers)
    placed = positions.in_layers(options, causal)
    first = {number: sets.index(number) for number in sets}
    for layer, number in enumerate(sets):
        _refuse_different(layer, first[number], mechanisms, own_options)
    _refuse_sharing([mechanisms[layer] for layer in first.values()], options.kind)
    made = {}
    for number, layer in first.items():
        mechanism, own = mechanisms[layer], own_options[layer]
        build = _by_name if isinstance(mechanism, str) else _from_code
        made[number] = build(mechanism, options, causal, own, placed[layer])
    built = [made[number] for number in sets]
    return built if options.cache_of is None else shared(built, options.cache_of, mechanisms)


SHARED = ("scale", "head_dim")
"""Options of full attention that the cross-attention of the same model has too."""


def build_cross(options: Options) -> nn.Module:
    """The cross-attention of one decoder layer: full, or that of a mechanism that is told what
    connects the tokens of the source. The scale and the width of heads that full attention is given
    are those of both."""
    name = options.attention
    if name == "full" and isinstance(options.attention_options, Mapping):
        given = options.attention_options.items()
        shared_by_both = {each: value for each, value in given if each in SHARED}
        return FullAttention(options.dim, options.heads, **shared_by_both)
    if isinstance(name, str) and _is_told(name):
        own = {} if options.attention_options is None else options.attention_options
        if isinstance(own, Mapping):
            made = catalog.build(name, dim=options.dim, heads=options.heads, **own)
            if "context" in inspect.signature(made.forward).parameters:
                return made
    return FullAttention(options.dim, options.heads)


def structural() -> list[str]:
    """The names of the mechanisms that are told what connects the tokens."""
    return [card.name for card in catalog.cards() if card.mixes and card.structure is not None]


def _is_told(name: str) -> bool:
    return catalog.card(name).structure is not None


def _refuse_different(layer: int, first: int, *given: list[Any]) -> None:
    for name, each in zip(("attention", "attention_options"), given, strict=True):
        if each[layer] is not each[first] and each[layer] != each[first]:
            raise ValueError(
                f"layers {first} and {layer} share one attention, so {name} should be the same for "
                f"both, got {each[first]!r} and {each[layer]!r}"
            )


def _refuse_sharing(mechanisms: list[Any], kind: str) -> None:
    built = [id(m) for m in mechanisms if isinstance(m, nn.Module)]
    if len(set(built)) < len(built):
        raise ValueError(
            "attention is one module for several layers, which would share its weights; give a "
            "list of one module per layer, or a function (dim, heads, causal) that builds one"
        )
    if built and kind == "encoder_decoder":
        raise ValueError(
            "an encoder_decoder builds attention for the encoder and again for the decoder, so a "
            "finished module cannot serve; give a function (dim, heads, causal) that builds one"
        )


def _by_name(
    name: str,
    options: Options,
    causal: bool,
    own_options: Mapping[str, Any] | None,
    placed: positions.Placed,
) -> nn.Module:
    if not catalog.card(name).mixes:  # an unknown name is refused here, with the nearest one
        raise ValueError(
            f"attention={name!r} does not mix positions; give it as positions={name!r}"
        )
    own_positions, given = placed.card, dict(own_options or {})
    if causal and options.kind == "encoder_decoder" and _is_told(name):
        name, given = "full", {}  # the tokens that are written have no structure
    if own_positions.role == "attend":
        if name != "full":
            raise ValueError(
                f"positions={placed.name!r} is an attention of its own, in place of "
                f"attention='full'; it cannot go into {name!r}"
            )
        name, given = own_positions.name, {**given, **placed.options}
    layer: dict[str, Any] = {"dim": options.dim, "heads": options.heads, "causal": causal}
    try:
        return catalog.build(name, **layer, positions=placed.scheme, **given)
    except ValueError as error:
        raise ValueError(
            f"attention={name!r} could not be built for kind={options.kind!r}, "
            f"which asks for causal={causal}: {error}"
        ) from error


def _from_code(
    mechanism: Any,
    options: Options,
    causal: bool,
    own_options: Mapping[str, Any] | None,
    placed: positions.Placed,
) -> nn.Module:
    if placed.scheme is not None or placed.card.role == "attend":
        raise ValueError(
            f"positions={placed.name!r} goes into layers that are built by name; a module or "
            "callable is given its positions where it is built"
        )
    if own_options:
        raise ValueError(
            "attention_options go to the catalogue with a mechanism's name; a module or callable "
            "already has its own"
        )
    if isinstance(mechanism, nn.Module):
        _check_forward(mechanism)
        return mechanism
    if not callable(mechanism):
        raise TypeError(
            "attention should be a catalogue name, a module or a function (dim, heads, causal) "
            f"that builds one, got {mechanism!r}"
        )
    return built(mechanism, options.dim, options.heads, causal=causal)


def built(function: Callable[..., object], dim: int, heads: int, *, causal: bool) -> nn.Module:
    """The attention that a reader's function gives, or a sentence that says what it lacks."""
    _check_signature(function, dim, heads, causal=causal)
    module = function(dim, heads, causal=causal)
    if not isinstance(module, nn.Module):
        raise TypeError(
            "the function given as attention should return an nn.Module, "
            f"got {type(module).__name__}"
        )
    _check_forward(module)
    return module


def _check_signature(function: Any, dim: int, heads: int, *, causal: bool) -> None:
    try:
        inspect.signature(function).bind(dim, heads, causal=causal)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "the function given as attention is called as function(dim, heads, causal=…), which "
            f"{function!r} does not allow: {error}"
        ) from error


def _check_forward(module: nn.Module) -> None:
    try:
        given = {"structure": None} if takes_structure(module) else {}
        inspect.signature(module.forward).bind("x", "padding", **given)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "a module given as attention is called as module(x, padding), which the forward of "
            f"{type(module).__name__} does not allow: {error}"
        ) from error
