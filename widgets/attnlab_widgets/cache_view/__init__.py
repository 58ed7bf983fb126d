"""What does each layer of a model keep of the tokens that it has read, and what does it cost?

    CacheView()                                     # gpt_oss after 1,048,576 tokens
    CacheView("deepseek_v3", tokens=131_072, bits=4)
    CacheView(model)                                # a language model of attnlab

A layer keeps keys and values of all tokens, or of the last ones; of all heads or of few; a latent
vector for each token; a state of fixed size; or nothing, where it attends to the cache of another.
Each layer can be switched to another kind. What a model of today keeps was counted by
``attnlab.measure.cache``; all else follows on the page, so a saved file stays alive.
"""

from collections.abc import Sequence
from typing import Any

import traitlets

from attnlab.core.arguments import check_list
from attnlab.core.integers import check_integer
from attnlab.core.suggest import choose
from attnlab.figures.drawing import Drawing
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.base import STATIC, BaseWidget, Checked, Choice, as_trait_error, check_range
from attnlab_widgets.cache_view.bills import Preset, alternatives, merged, presets, total
from attnlab_widgets.cache_view.counting import counted
from attnlab_widgets.cache_view.picture import picture
from attnlab_widgets.cache_view.words import sentence

MOST_TOKENS = 2**20
BITS = (16, 8, 4, 2)
SCOPES = ("this layer", "all layers", "every second layer", "three of four layers")


class CacheView(BaseWidget):
    """A stack of layers, what each keeps after so many tokens, and the bill.

    ``model``   the name of one of the presets (``CacheView.presets()``), or a language model of
                attnlab, which is counted
    ``layers``  the kind of each layer, by the names in ``kinds``; those of the model unless given
    ``tokens``  that were read, 1 to 1,048,576
    ``bits``    of a number of keys and values: 16, or 8, 4 or 2 in a rounded cache
    ``layer``   the chosen one, counted from 0; unless given the first that keeps all tokens
    ``scope``   which layers are switched together: one of ``SCOPES``

    Layers, tokens, bits, layer and scope can be read and set; ``name`` is that of the model.
    """

    _esm = STATIC / "cache_view.js"

    name = traitlets.Unicode().tag(sync=True)
    layers: Any = Checked().tag(sync=True)
    tokens = traitlets.Int(MOST_TOKENS).tag(sync=True)
    bits = traitlets.Int(16).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    scope = Choice(SCOPES, SCOPES[0]).tag(sync=True)
    _models: Any = traitlets.List().tag(sync=True)

    def __init__(
        self,
        model: str | TinyTransformer = "gpt_oss",
        *,
        layers: Sequence[str] | None = None,
        tokens: int = MOST_TOKENS,
        bits: int = 16,
        layer: int | None = None,
        scope: str = SCOPES[0],
        theme: str = "auto",
    ) -> None:
        known = presets()
        if isinstance(model, str):
            choose("model", model, known)
            shown = list(known.values())
        else:
            shown = [_of(model)]
            model = shown[0].name
        self._presets = {one.name: one for one in shown}
        own = self._presets[model]
        given = own.layers if layers is None else _checked_layers(layers, own)
        choose("scope", scope, dict.fromkeys(SCOPES))
        super().__init__(
            _models=[one.as_json() for one in shown], name=model, layers=list(given),
            tokens=_within(tokens), bits=_of_bits(bits),
            layer=_first(own) if layer is None else check_range("layer", layer, len(own.layers)),
            scope=scope, theme=theme,
        )  # fmt: skip

    @staticmethod
    def presets() -> list[str]:
        """The models that are shown by their names in Transformers."""
        return list(presets())

    # What follows from the state

    @property
    def preset(self) -> Preset:
        """The present model, as it was counted."""
        return self._presets[self.name]

    def layer_bytes(self) -> list[float]:
        """What each layer keeps."""
        kinds = self.preset.kinds
        return [kinds[name].bytes(self.tokens, self.bits) for name in self.layers]

    def bytes(self) -> float:
        """What all layers keep together."""
        return sum(self.layer_bytes())

    def published(self) -> float:
        """What the layers of the model itself keep, in 16 bits."""
        return total(self.preset.kinds, self.preset.layers, self.tokens)

    def switch(self, kind: str) -> None:
        """Make the layers of ``scope`` this kind, counted from the chosen layer."""
        choose("kind", kind, self.preset.kinds)
        chosen = scoped(self.scope, self.layer, len(self.layers))
        self.layers = [kind if at in chosen else old for at, old in enumerate(self.layers)]

    def description(self) -> str:
        """What is kept, how it compares with the model, and which layers keep most."""
        return sentence(
            self.name, self.preset.kinds, self.layers, self.published(), self.tokens, self.bits
        )

    def still(self) -> Drawing:
        """The stack, and the bytes as they grow."""
        return picture(self)

    def __repr__(self) -> str:
        return f"CacheView: {self.description()}"

    # What may be set

    @traitlets.validate("name")
    def _a_name(self, proposal: Any) -> str:
        as_trait_error(choose, "model", proposal["value"], self._presets)
        return str(proposal["value"])

    @traitlets.observe("name")
    def _another_model(self, change: Any) -> None:
        """Its layers take the place of those of the model before."""
        fits = set(self.layers or ()) <= set(self.preset.kinds)
        if change["old"] and not (fits and len(self.layers) == len(self.preset.layers)):
            with self.hold_trait_notifications():
                self.layer, self.layers = _first(self.preset), list(self.preset.layers)

    @traitlets.validate("layers")
    def _kinds_of_layers(self, proposal: Any) -> list[str]:
        return as_trait_error(_checked_layers, proposal["value"], self.preset)

    @traitlets.validate("tokens")
    def _some_tokens(self, proposal: Any) -> int:
        return as_trait_error(_within, proposal["value"])

    @traitlets.validate("bits")
    def _some_bits(self, proposal: Any) -> int:
        return as_trait_error(_of_bits, proposal["value"])

    @traitlets.validate("layer")
    def _a_layer(self, proposal: Any) -> int:
        return as_trait_error(check_range, "layer", proposal["value"], len(self.preset.layers))


