"""What a model keeps in order to write its next token, layer by layer, without computing it.

    print(attnlab.measure.cache.kept(model, 131_072))           # a language model of attnlab
    print(attnlab.measure.cache.kept("gpt_oss", 131_072))       # the default model of Transformers
    print(attnlab.measure.cache.kept(config, 131_072))          # a configuration of it

Nothing is assumed about a mechanism: the layers read the tokens on PyTorch's meta device, whose
tensors have shapes and no numbers, and what they keep then is counted. A model of Transformers
reads 16 tokens, and its own cache is given keys and values of the others. So a cache that leaves
tokens out is counted as the model's code has it, not as a paper has it.

What a name of Transformers stands for is the default configuration of its class, which need not be
that of a published checkpoint of this name.
"""

import copy
import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.measure.costs import LONGEST_COMPUTED, TRIAL, Uncountable
from attnlab.models.tiny import TinyTransformer

T = TypeVar("T")
FEW = 16  # tokens that a model of Transformers reads; the others come as keys and values
SETTLED = (384, 512, 640)  # a state of the same size after each of them no longer grows
PIECE = 512  # tokens that a layer of ours is fed at once, unless there are very many


@dataclass(frozen=True)
class Layer:
    """What one layer keeps: the ``kind`` of layer, and the bytes by their names in its state."""

    kind: str
    parts: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        return sum(bytes for _, bytes in self.parts)


@dataclass(frozen=True)
class Kept:
    """What a model keeps after ``tokens`` tokens of one sequence, in numbers of ``dtype``."""

    model: str
    tokens: int
    dtype: torch.dtype
    layers: tuple[Layer, ...]

    @property
    def bytes(self) -> int:
        """What all layers keep together."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def per_token(self) -> float:
        """What all layers keep for one token, on average."""
        return self.bytes / self.tokens

    def __str__(self) -> str:
        """The layers by kind, a line each."""
        name = str(self.dtype).removeprefix("torch.")
        read = f"{self.tokens:,} token" + "s" * (self.tokens != 1)
        head = f"{self.model}: {in_words(self.bytes)} after {read} ({name})"
        counted = Counter(self.layers)
        lines = [
            f"  {times} × {layer.kind}: {in_words(layer.bytes)} each"
            + "".join(f", {part} {in_words(size)}" for part, size in layer.parts)
            for layer, times in counted.items()
        ]
        return "\n".join([head, *lines])


def in_words(size: float) -> str:
    """Bytes in decimal units, with three digits."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.3g} {units[0]}"


def kept(model: object, tokens: int, *, dtype: torch.dtype = torch.bfloat16) -> Kept:
    """What ``model`` keeps after ``tokens`` tokens of one sequence.

    ``model`` is a language model of attnlab; or a name, a configuration or a model of Transformers
    (5 or later), of which the decoder for text is counted. A model is not changed. Its parameters
    are taken as of ``dtype``; states that a layer holds in float32 in any case are counted so.

    Raises TypeError for anything else, Uncountable (a ValueError) with a sentence where a layer
    does not read token by token, or where the model does not run on the meta device.
    """
    tokens = check_integer("tokens", tokens, at_least=1)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype should be a float dtype such as torch.bfloat16, got {dtype!r}")
    if isinstance(model, TinyTransformer):
        return _of_ours(model, tokens, dtype)
    return _of_transformers(_configuration(model), tokens, dtype)


# ------------------------------------------------------------------------------ models of attnlab


