"""What is counted and timed: one mechanism with its form, widths and options, at any length."""

import dataclasses
import functools
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.core.card import LIKE_N, Card
from attnlab.core.integers import check_integer
from attnlab.core.options import Size, annotations_of, check_value
from attnlab.core.suggest import choose

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Subject:
    """A layer that is to be counted or timed; `subject` makes one. Hashable.

    `options` are the mechanism's own, as pairs. Where the mechanism has a longest length and none
    is given, each layer is built for the length that it is used at.
    """

    mechanism: str
    dim: int
    heads: int
    form: str
    causal: bool
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def card(self) -> Card:
        return catalog.card(self.mechanism)

    @property
    def can_be_causal(self) -> bool:
        return self.card.causal != "never"

    @property
    def label(self) -> str:
        """The mechanism, its form and the options that were given, in one line."""
        given = [f"{name} = {value}" for name, value in self.options]
        return ", ".join([f"{self.mechanism} ({self.form})", *["causal"] * self.causal, *given])

    def caused(self) -> "Subject":
        """The causal layer with the same options."""
        return dataclasses.replace(self, causal=True)

    def with_form(self, form: str) -> "Subject":
        """The same layer, computed in another way."""
        choose("form", form, self.card.every_form)
        return dataclasses.replace(self, form=form)

    def layer(self, n: int, device: str = "cpu", seed: int = 0) -> nn.Module:
        """The module in evaluation mode, its parameters drawn from `seed`; it can take n tokens.

        Raises ValueError in the words of the mechanism where it cannot be built.
        """
        known = self.card.option_names()
        own: dict[str, Any] = {"form": self.form} if "form" in known else {}
        if "max_len" in known and not {"max_len", "factors"} & set(dict(self.options)):
            own["max_len"] = max(n, self.card.options().max_len)  # type: ignore[attr-defined]
        with torch.random.fork_rng(devices=[]), torch.device("meta" if device == "meta" else "cpu"):
            torch.manual_seed(seed)
            built = catalog.build(
                self.mechanism, dim=self.dim, heads=self.heads, causal=self.causal,
                **{**own, **dict(self.options)},
            )  # fmt: skip
        return built.to(device).eval()

    def extra_inputs(self, n: int, device: str = "cpu") -> dict[str, Any]:
        """What the layer is told beside one sequence of n tokens: an example of its structure."""
        if self.card.structure is None:
            return {}
        real = torch.ones(1, n, dtype=torch.bool)
        return {"structure": self.card.structure.example(real).to(device)}

    def claim(self, what: str, n: int) -> float:
        """The card's "time" (FLOPs, projections apart) or "memory" (elements) at length n."""
        taken = {
            name: value for name, value in self.options if name in annotations_of(self.card.options)
        }
        options = self.card.options(**taken)
        own = {letter: getattr(options, name) for letter, name in self.card.letters.items()}
        width = self.dim // self.heads
        known: dict[str, Any] = {"h": self.heads, "d": width, "e": width, "dim": self.dim} | own
        known |= {"n": n} | {letter.name: n for letter in LIKE_N}
        cost = self.card.cost(what, self.form, options, self.causal)
        return float(cost.subs({x: known[x.name] for x in cost.free_symbols}))

    def sequence(self, n: int, device: str = "cpu", seed: int = 0) -> Tensor:
        """One sequence (1, n, dim) of standard normal numbers, which takes a gradient."""
        return _sequence(n, self.dim, device, seed)


@dataclass(frozen=True)
class OwnLayer:
    """A layer that is not of the catalogue, to be counted and tried like one that is.

    `build(dim, heads, causal)` gives it, as `TinyTransformer(attention=…)` takes it: a module from
    (b, n, dim) to (b, n, dim).
    """

    mechanism: str
    build: Callable[..., nn.Module]
    dim: int = 256
    heads: int = 4
    causal: bool = False
    can_be_causal = True

    @property
    def label(self) -> str:
        return self.mechanism + ", causal" * self.causal

    def caused(self) -> "OwnLayer":
        """The layer that is asked to be causal."""
        return dataclasses.replace(self, causal=True)

    def layer(self, n: int, device: str = "cpu", seed: int = 0) -> nn.Module:
        """The module in evaluation mode, its parameters drawn from `seed`, whatever `n` is."""
        del n
        with torch.random.fork_rng(devices=[]), torch.device("meta" if device == "meta" else "cpu"):
            torch.manual_seed(seed)
            built = self.build(self.dim, self.heads, causal=self.causal)
        return built.to(device).eval()

    def extra_inputs(self, n: int, device: str = "cpu") -> dict[str, Any]:
        """Nothing: such a layer is told the sequence alone."""
        del n, device
        return {}

    def sequence(self, n: int, device: str = "cpu", seed: int = 0) -> Tensor:
        """As for a `Subject`."""
        return _sequence(n, self.dim, device, seed)


def _sequence(n: int, dim: int, device: str, seed: int) -> Tensor:
    if device == "meta":
        return torch.empty(1, n, dim, device="meta", requires_grad=True)
    drawn = torch.randn(1, n, dim, generator=torch.Generator().manual_seed(seed))
    return drawn.to(device).requires_grad_()


def subject(
    mechanism: str,
    *,
    dim: int = 256,
    heads: int = 4,
    form: str | None = None,
    causal: bool | None = None,
    **options: Any,
) -> Subject:
    """What is to be counted or timed; takes the options that `attnlab.build` takes.

    `form` is by default the card's last one, `causal` true where the mechanism always is. An
    unknown name, form or option is refused with the nearest known one.
    """
    card = catalog.card(mechanism)
    if not card.mixes:
        raise ValueError(f"{card.name} mixes no positions: it has no layer to be counted or timed")
    dim, heads = check_value("dim", dim, Size), check_value("heads", heads, Size)
    causal = check_value("causal", card.causal == "always" if causal is None else causal, bool)
    form = list(card.forms)[-1] if form is None else form
    choose("form", form, card.every_form)
    known = {name: kind for name, kind in card.option_names().items() if name != "form"}
    for name, value in options.items():
        choose("option", name, known)
        options[name] = check_value(name, value, known[name])
    made = Subject(card.name, dim, heads, form, causal, tuple(sorted(options.items())))
    made.layer(1, "meta")  # refused here rather than at the first length
    return made


def subjects(
    names: Container[str] | None = None, *, dim: int = 256, heads: int = 4
) -> list[Subject]:
    """Every mechanism that mixes positions, in its last form, in the order of the shelf."""
    if names is not None and (isinstance(names, str) or not isinstance(names, Container)):
        raise TypeError(f"names should be a list of mechanisms, got {names!r}")
    return [
        subject(card.name, dim=dim, heads=heads)
        for card in catalog.cards()
        if card.mixes and (names is None or card.name in names)
    ]


def check_subject(given: object) -> None:
    if not isinstance(given, Subject | OwnLayer):
        raise TypeError(
            'a layer to be measured is expected, as attnlab.measure.subject.subject("full") or '
            f"OwnLayer(module) makes it, got a {type(given).__name__}"
        )


def once_for_each(
    function: Callable[Concatenate[Any, int, P], R],
) -> Callable[Concatenate[Any, int, P], R]:
    """A function of a layer and a length that is called once for each; both are checked first."""
    cached = catalog.remembered(function)

    @functools.wraps(function)
    def call(subject: Any, n: int, *args: P.args, **kwargs: P.kwargs) -> R:
        check_subject(subject)
        return cached(subject, check_length(n), *args, **kwargs)

    return call


def check_length(n: object) -> int:
    """A length of at least one token."""
    return check_integer("n", n, at_least=1)
