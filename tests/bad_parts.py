"""Bad calls of what is no mechanism: feed-forward layers, joins, depths, objectives, compressions.

As ``tests/test_bad_calls.py`` makes them of mechanisms, which runs these with its own.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn

import attnlab
from attnlab import catalog
from attnlab.core.card import Card
from attnlab.core.options import parameters_of, takes_padding
from attnlab.core.shapes import regrouped
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Batch
from attnlab.testing.compression import network
from attnlab.testing.mechanisms import Sizes, inputs, required, variants
from attnlab.train.objective import chosen, model_options
from tests.bad_calls import EITHER, REFUSE, VALUES, WELCOME, Call, bad_calls, shown

DIM, LAYERS, N, VOCAB = 12, 3, 7, 11
LONG = {"layers": [10**9], "stacks": [10**9]}
Target = Callable[[], Iterator[Call]]


def targets() -> dict[str, Target]:
    made: dict[str, Target] = {}
    for card in (*catalog.shelf("architecture"), *catalog.shelf("compression")):
        made[f"build {card.name}"] = functools.partial(of_build, card)
    for card in catalog.shelf("architecture"):
        if card.role == "feed":
            made[f"module {card.name}"] = functools.partial(of_feed, card)
            for name in card.forms:
                made[f"form {card.name} {name}"] = functools.partial(of_feed_form, card, name)
        else:
            made[f"in a model {card.name}"] = functools.partial(of_part, card)
    for card in catalog.shelf("objectives"):
        if card.role == "objective":
            made[f"build {card.name}"] = functools.partial(of_build, card)
            made[f"objective {card.name}"] = functools.partial(of_objective, card)
    for card in catalog.shelf("compression"):
        made[f"compress {card.name}"] = functools.partial(of_compression, card)
    return made


def keywords(function: Callable[..., Any], parameters: Any) -> Callable[..., Any]:
    """A function that takes only these, by keyword."""

    def call(**arguments: Any) -> Any:
        return function(**arguments)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    )
    return call


def with_option(card: Card, name: str) -> Mapping[str, Any]:
    """The options of a variant that has this one: elsewhere it might mean nothing."""
    return next((each for each in variants(card) if name in each), {})


def options_of(card: Card) -> Iterator[inspect.Parameter]:
    """What ``build`` takes, with the default of each."""
    by_name = dict(inspect.signature(card.build).parameters)
    own = {} if card.options is None else {f.name: f.default for f in fields(card.options)}
    for name, annotation in card.option_names().items():
        default = own.get(name, getattr(by_name.get(name), "default", inspect.Parameter.empty))
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )


def needed(card: Card) -> dict[str, Any]:
    """What ``build`` cannot do without."""
    sizes = {"dim": DIM, "layers": LAYERS, "vocab": VOCAB}
    taken = set(inspect.signature(card.build).parameters) | set(card.option_names())
    given = {name: value for name, value in sizes.items() if name in taken}
    if "small" in taken:
        given["small"] = token_model(vocab=VOCAB + 1)
    return given


def token_model(**more: Any) -> TinyTransformer:
    sizes: dict[str, Any] = {"dim": DIM, "heads": 2, "layers": 1, "max_len": 3 * N}
    given = {"kind": "token_classifier", "vocab": VOCAB, "classes": VOCAB, **sizes, **more}
    return TinyTransformer(**given)


def of_build(card: Card) -> Iterator[Call]:
    """Built by name; a feed-forward layer is called, too."""

    def tried(**chosen: Any) -> Any:
        made = attnlab.build(card.name, **{**needed(card), **chosen})
        if card.role != "feed":
            return made
        dim = chosen.get("dim", DIM)
        return made(torch.randn(2, N, dim if isinstance(dim, int) and dim < 1000 else DIM))

    known = {each.name: each for each in options_of(card)}
    for name in ("dim", "layers"):
        if name in (build := inspect.signature(card.build).parameters):
            known.setdefault(name, build[name])
    for name, parameter in known.items():
        right = {n: v for n, v in with_option(card, name).items() if n in known}
        function = keywords(tried, [parameter])
        yield from bad_calls(f"build {card.name}", function, right, skip=LONG)


# ---- feed-forward layers


def of_feed_form(card: Card, name: str) -> Iterator[Call]:
    form, target = card.forms[name], f"form {card.name} {name}"
    sizes = Sizes(b=2, n=N, dim=5, f=11)
    tensors = dict(zip(required(form), inputs(form, sizes, torch.float32), strict=True))
    made = regrouped(form, tensors)
    for each, parameter in inspect.signature(form).parameters.items():
        right = {**made, **card.arguments(form, with_option(card, each))}
        if each == "padding":
            right["padding"] = torch.ones(2, N, dtype=torch.bool)
        yield from bad_calls(target, keywords(form, [parameter]), right)
    right = {**made, **card.arguments(form, {})}
    for words, change in EVERYWHERE.items():
        changed = regrouped(form, {n: change(x) for n, x in tensors.items()})
        yield Call(target, f"all tensors {words}", functools.partial(form, **{**right, **changed}))


EVERYWHERE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sparse": torch.Tensor.to_sparse,
    "on meta": lambda x: x.to("meta"),
    "complex": lambda x: x * 1j,
    "of integers": lambda x: torch.ones_like(x, dtype=torch.long),
    "with no columns": lambda x: x[..., :0],
}


def of_feed(card: Card) -> Iterator[Call]:
    target, layer = f"module {card.name}", attnlab.build(card.name, dim=DIM).eval()
    x, padding = torch.randn(2, N, DIM), torch.arange(N) < torch.tensor([[N], [4]])
    yield from bad_calls(target, layer.forward, {"x": x})
    yield Call(target, "an empty batch", lambda: layer(x[:0]), WELCOME)
    if takes_padding(layer):
        yield from bad_calls(target, layer.forward, {"x": x, "padding": padding})
        for bad in (math.nan, math.inf):
            dirty = x.masked_fill(~padding[..., None], bad)
            told = functools.partial(real_part, layer, dirty, padding)
            yield Call(target, f"{bad} in padded tokens", told, WELCOME)
        yield Call(
            target, "an empty batch with padding", lambda: layer(x[:0], padding=padding[:0]),
            WELCOME,
        )  # fmt: skip


def real_part(layer: nn.Module, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = layer(x, padding=padding)[padding]
    return out


# ---- joins and depths, by their names in a model


def of_part(card: Card) -> Iterator[Call]:
    target, role = f"in a model {card.name}", card.role
    # what the model itself says is an error when given, in a sentence
    sized = {"dim", "layers", "side", "others", "dropout"}

    def made(**chosen: Any) -> Any:
        parts: dict[str, Any] = {role: card.name, f"{role}_options": chosen}
        if role == "depth" and not catalog.goes_with("pre_norm", card.name):
            parts["join"] = "sub_ln"
        model = token_model(layers=LAYERS, **parts).eval()
        return model(torch.zeros(1, 3, dtype=torch.long))

    yield Call(target, "as it comes", made, WELCOME)
    for parameter in options_of(card):
        if parameter.name not in sized:
            right = {n: v for n, v in with_option(card, parameter.name).items() if n not in sized}
            right = {} if "tolerance" in right else right  # of float64
            yield from bad_calls(target, keywords(made, [parameter]), right, skip=LONG)
    for value in VALUES:
        make = functools.partial(token_model, **{role: card.name, f"{role}_options": value})
        yield Call(target, f"{role}_options={shown(value)}", make, EITHER)
    yield Call(target, "an option that it has not", functools.partial(made, nonsense=1), REFUSE)


# ---- objectives


def of_objective(card: Card) -> Iterator[Call]:
    """Batches that are none, and texts and padding of which no batch is made."""
    target, task = f"objective {card.name}", task_for(card)
    net = TinyTransformer(**model_options(task, card.name), dim=DIM, heads=2, layers=1)
    objective = objective_for(card, task)
    objective.fitted(net)
    batch, draws = task.batch("train", 4, 0), torch.Generator().manual_seed(0)
    right = {"model": net, "batch": batch, "generator": draws}
    others = {"model": [len, int]}  # whose own errors are the caller's
    yield from bad_calls(target, objective.forward, right, skip=others)
    tokens = batch.inputs
    changes: dict[str, dict[str, Any]] = {
        "inputs of floats": {"inputs": tokens.float()},
        "inputs beyond the vocabulary": {"inputs": tokens + 1000},
        "negative inputs": {"inputs": tokens - 1000},
        "inputs that are a list": {"inputs": tokens.tolist()},
        "inputs of one axis": {"inputs": tokens[0]},
        "fewer inputs than targets": {"inputs": tokens[:2]},
        "padding of floats": {"padding": torch.ones(tokens.shape)},
        "padding of another shape": {"padding": torch.ones(2, 3, dtype=torch.bool)},
        "targets of floats": {"targets": batch.targets.float()},
    }
    for words, change in changes.items():
        kept = {each.name: getattr(batch, each.name) for each in fields(batch)}
        spoilt = functools.partial(Batch, **{**kept, **change})
        yield Call(target, words, lambda make=spoilt: objective(net, make(), draws), REFUSE)
    narrow = replace(batch, inputs=tokens[:, :1], targets=batch.targets[..., :1], padding=None)
    yield Call(target, "one token a row", functools.partial(objective, net, narrow), EITHER)
    empty = batch[:0]
    yield Call(target, "no rows", functools.partial(objective, net, empty), EITHER)


def task_for(card: Card) -> Any:
    """A small task of rows as the objective reads them."""
    if card.claims.source:  # type: ignore[union-attr]
        return attnlab.tasks.task("two_dialects", words=4, shortest=2)
    if card.claims.texts == 3:  # type: ignore[union-attr]
        return attnlab.tasks.task("citations", words=8)
    if card.structure is not None:
        return attnlab.tasks.task("agreement", form="tree", most=0, words=10)
    return attnlab.tasks.task("copying", items=4)


def objective_for(card: Card, task: Any) -> Any:
    """The objective for that task; one that has a teacher is given an untrained one."""
    if "teacher" not in parameters_of(card.build):
        return chosen(card.name, task)
    sizes: dict[str, Any] = {"dim": DIM, "heads": 2, "layers": 1}
    return attnlab.build(
        card.name, teacher=TinyTransformer(**model_options(task, card.name), **sizes)
    )


# ---- compressions


def of_compression(card: Card) -> Iterator[Call]:
    target = f"compress {card.name}"
    compress: Any = attnlab.build(card.name)
    yield from bad_calls(target, compress.forward, {"module": network()})
    yield from bad_calls(target, compress.bytes, {"module": compress(network())})
    for words, made in {
        "of half precision": network().half(),
        "on meta": network().to("meta"),
        "with a linear layer that two names share": shared(),
        "compressed already": compress(network()),
        "of an attention layer": attnlab.build("full", dim=DIM, heads=2),
        "of a model": token_model(),
    }.items():
        yield Call(target, words, functools.partial(compress, made), EITHER)
    for name, form in card.forms.items():
        W = torch.randn(7, 5)
        for each, parameter in inspect.signature(form).parameters.items():
            right = {"W": W, **card.arguments(form, with_option(card, each))}
            yield from bad_calls(f"form {card.name} {name}", keywords(form, [parameter]), right)


def shared() -> nn.Module:
    one = nn.Linear(DIM, DIM)
    return nn.Sequential(one, nn.Tanh(), one)
