"""From which earlier output does an edge come? The parts of the scores of the pinned query.

What the view holds is a recording; the parts need the model and what it read. They are computed
for the pinned query and all of its keys (of long texts the strongest) when the page asks for them,
and before the view is shown or saved: they stay in its state, so that a saved page and a notebook
without a kernel show them too.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.lens.logit_parts import LogitParts, Part
from attnlab.lens.score_parts import Side, score_parts
from attnlab.lens.stream import followed
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.attention_view.picture import Maps
from attnlab_widgets.quantization import Block

MOST = 24_000
"""Numbers of a query that are kept: its parts on both sides, for as many keys as that allows."""
UNASKED = {"unasked": True}
"""What the page is told where a model is known that was not asked yet."""
_APART = 0.02
"""Weights, which are stored in 8 bits, may differ by so much from those of the model now."""
_CHANGED = (
    "The weights of this recording are not those that the model gives now for these inputs: it was "
    "trained further, say, or recorded while it was in training mode. Run the cell again."
)
_NAMES = {
    "embedding": "the token itself",
    "positions": "its position",
    "norm bias": "bias of the norms",
    "bias": "bias",
    "distance": "bias by distance",
}


class Place(NamedTuple):
    """A query of a head, in a layer of the recording at a training step."""

    step: int
    layer: int
    head: int
    query: int


class Origins:
    """The model or models of a recording, and what they read."""

    def __init__(self, models: list[Any], tokens: Tensor, more: dict[str, Any]) -> None:
        self.models, self.tokens, self.more = models, tokens, more
        self._layers: dict[int, dict[str, int]] = {}

    def answer(self, view: Any, place: Place, key: int | None) -> Block | str:
        """The parts for a query, with those of ``key`` among its keys; or why there are none.

        The bytes are float32: the P parts (P, k) at the side of the k keys, then (P, k) at that of
        the query, each less its mean over the keys that the query may attend to.
        """
        model = getattr(self.models[place.step], "_orig_mod", self.models[place.step])
        if not isinstance(model, TinyTransformer):
            return (
                f"Which earlier layer wrote a score is known of a TinyTransformer; this model is a "
                f"{type(model).__name__}, whose stream is not followed."
            )
        try:
            layer = self._layer(model, view._recording["layers"][place.layer]["name"], place.step)
            both = [self._side(model, layer, place, side) for side in ("key", "query")]
        except (ValueError, TypeError, RuntimeError) as error:
            return f"Which earlier layer wrote this score is not known: {error}."
        scores = both[0].logits[0].double().cpu().numpy()
        if not _agree(scores, *_recorded(view, place)):
            return _CHANGED
        parts = [*dict.fromkeys([*both[0].parts, *both[1].parts])]
        order = np.argsort(-scores, kind="stable")
        keys = np.sort(order[: max(1, MOST // (2 * len(parts)))])
        if key is not None and key not in keys:
            keys = np.sort([*keys[keys != order[len(keys) - 1]], key])
        values = np.stack([_values(side, parts)[:, keys] for side in both])
        return Block(
            values.astype("<f4").tobytes(),
            {
                "place": [*place],
                "parts": [_name(part) for part in parts],
                "keys": None if len(keys) == len(scores) else keys.tolist(),
            },
        )

    def _side(self, model: TinyTransformer, layer: int, place: Place, side: Side) -> LogitParts:
        tokens, more = self._read_by(model)
        return score_parts(
            model, tokens, layer, place.head, place.query, side=side, minus="mean", **more
        )

    def _read_by(self, model: TinyTransformer) -> tuple[Tensor, dict[str, Any]]:
        """The inputs, where the parameters of the model lie now."""
        device = next(model.parameters()).device
        more = {name: x.to(device) if isinstance(x, Tensor) else x for name, x in self.more.items()}
        return self.tokens.to(device), more

    def _layer(self, model: TinyTransformer, name: str, step: int) -> int:
        """Which layer of the model the one of this name in the recording is."""
        if step not in self._layers:
            self._layers[step] = _layers(model, *self._read_by(model))
        found = self._layers[step].get(name)
        if found is None:
            raise ValueError(
                f"{name or 'this layer'} is no self-attention of the side that gives the logits"
            )
        return found


def origins_of(
    model: Any, inputs: Any, steps: list[str], compared: bool, batch: int
) -> Origins | None:
    """The models of a recording with these training steps; None without one."""
    if model is None and inputs is None:
        return None
    if model is None or inputs is None:
        given, missing = ("inputs", "model") if model is None else ("model", "inputs")
        raise ValueError(
            f"`{given}` comes with `{missing}`: the model that was recorded and the tokens that it "
            "read, as it was called"
        )
    if compared:
        raise ValueError(
            "`model` is that of one recording: leave it out where two are compared with `compare`"
        )
    models = _models(model, steps)
    tokens, more = _called(inputs)
    rows = len(tokens)
    if not 0 <= batch < rows:
        raise ValueError(f"`batch` is {batch}, but `inputs` holds {rows} rows")
    one = slice(batch, batch + 1)
    more = {name: x[one] if _by_row(x, rows) else x for name, x in more.items()}
    return Origins(models, tokens[one].detach().clone(), more)


def _by_row(x: Any, rows: int) -> bool:
    return isinstance(x, Tensor) and x.ndim > 1 and len(x) == rows


def _models(model: Any, steps: list[str]) -> list[Any]:
    if steps == [""]:
        found = [model]
    elif isinstance(model, Mapping) and [str(step) for step in model] == steps:
        found = [*model.values()]
    else:
        raise ValueError(
            "`model` should be a dict with the same training steps as `source`: the model as it "
            "was at each"
        )
    for one in found:
        if not isinstance(one, nn.Module):
            raise TypeError(f"`model` should be an nn.Module, got a {type(one).__name__}")
    return found


def _called(inputs: Any) -> tuple[Tensor, dict[str, Any]]:
    more = dict(inputs) if isinstance(inputs, Mapping) else {"tokens": inputs}
    tokens = more.pop("tokens", None)
    if not isinstance(tokens, Tensor) or tokens.ndim not in (1, 2):
        raise TypeError(
            "`inputs` should be the tokens that the model read, a tensor (n,) or (b, n), or a dict "
            f'of its arguments, {{"tokens": …, "padding": …}}, got {_described(tokens)}'
        )
    return (tokens[None] if tokens.ndim == 1 else tokens), more


def _described(tokens: Any) -> str:
    if isinstance(tokens, Tensor):
        return f"a tensor of shape {tuple(tokens.shape)}"
    return f"a {type(tokens).__name__}"


def _layers(model: TinyTransformer, tokens: Tensor, more: dict[str, Any]) -> dict[str, int]:
    """The names of records of self-attention, those of layers that share their parameters too."""
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[str, int] = {}
    uses: dict[str, int] = {}
    for step in followed(model, tokens, **more).steps:
        if step.what != "attention":
            continue
        name = names[id(step.sublayer)]
        uses[name] = uses.get(name, 0) + 1
        found[name if uses[name] == 1 else f"{name}#{uses[name]}"] = step.layer
    return found


def _recorded(view: Any, place: Place) -> tuple[np.ndarray, np.ndarray]:
    """(m,) the weights of a query as they were recorded, and bool (m,), what it may attend to."""
    step, layer, head, query = place
    plain = {"shown": "first", "hide_first": False, "value_weighted": False, "step": step}
    raw = Maps(SimpleNamespace(**plain, _recording=view._recording, _data=view._data))
    weights = np.asarray(raw.one(layer, head)[query], np.float64)
    hidden = raw.hidden(layer, head)
    return weights, weights > 0 if hidden is None else ~hidden[query]


def _agree(scores: np.ndarray, weights: np.ndarray, allowed: np.ndarray) -> bool:
    """Whether weights are the softmax of scores."""
    if scores.shape != weights.shape or not allowed.any():
        return False
    scores = np.where(allowed, scores, -np.inf)
    powers = np.exp(scores - scores.max())
    return float(np.abs(powers / powers.sum() - weights).max()) < _APART


def _values(side: LogitParts, parts: list[Part]) -> np.ndarray:
    """(P, n): of each part, 0 for one that this side does not have."""
    own = dict(zip(side.parts, side.values[:, 0].cpu().double(), strict=True))
    zero = torch.zeros(side.values.shape[-1], dtype=torch.float64)
    return np.stack([own.get(part, zero).numpy() for part in parts])


def _name(part: Part) -> str:
    """What a part is called in the view, where a head is "layer 0, head 1"."""
    if part.layer is None:
        return _NAMES.get(part.what, part.what.replace("_", " "))
    what = {"attention": "attention", "cross": "cross-attention", "feed_forward": "feed-forward"}
    called = what.get(part.what, part.what)
    if part.head is not None:
        called = f"{'cross-' * (part.what == 'cross')}head {part.head}"
    return f"layer {part.layer}, {called}"