def _of_ours(model: TinyTransformer, tokens: int, dtype: torch.dtype) -> Kept:
    if model.decoder is None or not model.steps_incrementally:
        raise Uncountable(
            "what is kept is counted of a model whose layers all write token by token "
            "(model.steps_incrementally); this one reads its tokens all at once"
        )
    blocks: Any = model.decoder.blocks
    named = model.config["attention"]
    names = named if isinstance(named, list) else [named] * len(blocks)
    layers: list[Layer] = []
    counted: list[tuple[nn.Module, tuple[tuple[str, int], ...]]] = []
    for block, name in zip(blocks, names, strict=True):
        attention = copy.deepcopy(block.attention).to(dtype).eval()
        source = getattr(attention, "source", len(layers))
        if getattr(attention, "shares_cache", False) and source != len(layers):
            layers.append(Layer(f"{name} with the cache of layer {source}", ()))
            continue
        parts = next((parts for other, parts in counted if _alike(other, attention)), None)
        if parts is None:
            parts, without_numbers = _parts_of_state(attention, model.dim, tokens, dtype)
            counted += [(attention, parts)] * without_numbers
        layers.append(Layer(name if isinstance(name, str) else type(attention).__name__, parts))
    return Kept("TinyTransformer", tokens, dtype, tuple(layers))


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two layers are known to differ in nothing but the numbers of their parameters."""
    if type(one) is not type(other):
        return False
    (mine, my_parts), (theirs, their_parts) = map(_own_and_parts, (one, other))
    try:
        same = bool(mine == theirs)
    except (RuntimeError, TypeError, ValueError):  # it holds what cannot be compared
        return False
    return same and all(map(_alike, my_parts, their_parts))


def _own_and_parts(module: nn.Module) -> tuple[dict[str, Any], list[nn.Module]]:
    """All that a module holds, of its parameters the shapes alone; and the modules in it."""
    held = dict(vars(module))
    held["_parameters"] = {
        name: x is not None and x.shape for name, x in held["_parameters"].items()
    }
    buffers = held["_buffers"].items()
    held["_buffers"] = {name: x is not None and (x.dtype, x.tolist()) for name, x in buffers}
    parts = held.pop("_modules")
    return held | {"parts": [*parts]}, [*filter(None, parts.values())]


def _parts_of_state(
    attention: nn.Module, dim: int, tokens: int, dtype: torch.dtype
) -> tuple[tuple[tuple[str, int], ...], bool]:
    """The bytes of a layer's state, and whether they depend on no numbers; a state that no longer
    grows is counted at a short length."""

    def after(n: int, device: str) -> tuple[tuple[str, int], ...]:
        layer, state = copy.deepcopy(attention).to(device), None
        x = torch.zeros(1, n, dim, dtype=dtype, device=device)
        with torch.no_grad():
            for piece in x.split(max(PIECE, n // 64), dim=1):
                _, state = layer.step(piece, state)  # type: ignore[operator]
        return _parts(state)

    try:
        short = min(tokens, TRIAL)
        device = "meta" if after(short, "cpu") == _or_none(after, short, "meta") else "cpu"
        if tokens > max(SETTLED):
            first, *others = (after(n, device) for n in SETTLED)
            if all(first == other for other in others):
                return first, device == "meta"
        if device == "cpu" and tokens > LONGEST_COMPUTED:
            raise Uncountable(
                f"what {type(attention).__name__} keeps depends on numbers, so it is counted by "
                f"computing it, up to {LONGEST_COMPUTED:,} tokens; {tokens:,} were asked for"
            )
        return after(tokens, device), device == "meta"
    except Uncountable:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Uncountable(f"{type(attention).__name__} cannot be counted: {reason}") from error


def _or_none(after: Callable[[int, str], T], n: int, device: str) -> T | None:
    """None where an operator needs the numbers that the meta device does not have."""
    try:
        return after(n, device)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _parts(state: Any) -> tuple[tuple[str, int], ...]:
    """The bytes of every tensor that a state holds, by the name of the field that holds it; of a
    view, what it shows."""
    sizes: dict[str, int] = {}
    for name, x in _tensors("state", state):
        if x.ndim and x.numel():
            sizes[name] = sizes.get(name, 0) + x.numel() * x.element_size()
    return tuple(sizes.items())


def _tensors(name: str, held: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(held, Tensor):
        yield name, held
    elif hasattr(held, "_asdict"):
        for field, value in held._asdict().items():
            yield from _tensors(field, value)
    elif isinstance(held, dict):
        for value in held.values():
            yield from _tensors(name, value)
    elif isinstance(held, list | tuple):
        for value in held:
            yield from _tensors(name, value)
    elif hasattr(held, "__dict__"):
        for field, value in vars(held).items():
            yield from _tensors(field.lstrip("_"), value)


# -------------------------------------------------------------------------- models of Transformers


def _configuration(model: object) -> Any:
    """The configuration of a decoder for text that a name, a configuration or a model has."""
    if not find_spec("transformers"):
        raise ModuleNotFoundError(
            "a language model of attnlab is expected, or a model of Transformers, which is not "
            "installed: pip install transformers"
        )
    from packaging.version import Version
    from transformers import PreTrainedConfig, PreTrainedModel, __version__

    if Version(__version__) < Version("5"):
        raise Uncountable(
            f"what a model of Transformers keeps is asked of version 5 or later, not {__version__}"
        )
    if isinstance(model, str):
        known: Any = importlib.import_module("transformers.models.auto.configuration_auto")
        choose("model", model, dict.fromkeys(known.CONFIG_MAPPING_NAMES))
        model = known.CONFIG_MAPPING[model]()
    if isinstance(model, PreTrainedModel):
        model = model.config
    if not isinstance(model, PreTrainedConfig):
        raise TypeError(
            "model should be a TinyTransformer of kind='language_model', or the name of a model, a "
            f"configuration or a model of Transformers, got a {type(model).__name__}"
        )
    return copy.deepcopy(model.get_text_config(decoder=True))


def _of_transformers(config: Any, tokens: int, dtype: torch.dtype) -> Kept:
    name = config.model_type
    try:
        model = _built(config, dtype)
        cache = _read(model, min(FEW, tokens))
        if _is_recurrent(cache):
            # A recurrence loops over all tokens, so its model is not given all of them.
            for number, layer in enumerate(cache.layers):
                _read_on(cache, number, layer, tokens - min(FEW, tokens))
        else:
            cache = _read(model, tokens)
    except Uncountable:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Uncountable(f"{name} cannot be counted on the meta device: {reason}") from error
    linear = getattr(cache, "linear_cache", [])
    layers = []
    for held in zip_longest(cache.layers, linear):
        parts = _parts(held)
        layers.append(Layer(_kind(held[0], parts), parts))
    return Kept(name, tokens, dtype, tuple(layers))


_BUILT: dict[Any, nn.Module] = {}
"""The model that was asked of last: building it takes as long as reading, and one is usually asked
what it keeps at several lengths."""


def _built(config: Any, dtype: torch.dtype) -> nn.Module:
    """The model of a configuration on the meta device, where it takes no memory."""
    from transformers import AutoModelForCausalLM

    key = type(config), config.to_json_string(use_diff=False), dtype
    model = _BUILT.get(key)
    if model is None:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(
                config, dtype=dtype, experts_implementation="batched_mm"
            ).eval()
        _BUILT.clear()
        _BUILT[key] = model
    return model


def _read(model: nn.Module, tokens: int) -> Any:
    """The cache of a model on the meta device that has read so many tokens."""
    with torch.no_grad():
        out = model(torch.zeros(1, tokens, dtype=torch.int64, device="meta"), use_cache=True)
    cache = getattr(out, "past_key_values", getattr(out, "cache_params", None))
    if not hasattr(cache, "layers"):
        raise Uncountable(
            f"{type(model).__name__} does not return a cache with layers, so what it keeps is not "
            "known"
        )
    return cache


def _is_recurrent(cache: Any) -> bool:
    return hasattr(cache, "linear_cache") or any(
        hasattr(layer, "recurrent_states") for layer in cache.layers
    )


def _read_on(cache: Any, number: int, layer: Any, tokens: int) -> None:
    """Give a layer's cache the keys and values of so many more tokens."""
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if tokens and isinstance(keys, Tensor) and isinstance(values, Tensor) and keys.numel():
        more = (x.new_empty(*x.shape[:2], tokens, x.shape[3]) for x in (keys, values))
        cache.update(*more, number)


def _kind(layer: Any, parts: tuple[tuple[str, int], ...]) -> str:
    """What a layer of a cache of Transformers is, in words."""
    window, named = getattr(layer, "sliding_window", None), [name for name, _ in parts]
    if not parts:
        return "layer that keeps nothing of its own"
    kinds = [f"window of {window:,} tokens" if window else "all tokens"] * ("keys" in named)
    kinds += ["compressed entries"] * any("compressed" in name for name in named)
    kinds += ["state"] * any("state" in name for name in named)
    return " and ".join(kinds)