def scoped(scope: str, layer: int, count: int) -> set[int]:
    """The layers that are switched together; of three of four, the chosen one stays as it is."""
    every = range(count)
    return {
        SCOPES[0]: {layer},
        SCOPES[1]: set(every),
        SCOPES[2]: {at for at in every if (at - layer) % 2 == 0},
        SCOPES[3]: {at for at in every if (at - layer) % 4},
    }[scope]


def _first(preset: Preset) -> int:
    return preset.layers.index("all") if "all" in preset.layers else 0


def _of(model: object) -> Preset:
    if not isinstance(model, TinyTransformer):
        raise TypeError(
            "`model` should be the name of a preset or a language model of attnlab, got a "
            f"{type(model).__name__}"
        )
    own, layers = counted(model)
    heads = model.config["heads"]
    others = alternatives(heads, 1, model.dim // heads, None)
    source = "counted by attnlab.measure.cache in bfloat16"
    return Preset("TinyTransformer", merged(own, others), layers, source)


def _checked_layers(given: Any, preset: Preset) -> list[str]:
    rows = check_list("layers", given)
    if len(rows) != len(preset.layers):
        raise ValueError(
            f"`layers` should name a kind for each of the {len(preset.layers)} layers, got "
            f"{len(rows)}"
        )
    for row in rows:
        if not isinstance(row, str):
            raise TypeError(f"each of `layers` should be the name of a kind, got {row!r}")
        choose("kind", row, preset.kinds)
    return rows


def _within(tokens: Any) -> int:
    found = check_integer("`tokens`", tokens)
    if not 1 <= found <= MOST_TOKENS:
        raise ValueError(f"`tokens` should be from 1 to {MOST_TOKENS:,}, got {found:,}")
    return found


def _of_bits(bits: Any) -> int:
    found = check_integer("`bits`", bits)
    if found not in BITS:
        raise ValueError(f"`bits` should be 16, 8, 4 or 2, got {found}")
    return found
