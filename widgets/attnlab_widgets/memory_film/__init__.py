"""What does a memory keep of a text, and what is lost, while the text passes?

    MemoryFilm(model, "a text", tokenizer)       # or tokens (n,): every layer with a memory
    MemoryFilm(layer, x, tokens=words)           # one layer, on vectors (n, dim)

Of Transformer-XL, Compressive and Memorizing Transformers it shows what a token attends to in its
segment and in the memories, segment by segment; of RWKV, Block-Recurrent Transformers, GRU, LSTM,
BRC and nBRC the state after every token. The film is made when the widget is, so a saved file stays
alive.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor, nn

from attnlab.core.arrays import numbers, tokens_for
from attnlab.core.modes import mode
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.memories import FILMED, Attended, Carried, recorded
from attnlab.lens.sources.inputs import inputs_of
from attnlab_widgets.base import STATIC, Choice, as_trait_error, check_range
from attnlab_widgets.legend import SaysUntrained
from attnlab_widgets.memory_film import words as film_words
from attnlab_widgets.memory_film.picture import picture
from attnlab_widgets.quantization import block

MOST_TOKENS, MOST_CHANNELS, MOST_BYTES = 512, 256, 500_000


class MemoryFilm(SaysUntrained):
    """The memories of a model, or of one layer, while one text is read.

    ``module``     a model with layers whose memory can be shown, or such a layer
    ``inputs``     of a model: a text (with a tokenizer) or tokens (n,); of a layer: vectors
                   (n, dim). At most 512 tokens
    ``tokenizer``  of the model, or a task of attnlab
    ``tokens``     n names, in place of the tokenizer's
    ``query``      the token that is shown, the last unless given
    ``layer``      its place among the layers that can be shown; ``head`` None for the mean
    ``channel``    of a state, the one that is read out; ``vector`` which state vector
    ``order``      of the channels: "number", or "holds" for those first that hold longest
    ``untrained``  whether nobody trained the weights: the picture then says so

    ``query``, ``layer``, ``head``, ``channel``, ``vector`` and ``order`` can be read and set.
    ``layers`` holds what was recorded.
    """

    _esm = STATIC / "memory_film.js"

    query = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(None, allow_none=True).tag(sync=True)
    channel = traitlets.Int(0).tag(sync=True)
    vector = traitlets.Int(0).tag(sync=True)
    order = Choice(("number", "holds"), "number").tag(sync=True)
    _film: Any = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        module: nn.Module,
        inputs: Any,
        tokenizer: Any = None,
        *,
        tokens: Sequence[Any] | None = None,
        query: int | None = None,
        layer: int = 0,
        head: int | None = None,
        channel: int = 0,
        vector: int = 0,
        order: str = "number",
        untrained: bool = False,
        theme: str = "auto",
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"`module` should be an nn.Module, got {type(module).__name__}")
        with mode(module, training=False), torch.no_grad():
            names, given, found = _read(module, inputs, tokenizer)
            n = given[0][1].shape[1]
            self.layers = [recorded(each, x) for each, x in given]
        labels = found if tokens is None else tokens
        shown = [visible(token) for token in tokens_for("tokens", labels, n, "tokens")]
        told, data = _described(names, self.layers)
        film = {"tokens": shown, "layers": told}
        super().__init__(_film=film, _data=data, theme=theme, untrained=untrained)
        self.layer, self.head, self.channel, self.vector = layer, head, channel, vector
        self.query, self.order = n - 1 if query is None else query, order

    # What follows from the state

    @property
    def tokens(self) -> list[str]:
        """The names of the tokens, made visible."""
        return list(self._film["tokens"])

    @property
    def recorded(self) -> Attended | Carried:
        """What is known of the present layer."""
        return self.layers[self.layer]

    def shares(self) -> Tensor:
        """(n, 3): the weight that each token gives to its segment, to the memory and to the far
        one, in the present head; an error for a layer that carries a state."""
        found = self.recorded
        if isinstance(found, Carried):
            raise ValueError(
                f"the present layer, {found.card.title}, carries a state; it has no shares"
            )
        return _of_head(found.shares().float(), self.head)

    def weights(self) -> Tensor:
        """(n,): the weights of the present token, by position."""
        found = self.recorded
        if isinstance(found, Carried):
            raise ValueError(
                f"the present layer, {found.card.title}, carries a state; it has no weights"
            )
        return _of_head(found.weights, self.head)[self.query]

    def holds(self) -> Tensor:
        """(dim,): half-lives in tokens, or by how much each channel changes from one state to the
        next, of the present state vector."""
        found = self.recorded
        if isinstance(found, Attended):
            raise ValueError(
                f"the present layer, {found.card.title}, attends to a memory; it has no state"
            )
        return _holds(found)[self.vector]

    def description(self) -> str:
        """What is kept and what is lost, in a sentence or two."""
        told, found = self._film["layers"][self.layer], self.recorded
        chosen = {"query": self.query, "token": self.tokens[self.query], "head": self.head}
        if isinstance(found, Carried):
            return film_words.of_state(told, self.holds().tolist(), chosen)
        zones = found.zones[self.query // found.segment, : self.query].tolist()
        return film_words.of_attention(told, self.shares()[self.query].tolist(), zones, chosen)

    def still(self) -> Drawing:
        """The present moment of the film."""
        return picture(self)

    def __repr__(self) -> str:
        return f"MemoryFilm: {self.description()}"

    # What may be set

    @traitlets.validate("query", "layer", "channel", "vector")
    def _in_range(self, proposal: Any) -> int:
        name = proposal["trait"].name
        return as_trait_error(check_range, name, proposal["value"], self._count(name))

    @traitlets.validate("head")
    def _a_head(self, proposal: Any) -> int | None:
        value = proposal["value"]
        return (
            None
            if value is None
            else as_trait_error(check_range, "head", value, self._count("head"))
        )

    @traitlets.observe("layer")
    def _another_layer(self, _change: Any) -> None:
        """What the new layer has less of begins anew."""
        if self.head is not None and self.head >= self._count("head"):
            self.head = None
        self.channel = min(self.channel, self._count("channel") - 1)
        self.vector = min(self.vector, self._count("vector") - 1)

    def _count(self, name: str) -> int:
        told = self._film["layers"]
        if name in ("query", "layer"):
            return len(self._film["tokens"] if name == "query" else told)
        return int(told[self.layer].get({"head": "h", "channel": "dim", "vector": "r"}[name], 1))


def _of_head(values: Tensor, head: int | None) -> Tensor:
    return values.double().mean(0) if head is None else values[head].double()


def _holds(found: Carried) -> Tensor:
    """(r, dim)."""
    if found.half_life is None:
        return found.change().float()
    return found.half_life.float().expand(len(found.states), -1)


# What is recorded


Given = tuple[list[str], list[tuple[nn.Module, Tensor]], list[Any] | None]
"""Layers by name, each with its vectors (1, n, dim), and how the tokens are called."""


def _read(module: nn.Module, inputs: Any, tokenizer: Any) -> Given:
    if type(module) not in FILMED:
        return _inside(module, inputs, tokenizer)
    if tokenizer is not None:
        raise ValueError("a layer reads vectors, which no `tokenizer` makes; name them by `tokens`")
    return [""], [(module, _vectors(inputs, module))], None


def _vectors(inputs: Any, layer: nn.Module) -> Tensor:
    """The vectors (1, n, dim) that a layer reads."""
    axes = "b n dim" if getattr(inputs, "ndim", 2) == 3 else "n dim"
    array = numbers("inputs", inputs, axes)
    if array.ndim == 3 and len(array) != 1:
        raise ValueError(f"`inputs` should be one sequence (n, dim), got {len(array)}")
    array = array.reshape(1, *array.shape[-2:])
    _check_length(array.shape[1])
    parameter = next(layer.parameters())
    return torch.from_numpy(array).to(parameter)


def _check_length(n: int) -> None:
    if not 2 <= n <= MOST_TOKENS:
        raise ValueError(f"`inputs` should have 2 to {MOST_TOKENS} tokens, got {n}")


def _inside(model: nn.Module, inputs: Any, tokenizer: Any) -> Given:
    """The layers of a model, on what they read in it."""
    layers = {name: each for name, each in model.named_modules() if type(each) in FILMED}
    if not layers:
        known = ", ".join(card.title for card, _ in FILMED.values())
        raise ValueError(
            f"{type(model).__name__} has no layer whose memory can be shown; those are {known}"
        )
    given = inputs_of(model, inputs, tokenizer, None, None)
    read: dict[nn.Module, tuple[Tensor, Tensor | None]] = {}

    def keep(layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        x, padding, *_ = (*arguments, named.get("padding"))
        read.setdefault(layer, (x, padding))  # a layer that is called again: the first call

    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers.values()]
    try:
        given.run(model)
    finally:
        for handle in handles:
            handle.remove()
    called = {name: layer for name, layer in layers.items() if layer in read}
    if not called:
        raise ValueError(f"{type(model).__name__} called none of its layers that have a memory")
    found: list[tuple[nn.Module, Tensor]] = []
    for layer in called.values():
        x, padding = read[layer]
        if len(x) != 1:
            raise ValueError(f"`inputs` should be one sequence, got {len(x)}")
        if padding is not None and not bool(padding.all()):
            raise ValueError("`inputs` has padding; give the tokens of one text alone")
        if found and x.shape != found[0][1].shape:
            raise ValueError(
                "the layers with a memory read sequences of different shapes, "
                f"{tuple(found[0][1].shape)} and {tuple(x.shape)}; give one layer alone"
            )
        _check_length(x.shape[1])
        found.append((layer, x))
    return list(called), found, given.read(given.own, 0)


# What the page is told


def _described(
    names: list[str], layers: list[Attended | Carried]
) -> tuple[list[dict[str, Any]], bytes]:
    """Each layer in words and numbers, and what it recorded as bytes, one after the other."""
    told, data = [], b""
    for at, (name, one) in enumerate(zip(names, layers, strict=True)):
        title = one.card.title if len(layers) == 1 else f"layer {at}: {one.card.title}"
        header = {"title": title, "module": name, "at": len(data)}
        if isinstance(one, Attended):
            more, parts = _of_attended(one)
        else:
            more, parts = _of_carried(one)
        told.append({**header, **more})
        data += b"".join(part + bytes(-len(part) % 4) for part in parts)
    packed = zlib.compress(data, 9)
    if len(packed) > MOST_BYTES:
        raise ValueError(
            f"the film of {len(layers)} layers needs {len(packed):,} bytes, more than the "
            f"{MOST_BYTES:,} that a saved notebook should hold; give a shorter text, or one layer"
        )
    return told, packed


def _of_attended(one: Attended) -> tuple[dict[str, Any], list[bytes]]:
    h, n, _ = one.weights.shape
    maps = block(one.weights.float().numpy(), None, complete=True)
    return {
        "kind": "attention", "h": h, "segment": one.segment, "near": one.near, "far": one.far,
        "covers": one.covers, "starts": list(range(0, n, one.segment)), "maps": maps.header,
        "long": len(maps.data),
    }, [
        maps.data, one.shares().numpy().astype("<f4").tobytes(),
        one.zones.numpy().astype(np.uint8).tobytes(),
    ]  # fmt: skip


def _of_carried(one: Carried) -> tuple[dict[str, Any], list[bytes]]:
    r, _, dim = one.states.shape
    if dim > MOST_CHANNELS:
        raise ValueError(
            f"a state of {dim} channels is more than the {MOST_CHANNELS} that can be shown"
        )
    states, holds = (x.float().numpy().astype("<f4") for x in (one.states, _holds(one)))
    return {
        "kind": "state", "what": one.what, "r": r, "dim": dim, "every": one.every,
        "half_lives": one.half_life is not None,
    }, [states.tobytes(), holds.tobytes()]  # fmt: skip
