"""The options of a TinyTransformer, each written once: defaults, checks, config and repr."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

from torch import nn

from attnlab.core.integers import check_integer
from attnlab.core.suggest import check_choice

KINDS = ("language_model", "classifier", "token_classifier", "encoder_decoder")
CLASSIFIERS = ("classifier", "token_classifier")
"""An encoder alone, that answers with classes: one for each row, or one for each position."""

DECIDED_BY_THE_MODEL = frozenset({"dim", "heads", "causal", "positions"})
MOST_LAYERS = 1000
MOST_PARAMETERS = 2**32

Attention = str | nn.Module | Callable[..., nn.Module]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a ``TinyTransformer`` is built from; its docstring says what each option means.

    numpy's integers become Python's. Anything that no model can be built from is refused here, and
    so are sizes beyond any small model, such as those of a damaged file.
    """

    vocab: int | None = None
    dim: int = 128
    layers: int = 4
    heads: int = 4
    attention: Attention | Sequence[Attention] | None = "full"
    attention_options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None
    kind: str = "language_model"
    classes: int | None = None
    features: int | None = None
    embedding_rank: int | None = None
    max_len: int = 256
    cache_of: Sequence[int] | None = None
    positions: str | Sequence[str] = "learned"
    position_options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None
    block: str = "layers"
    block_options: Mapping[str, Any] | None = None
    feed: str = "mlp"
    feed_options: Mapping[str, Any] | None = None
    hidden: int | None = None
    join: str = "pre_norm"
    join_options: Mapping[str, Any] | None = None
    depth: str = "plain"
    depth_options: Mapping[str, Any] | None = None
    tie: bool = True
    logit_scale: float = 1.0
    dropout: float = 0.0
    checkpoint: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        check_choice("kind", self.kind, KINDS)
        self._check_ends()
        self._check_embedding()
        self._check_size()
        self._check_heads()
        self._check_attention_options()
        self._check_cache_of()
        self._check_named_options()

    @property
    def hidden_width(self) -> int:
        """Width of the feed-forward layers: ``hidden``, or 4·dim."""
        return 4 * self.dim if self.hidden is None else self.hidden

    @property
    def positions_of_layers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """The position scheme of each layer, and its options."""
        names = per_layer("positions", self.positions, self.layers)
        options = per_layer("position_options", self.position_options, self.layers)
        return [(name, own or {}) for name, own in zip(names, options, strict=True)]

    @property
    def places_by_layer(self) -> bool:
        """Whether the layers are given position schemes of their own."""
        lists = (list, tuple)
        return isinstance(self.positions, lists) or isinstance(self.position_options, lists)

    def config(self) -> dict[str, Any]:
        """All options as JSON can hold them; ``attention`` is None where it is code."""
        named = all(isinstance(each, str) for each in as_list(self.attention))
        own: dict[str, Any] = {option.name: getattr(self, option.name) for option in fields(self)}
        own["attention"] = _plain(self.attention) if named else None
        own["attention_options"] = _plain(self.attention_options)
        own["positions"] = _plain(self.positions)
        own["cache_of"] = _plain(self.cache_of)
        for name in _NAMED:
            own[name] = _plain(own[name])
        return own

    def _check_types(self) -> None:
        """By annotation: sizes are whole numbers of at least 1, switches True or False."""
        for option in fields(self):
            value = getattr(self, option.name)
            if option.type is int or (option.type == int | None and value is not None):
                value = check_integer(option.name, value, at_least=1)
            elif option.type is bool:
                check_switch(option.name, value)
            elif option.type is float:
                value = check_real(option.name, value)
            object.__setattr__(self, option.name, value)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is a probability, 0 ≤ dropout < 1, got {self.dropout!r}")
        if not 0 < self.logit_scale < float("inf"):
            raise ValueError(f"logit_scale should be above 0 and finite, got {self.logit_scale!r}")

    def _check_ends(self) -> None:
        """What goes in (tokens or vectors) and what comes out (tokens or classes)."""
        if self.kind in CLASSIFIERS:
            if (self.vocab is None) == (self.features is None):
                raise ValueError(
                    "a classifier reads either tokens (give vocab) or float vectors (give "
                    f"features), got vocab={self.vocab!r} and features={self.features!r}"
                )
            if self.classes is None:
                raise ValueError("a classifier needs the number of classes: give classes=…")
            return
        if self.vocab is None or self.features is not None:
            raise ValueError(
                f"kind={self.kind!r} reads and predicts tokens, so it needs vocab and takes no "
                f"features, got vocab={self.vocab!r} and features={self.features!r}"
            )
        if self.classes is not None:
            raise ValueError(
                "classes is for kind='classifier' and 'token_classifier'; "
                f"kind={self.kind!r} predicts tokens"
            )

    def _check_embedding(self) -> None:
        if self.embedding_rank is not None and self.vocab is None:
            raise ValueError(
                "embedding_rank factorizes the table of tokens, and a model with features has "
                "none; leave it out"
            )

    def _check_size(self) -> None:
        if self.layers > MOST_LAYERS:
            raise ValueError(f"layers should be at most {MOST_LAYERS}, got {self.layers}")
        ends = (self.vocab or self.features or 0) + (self.classes or 0) + self.max_len
        ends += self.embedding_rank or 0
        parameters = self.dim * (ends + 2 * self.layers * self.hidden_width)
        if max(parameters, self.dim**2) > MOST_PARAMETERS:
            raise ValueError(
                f"these sizes ask for more than {MOST_PARAMETERS:,} parameters, too many for a "
                f"small model: dim={self.dim}, layers={self.layers}, hidden={self.hidden_width}, "
                f"max_len={self.max_len}, vocab={self.vocab}, features={self.features}, "
                f"classes={self.classes}"
            )

    def _check_heads(self) -> None:
        every = as_list(self.attention_options)
        if every and all(isinstance(own, Mapping) and "head_dim" in own for own in every):
            return  # the heads have a width of their own
        if self.dim % self.heads:
            fits = [h for h in range(1, self.dim + 1) if self.dim % h == 0]
            near = min(fits, key=lambda h: abs(h - self.heads))
            raise ValueError(
                "heads should divide dim, so that each head has the same width, got "
                f"dim={self.dim} and heads={self.heads}; "
                f"the nearest number that fits is heads={near}"
            )

    def _check_attention_options(self) -> None:
        for each in as_list(self.attention_options):
            if each is not None and not _are_keyword_arguments(each):
                raise TypeError(
                    "attention_options are keyword arguments as a dict, such as "
                    f'{{"form": "naive"}}, or a list of one dict (or None) per layer, got {each!r}'
                )
            _refuse_decided("attention_options", each, DECIDED_BY_THE_MODEL)

    def _check_cache_of(self) -> None:
        if self.cache_of is None:
            return
        if not isinstance(self.cache_of, list | tuple):
            raise TypeError(
                "cache_of is a list of one number per layer, such as [0, 0, 2, 2], got "
                f"{self.cache_of!r}"
            )
        sources = [check_integer("cache_of", each, at_least=0) for each in self.cache_of]
        object.__setattr__(self, "cache_of", sources)
        if self.depth != "plain":
            raise ValueError(
                f"cache_of is for layers one after another, depth='plain', got depth={self.depth!r}"
            )
        if self.checkpoint:
            raise ValueError(
                "checkpoint=True computes each layer again by itself, and with cache_of a layer "
                "needs keys and values of another; leave one of the two out"
            )

    def _check_named_options(self) -> None:
        for what, example in _NAMED.items():
            given = getattr(self, what)
            each = as_list(given) if what == "position_options" else [given]
            if not all(own is None or _are_keyword_arguments(own) for own in each):
                raise TypeError(
                    f"{what} are keyword arguments as a dict, such as {example}, got {given!r}"
                )
        decided = DECIDED_BY_THE_MODEL | {"max_len", "vocab", "output"}
        for own in as_list(self.position_options):
            _refuse_decided("position_options", own, decided)


