"""How does each mechanism mix the same sentence? All of them side by side, found on the shelf.

    attnlab.wall("The keys of the dictionary are strings, and the values are lists of numbers.")

The sentence is read by the small language model that comes with attnlab. The vectors that one of
its layers reads, and the projections of that layer, go into a layer of every mechanism, so that the
maps differ by the mechanism alone.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnlab import pretrained
from attnlab.catalog import cards
from attnlab.core.arguments import check_list
from attnlab.core.heads import Heads
from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.lens.side_by_side import Layer, layers, map_of
from attnlab_widgets.base import STATIC, BaseWidget, Choice
from attnlab_widgets.wall.around import SHELVES, around
from attnlab_widgets.wall.bytes import encode
from attnlab_widgets.wall.picture import draw, one_map
from attnlab_widgets.wall_cards import described

MODEL = "documentation"
MOST = 64
"""Tokens of which maps are shown."""
LONGEST = 65_536
SHORTER = (8, 16, 32)


class Wall(BaseWidget):
    """A tile for every mechanism of the catalogue that mixes positions, on one sentence.

    ``text``    the sentence; of a longer one the first 64 tokens are shown
    ``only``    the names of the mechanisms that have a tile; all of the catalogue by default
    ``layer``   which layer of the model gives its vectors and projections, from 0

    What is chosen can be read and set from Python: ``weights`` ("borrowed", "random": the
    projections; what only one mechanism has is untrained in both), ``causal`` (the past alone,
    where a mechanism leaves the choice: as the layer was trained that lends its projections),
    ``length`` (of the sentence: a prefix, or beyond it, where costs follow but maps stay), ``head``
    (None = the mean of all), ``order`` (of all but full attention, which stands first), ``family``,
    ``seeing`` (a filter; "few" are eight to begin with), ``opened`` (the name of a mechanism, "" =
    none), ``shelf`` ("mechanisms", or a role of the other shelves: "feed", "join", "depth",
    "objective", "compress", whose pages have pictures of their own).

    ``save_html`` first computes what is missing, so that all of it works in the file.
    """

    _esm = STATIC / "wall.js"

    # What is large travels deflated: a notebook stores it.
    _about = traitlets.Bytes().tag(sync=True)
    _headers = traitlets.Bytes().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)
    weights = Choice(("borrowed", "random"), "borrowed").tag(sync=True)
    causal = traitlets.Bool(True).tag(sync=True)
    length = traitlets.Int(1).tag(sync=True)
    head = traitlets.Int(None, allow_none=True).tag(sync=True)
    order = Choice(("year", "family", "cost", "name"), "year").tag(sync=True)
    family = traitlets.Unicode("").tag(sync=True)
    seeing = Choice(("all", "few", "causal", "both sides"), "all").tag(sync=True)
    opened = traitlets.Unicode("").tag(sync=True)
    shelf = Choice(SHELVES, "mechanisms").tag(sync=True)
    _around = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        text: str,
        *,
        only: Sequence[str] | None = None,
        layer: int = 1,
        theme: str = "auto",
    ) -> None:
        read = _read(text, layer)
        self._read = read
        self._only = None if only is None else check_list("only", only)
        if self._only == []:
            raise ValueError("`only` should name at least one mechanism, got none")
        self._layers: dict[tuple[str, bool], list[Layer]] = {}
        self._bytes = bytearray()
        self._maps: dict[tuple[Any, ...], tuple[bytes, dict[str, Any]]] = {}
        self._sets: dict[str, dict[str, Any]] = {}
        dim, heads = read.source.dim, read.source.heads
        n = len(read.tokens)
        lengths = sorted({n, *(k for k in SHORTER if k < n), *_powers(n)})
        told = [described(each, lengths, dim, heads) for each in self._built("borrowed", True)]
        self._wall: dict[str, Any] = {
            "text": text,
            "tokens": read.tokens,
            "cut": read.cut,
            "lengths": lengths,
            "heads": heads,
            "dim": dim,
            "layer": layer,
            "model": MODEL,
            "tiles": told,
        }
        super().__init__(_about=_deflated(self._wall), length=n, theme=theme)
        self._fill()
        self.observe(lambda _: self._fill(), ["weights", "causal", "length"])
        self.observe(lambda _: self._tell_around(), ["shelf"])

    def _built(self, weights: str, causal: bool) -> list[Layer]:
        key = weights, causal
        if key not in self._layers:
            source = self._read.source
            given = source if weights == "borrowed" else None
            made = layers(source.dim, source.heads, causal=causal, source=given)
            known = {layer.card.name: layer for layer in made}
            names = known if self._only is None else self._only
            for name in names:
                choose("mechanism", name, known)
            self._layers[key] = [layer for name, layer in known.items() if name in names]
        return self._layers[key]

    def _fill(self) -> None:
        """Compute the maps of what is chosen; each is sent as soon as it is there."""
        if self._compute(self.weights, self.causal, self._shown):
            self._tell_maps()

    def _tell_around(self) -> None:
        """The tiles of the other shelves, once somebody looks at one."""
        if self.shelf != "mechanisms" and not self._around:
            self._around = _deflated(self._pages)

    @cached_property
    def _pages(self) -> list[dict[str, Any]]:
        return around()

    @property
    def _shown(self) -> int:
        """Tokens of which maps are shown."""
        return min(self.length, len(self._read.tokens))

    def _key(self) -> str:
        return _set_name(self.weights, self.causal, self._shown)

    def _compute(self, weights: str, causal: bool, n: int) -> bool:
        """Whether anything was missing."""
        key = _set_name(weights, causal, n)
        if key in self._sets:
            return False
        found = {}
        with _one_thread():
            for layer in self._built(weights, causal):
                block, header = self._map(layer, n)
                found[layer.card.name] = header
                self.send({"kind": "tile", "set": key, "name": layer.card.name, **header}, [block])
        self._sets[key] = found
        return True

    def _map(self, layer: Layer, n: int) -> tuple[bytes, dict[str, Any]]:
        """A layer that has no choice of its direction, or borrows nothing, is in several sets the
        same: its map is found, and kept, once."""
        same = layer.card.name, layer.causal, layer.drawn, n
        if same not in self._maps:
            block, header = _map(layer, self._read.x[:, :n])
            header["at"] = len(self._bytes) if block else 0
            self._bytes += block
            self._maps[same] = block, header
        return self._maps[same]

    def _tell_maps(self) -> None:
        with self.hold_sync():
            self._data = zlib.compress(self._bytes, 9)
            self._headers = _deflated(self._sets)

    def map(self, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """The map (n, m) of a mechanism as it is shown, and which of its cells are masked; None if
        it has none for this sentence."""
        choose("mechanism", name, {tile["name"]: tile for tile in self._wall["tiles"]})
        return one_map(self, name)

    def still(self) -> Drawing:
        """The tiles that are shown, as a picture."""
        return draw(self)

    def _saved_state(self) -> dict[str, Any]:
        for weights in ("borrowed", "random"):
            for causal in (False, True):
                for n in (k for k in self._wall["lengths"] if k <= len(self._read.tokens)):
                    self._compute(weights, causal, n)
        self._tell_maps()
        self._about = _deflated(self._wall)
        self._around = _deflated(self._pages)
        return super()._saved_state()

    @traitlets.validate("length")
    def _length_is_on_the_slider(self, proposal: Any) -> int:
        allowed = self._wall["lengths"]
        if proposal["value"] not in allowed:
            raise traitlets.TraitError(
                f"`length` should be one of {', '.join(map(str, allowed))}, got {proposal['value']}"
            )
        return int(proposal["value"])

    @traitlets.validate("head")
    def _head_exists(self, proposal: Any) -> int | None:
        value, heads = proposal["value"], self._wall["heads"]
        if value is not None and not 0 <= value < heads:
            raise traitlets.TraitError(
                f"`head` should be None (the mean) or from 0 to {heads - 1}, got {value}"
            )
        return value if value is None else int(value)

    @traitlets.validate("family")
    def _family_exists(self, proposal: Any) -> str:
        known = sorted({tile["family"] for tile in self._wall["tiles"]})
        if proposal["value"] not in ("", *known):
            raise traitlets.TraitError(
                f'`family` should be "" (all) or one of {", ".join(known)}, got '
                f"{proposal['value']!r}"
            )
        return str(proposal["value"])

    @traitlets.validate("opened")
    def _mechanism_exists(self, proposal: Any) -> str:
        known = [tile["name"] for tile in self._wall["tiles"]]
        known += [card.name for card in cards() if card.role in SHELVES]
        if proposal["value"] not in ("", *known):
            raise traitlets.TraitError(
                f'`opened` should be "" (none) or one of {", ".join(known)}, '
                f"got {proposal['value']!r}"
            )
        return str(proposal["value"])

    def __repr__(self) -> str:
        tiles, tokens = len(self._wall["tiles"]), len(self._wall["tokens"])
        return f"<Wall: {tiles} mechanisms on {tokens} tokens>"


def wall(
    text: str, *, only: Sequence[str] | None = None, layer: int = 1, theme: str = "auto"
) -> Wall:
    """Every mechanism of the catalogue, or ``only`` some, on one sentence; see ``Wall``."""
    return Wall(text, only=only, layer=layer, theme=theme)


class _Read:
    """A sentence as the model reads it: its tokens, what one layer reads of it (1, n, dim), and
    that layer's projections."""

    def __init__(self, tokens: list[str], x: Tensor, source: Heads, cut: int) -> None:
        self.tokens, self.x, self.source, self.cut = tokens, x, source, cut


