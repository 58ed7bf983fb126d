"""Which expert takes which token, and who finds the expert full?

    ExpertsView(tokens, chosen, gates, router, capacity=12)  # (n, k), (n, k) and (n, E)
    ExpertsView.of(model, "a text", tokenizer)               # a model with mixtures of experts

Every token has the colour of its expert. Each expert's bar fills in the order in which choices are
placed, all first choices before any second; what comes when it is full is dropped and hatched. The
capacity can be moved, and the page finds again who is dropped, so a saved file stays alive.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor, nn

from attnlab.core.arguments import check_list, check_mapping
from attnlab.core.arrays import numbers, tokens_for
from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.experts import NONE, Routed, routed_in, same_as
from attnlab.lens.sources.patches import Patches
from attnlab_widgets.base import STATIC, BaseWidget, as_trait_error, check_range
from attnlab_widgets.experts_view import words as experts_words
from attnlab_widgets.experts_view.picture import picture

MOST_TOKENS, MOST_CHOICES, MOST_EXPERTS, MOST_LAYERS, MOST_STEPS = 512, 8, 64, 32, 400
_NEAR = 1e-2  # by which a row of probabilities may miss 1


class ExpertsView(BaseWidget):
    """Tokens by the expert that takes them.

    ``tokens``    n names; the positions where None. At most 512
    ``chosen``    (n, k), or (layers, n, k): the experts that each token chooses, the first choice
                  first, before any is dropped; -1 for no choice
    ``gates``     of the same shape: the factor of each choice; 1 unless given
    ``router``    (n, E) or (layers, n, E): the router's probabilities
    ``capacity``  how many tokens an expert may take: a number, or one for each layer; no limit
                  unless given
    ``experts``   as ``chosen``, -1 where dropped: what was recorded. The widget drops by its own
                  rule, and refuses a record that differs
    ``count``     E, where there is no router and the last experts are never chosen
    ``history``   {"steps": (s,), "shares": (s, E), "balance": (s,)} of a training: the share of
                  tokens by expert, and the balance loss E Σ f P (1 if all are used alike). With
                  several layers (layers, s, E) and (layers, s)
    ``choosing``  "tokens", or "experts": then each column of ``chosen`` is one expert's, -1 where
                  it does not take the token, and its tokens with the highest gates come first
    ``titles``    what the layers are called
    ``image``     what a vision model saw, if the tokens are patches; ``grid`` (rows, columns)
    ``token``     the one that is read out: at first the first that is dropped

    ``token``, ``layer``, ``capacity`` and ``placed`` (how many choices are placed so far) can be
    read and set.
    """

    _esm = STATIC / "experts_view.js"

    token = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    capacity = traitlets.Int(1).tag(sync=True)
    placed = traitlets.Int(0).tag(sync=True)
    _experts: Any = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        tokens: Sequence[Any] | None,
        chosen: Any,
        gates: Any = None,
        router: Any = None,
        *,
        capacity: Any = None,
        experts: Any = None,
        count: int | None = None,
        history: Mapping[str, Any] | None = None,
        choosing: str = "tokens",
        titles: Sequence[str] | None = None,
        image: Any = None,
        grid: tuple[int, int] | None = None,
        token: int | None = None,
        layer: int = 0,
        theme: str = "auto",
    ) -> None:
        self.layers = _layers(chosen, gates, router, capacity, count, choosing, titles)
        n = len(self.layers[0].chosen)
        if experts is not None:
            same_as(self.layers, list(_whole("experts", experts, len(self.layers))))
        patches = _patches(image, grid, n)
        if patches and tokens is None:
            shown = [str(each) for each in patches.tokens(n)]
        else:
            shown = [visible(each) for each in tokens_for("tokens", tokens, n, "tokens")]
        first = self.layers[check_range("layer", layer, len(self.layers))]
        told = {
            "tokens": shown,
            "layers": [_told(each) for each in self.layers],
            "history": _history(history, self.layers),
            "image": None if patches is None else _image(patches, n),
        }
        super().__init__(_experts=told, _data=_bytes(self.layers), theme=theme)
        self.layer = layer
        self.capacity, self.placed = first.capacity, len(first.queue())
        missing = first.first_dropped()
        fullest = int((first.chosen[:, 0] == first.wanted().argmax()).int().argmax())
        opening = fullest if missing is None else missing
        self.token = opening if token is None else token

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Any, tokenizer: Any = None, *,
        tokens: Sequence[Any] | None = None, **given: Any,
    ) -> "ExpertsView":  # fmt: skip
        """Who takes which token in a model, layer by layer.

        ``inputs``  a text (with a tokenizer, or a task of attnlab) or tokens (n,)
        ``tokens``  n names, in place of the tokenizer's
        ``given``   ``history`` (of ``attnlab.lens.experts.Use``), ``image``, ``grid``, ``token``,
                    ``layer`` and ``theme``, as above
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"`model` should be an nn.Module, got {type(model).__name__}")
        found, layers = routed_in(model, inputs, tokenizer)
        chosen, gates, router = (
            torch.stack([getattr(layer, name) for layer in layers])
            for name in ("chosen", "gates", "router")
        )
        return cls(
            found if tokens is None else tokens, chosen, gates, router,
            capacity=[layer.capacity for layer in layers], choosing=layers[0].choosing, **given,
        )  # fmt: skip

    # What follows from the state

    @property
    def tokens(self) -> list[str]:
        """The names of the tokens, made visible."""
        return list(self._experts["tokens"])

    @property
    def routed(self) -> Routed:
        """The choices of the present layer."""
        return self.layers[self.layer]

    def taken(self) -> Tensor:
        """(n, k) int64: the experts that compute each token at the present capacity; -1 where a
        choice is dropped or not placed yet."""
        layer = self.routed
        left = layer.chosen.masked_fill(layer.dropped(self.capacity), NONE)
        for i, choice in layer.queue()[self.placed :]:
            left[i, choice] = NONE
        return left

    def load(self) -> Tensor:
        """(E,) int64: how many tokens each expert computes now."""
        return torch.bincount(self.taken().flatten() + 1, minlength=self.routed.experts + 1)[1:]

    def description(self) -> str:
        """How much is dropped, and what becomes of the chosen token."""
        state = {"token": self.token, "capacity": self.capacity, "placed": self.placed}
        return experts_words.announcement(self.routed, self.tokens, state)

    def still(self) -> Drawing:
        """The text by experts, and their bars."""
        return picture(self)

    def __repr__(self) -> str:
        return f"ExpertsView: {self.description()}"

    # What may be set

    @traitlets.validate("token", "layer", "capacity", "placed")
    def _in_range(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        if name in ("token", "layer"):
            count = len(self._experts["tokens" if name == "token" else "layers"])
            return as_trait_error(check_range, name, value, count)
        low = 1 if name == "capacity" else 0
        high = len(self.tokens) if name == "capacity" else len(self.routed.queue())
        return as_trait_error(_between, name, value, low, high)

    @traitlets.observe("layer")
    def _another_layer(self, change: Any) -> None:
        """What was wholly placed stays so: layers may have different numbers of choices."""
        before = len(self.layers[change["old"]].queue())
        now = len(self.routed.queue())
        self.placed = now if self.placed in (0, before) else min(self.placed, now)


def _between(name: str, value: Any, low: int, high: int) -> int:
    found = check_integer(f"`{name}`", value)
    if not low <= found <= high:
        raise ValueError(f"`{name}` should be {low} to {high} here, got {found}")
    return found


# What is given


def _layers(
    chosen: Any, gates: Any, router: Any, capacity: Any, count: Any, choosing: Any, titles: Any
) -> list[Routed]:
    check_choice("choosing", choosing, ("tokens", "experts"))
    choices = _whole("chosen", chosen, None)
    many, n, k = choices.shape
    for name, size, most in (("layers", many, MOST_LAYERS), ("tokens", n, MOST_TOKENS),
                             ("choices a token", k, MOST_CHOICES)):  # fmt: skip
        if size > most:
            raise ValueError(f"`chosen` has {size} {name}; at most {most} can be shown")
    probable = None if router is None else _reals("router", router, many, n)
    experts = _count(choices, probable, count)
    factors = torch.ones(choices.shape) if gates is None else _reals("gates", gates, many, n)
    if factors.shape != choices.shape:
        raise ValueError(
            f"`gates` should have the shape of `chosen`, {tuple(choices.shape)}, got "
            f"{tuple(factors.shape)}"
        )
    names = [""] * many if many == 1 else [f"layer {at}" for at in range(many)]
    if titles is not None:
        names = [visible(name, 40) for name in check_list("titles", titles)]
        if len(names) != many:
            raise ValueError(f"`titles` should name {many} layers, got {len(names)}")
    rooms = _capacities(capacity, many, n)
    return [
        Routed(choices[at], factors[at], None if probable is None else probable[at], experts,
               rooms[at], names[at], choosing)
        for at in range(many)
    ]  # fmt: skip


def _stacked(name: str, given: Any, axes: str, many: int | None) -> np.ndarray:
    """With the axis of layers, which may be left out where there is one."""
    deep = getattr(given, "ndim", None)
    if deep is None:
        found, deep = given, 0
        while hasattr(found, "__len__") and not isinstance(found, str) and len(found):
            found, deep = found[0], deep + 1
    whole = len(axes.split()) + 1
    array = numbers(name, given, f"layers {axes}" if deep == whole else axes)
    array = array if array.ndim == whole else array[None]
    if many is not None and len(array) != many:
        raise ValueError(f"`{name}` should be of {many} layers as `chosen`, got {len(array)}")
    return array


def _whole(name: str, given: Any, many: int | None) -> Tensor:
    array = _stacked(name, given, "n k", many)
    if (array != np.rint(array)).any() or array.min() < NONE:
        raise ValueError(f"`{name}` should hold numbers of experts from 0 on, and -1 for no choice")
    found = torch.from_numpy(array).long()
    if name == "chosen":
        for c in range(1, found.shape[-1]):
            twice = (found[..., c:] == found[..., c - 1 : c]) & (found[..., c:] != NONE)
            if twice.any():
                raise ValueError("`chosen` should hold an expert at most once for each token")
    return found


def _reals(name: str, given: Any, many: int, n: int) -> Tensor:
    array = _stacked(name, given, "n E" if name == "router" else "n k", many)
    if array.shape[1] != n:
        raise ValueError(f"`{name}` should be of {n} tokens as `chosen`, got {array.shape[1]}")
    if name == "router":
        sums = array.sum(-1)
        if (array < 0).any() or ((abs(sums - 1) > _NEAR) & (sums != 0)).any():
            raise ValueError(
                "`router` should hold probabilities, rows that sum to 1 (0 at padding); give the "
                "softmax of the scores"
            )
    return torch.from_numpy(array.astype("<f4"))


def _count(chosen: Tensor, router: Tensor | None, count: Any) -> int:
    least = int(chosen.max()) + 1
    if router is not None:
        experts = router.shape[-1]
        if count is not None and check_integer("`count`", count) != experts:
            raise ValueError(f"`router` is of {experts} experts, but `count` is {count}")
    else:
        experts = max(least, 1) if count is None else check_integer("`count`", count, at_least=1)
    if least > experts:
        raise ValueError(
            f"`chosen` holds expert {least - 1}, but the experts are 0 to {experts - 1}"
        )
    if experts > MOST_EXPERTS:
        raise ValueError(f"{experts} experts are more than the {MOST_EXPERTS} that can be shown")
    return experts


def _capacities(capacity: Any, many: int, n: int) -> list[int]:
    if capacity is None:
        return [n] * many
    several = not isinstance(capacity, int) and hasattr(capacity, "__len__")
    given = check_list("capacity", capacity) if several else [capacity] * many
    if len(given) != many:
        raise ValueError(f"`capacity` should be one number or {many}, got {len(given)}")
    found = [check_integer("`capacity`", each) for each in given]
    if min(found) < 1:
        raise ValueError(
            f"`capacity` should be at least 1, got {min(found)}: an expert without room drops "
            "every token"
        )
    return [min(each, n) for each in found]


def _history(history: Any, layers: list[Routed]) -> dict[str, Any] | None:
    if history is None:
        return None
    given = check_mapping("history", history, '{"steps": [0, 100], "shares": …}')
    known = {"steps", "shares", "balance"}
    if "shares" not in given or set(given) - known:
        raise ValueError(
            '`history` should have "shares", and may have "steps" and "balance", got '
            f"{', '.join(sorted(given))}"
        )
    many, experts = len(layers), layers[0].experts
    shares = _stacked("history shares", given["shares"], "s E", many)
    count = shares.shape[1]
    if shares.shape[2] != experts or not 2 <= count <= MOST_STEPS:
        raise ValueError(
            f"the shares of `history` should be of 2 to {MOST_STEPS} steps and {experts} experts, "
            f"got {shares.shape[1:]}"
        )
    steps = numbers("history steps", given.get("steps", range(count)), "s")
    if len(steps) != count or (np.diff(steps) <= 0).any():
        raise ValueError(f"the steps of `history` should be {count} growing numbers")
    balance = given.get("balance")
    if balance is not None:
        balance = _stacked("history balance", balance, "s", many)
        if balance.shape[1] != count:
            raise ValueError(f"the balance of `history` should be of {count} steps")
    return {
        "steps": steps.tolist(),
        "shares": np.round(shares, 4).tolist(),
        "balance": None if balance is None else np.round(balance, 4).tolist(),
    }


def _patches(image: Any, grid: Any, n: int) -> Patches | None:
    if image is None:
        if grid is not None:
            raise ValueError("`grid` is that of the patches of an image: give the `image`, too")
        return None
    patches = Patches(image, grid)
    if not patches.fits(n):
        raise ValueError(
            f"`image` cannot be cut into {n} patches; give `grid=(rows, columns)`, whose product "
            f"is the number of tokens, {n}"
        )
    return patches


def _image(patches: Patches, n: int) -> dict[str, Any]:
    (grid,) = patches.grids([patches.tokens(n)])
    return {**patches.sent(), "grid": grid}


# What the page is told


def _told(layer: Routed) -> dict[str, Any]:
    return {
        "title": layer.title, "k": layer.chosen.shape[1], "experts": layer.experts,
        "capacity": layer.capacity, "router": layer.router is not None, "choosing": layer.choosing,
    }  # fmt: skip


def _bytes(layers: list[Routed]) -> bytes:
    """The state of each layer: what is chosen (one more, a byte each), gates and router as
    floats."""
    data = b""
    for layer in layers:
        chosen = (layer.chosen + 1).numpy().astype(np.uint8).tobytes()
        data += chosen + bytes(-len(chosen) % 4)
        data += layer.gates.numpy().astype("<f4").tobytes()
        if layer.router is not None:
            data += layer.router.numpy().astype("<f4").tobytes()
    return data