_NAMED = {
    "position_options": '{"layout": "interleaved"}',
    "block_options": '{"feeds": 2}',
    "feed_options": '{"chunks": 2}',
    "join_options": "{}",
    "depth_options": "{}",
}
"""The options that go to a page of the catalogue, or to a block → an example of them."""


def changed(config: Mapping[str, Any]) -> str:
    """The entries of a config that are not defaults, as they are written in a call."""
    defaults = {option.name: option.default for option in fields(Options)}
    shown = {name: repr(value) for name, value in config.items() if value != defaults[name]}
    if config["attention"] is None:
        shown["attention"] = "…"  # code, which has no short form
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def as_list(value: Any) -> list[Any]:
    """A list for one value per layer, or the one value for all layers in a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def per_layer(name: str, value: Any, layers: int) -> list[Any]:
    """One value for each layer: those of a list, or the one value for all of them."""
    if not isinstance(value, list | tuple):
        return [value] * layers
    if len(value) != layers:
        raise ValueError(
            f"{name} given as a list needs one entry per layer: {layers}, got {len(value)}"
        )
    return list(value)


def check_switch(name: str, value: object) -> None:
    """A TypeError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be True or False, got {value!r}")


def check_real(name: str, value: object) -> float:
    """``value`` as a ``float``; a TypeError where it is no real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} should be a number, got {value!r}")
    return float(value)


def _refuse_decided(what: str, given: Mapping[str, Any] | None, decided: frozenset[str]) -> None:
    for name in decided.intersection(given or ()):
        raise ValueError(f"{what} cannot set {name!r}: the model itself decides it")


def _are_keyword_arguments(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _plain(value: Any) -> Any:
    """Tuples as lists, mappings as dicts, no options as an empty dict within a list."""
    if isinstance(value, list | tuple):
        return [{} if each is None else _plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