def _read(text: str, layer: int) -> _Read:
    if not isinstance(text, str):
        raise TypeError(f"`text` should be a sentence as a string, got {type(text).__name__}")
    model, task = _model()
    ids = task.encode(text)
    if len(ids) < 2:
        raise ValueError(
            f"`text` should have at least two tokens to mix, and {text!r} has {len(ids)}; "
            "give a sentence"
        )
    blocks = model.decoder.blocks
    layer = check_integer("layer", layer, at_least=0)
    if layer >= len(blocks):
        raise ValueError(f"`layer` should be from 0 to {len(blocks) - 1}, got {layer}")
    attention, kept = blocks[layer].attention, []
    handle = attention.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    try:
        with torch.no_grad():
            model(ids[None, :MOST])
    finally:
        handle.remove()
    tokens = task.tokens(ids[:MOST])
    return _Read(tokens, kept[0], attention.heads, len(ids) - len(tokens))


@cache
def _model() -> tuple[Any, Any]:
    return pretrained.load(MODEL)


def _deflated(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode(), 9)


def _set_name(weights: str, causal: bool, n: int) -> str:
    return f"{weights} {'causal' if causal else 'both'} {n}"


def _powers(n: int) -> Iterator[int]:
    """Lengths beyond the sentence."""
    length = MOST
    while length <= LONGEST:
        if length > n:
            yield length
        length *= 2


def _map(layer: Layer, x: Tensor) -> tuple[bytes, dict[str, Any]]:
    try:
        return encode(map_of(layer, x))
    except ValueError as error:  # what cannot be shown says why in its tile
        return b"", {"why": str(error)}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors this small are computed faster by one thread than by several that wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
