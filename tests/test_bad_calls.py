"""Every bad call of the public face ends in a sentence of attnlab's own, or in the right result.

The calls are made from signatures and cards (``tests/bad_calls.py``): a mechanism, a task, a
pattern or a figure that is added is asked as the others are.
"""

import copy
import functools
import importlib
import inspect
import itertools
import math
import pkgutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnlab
import attnlab.figures
from attnlab import exercises, pretrained
from attnlab.core import patterns
from attnlab.core.card import Card
from attnlab.core.options import Size
from attnlab.core.positions import Rotation
from attnlab.core.shapes import letters_of, regrouped
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse.attention import PatternOptions
from attnlab.core.sparse.auto import auto
from attnlab.core.sparse.blocked import blocked
from attnlab.core.sparse.layout import layout
from attnlab.lens.heads import head_statistics
from attnlab.lens.mixing import mixing_matrix, mixing_of
from attnlab.lens.patches import patch_statistics
from attnlab.lens.spectrum import spectrum
from attnlab.measure.count import count, expected_exponent, exponent
from attnlab.models.generate import sample
from attnlab.models.positions import schemes
from tests import bad_parts, scheme_inputs
from tests.bad_calls import EITHER, REFUSE, VALUES, WELCOME, Call, bad_calls, faults, shown
from tests.scheme_inputs import NOT_MIXING
from tests.test_claims import CARDS, DIM, HEADS, SIZES, extra_inputs, inputs, required, variants

LEAST = 1500
KEYWORD = inspect.Parameter.KEYWORD_ONLY
Target = Callable[[], Iterator[Call]]

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


@functools.cache
def targets() -> dict[str, Target]:
    """By name, what makes the calls of each target."""
    made: dict[str, Target] = {"catalogue": catalogue}
    for card in CARDS:
        made[f"build {card.name}"] = functools.partial(of_build, card)
        made[f"module {card.name}"] = functools.partial(of_module, card)
        for name in card.forms:
            made[f"form {card.name} {name}"] = functools.partial(of_form, card, name)
    for card in NOT_MIXING:
        made[f"build {card.name}"] = functools.partial(of_scheme, card)
        made[f"module {card.name}"] = functools.partial(of_scheme_module, card)
        for name in card.forms:
            made[f"form {card.name} {name}"] = functools.partial(of_scheme_form, card, name)
        if card.name in schemes() and card.structure is None:
            made[f"positions={card.name}"] = functools.partial(of_scheme_in_a_model, card)
    for name, kind in attnlab.tasks.tasks().items():
        made[f"task {name}"] = functools.partial(of_task, name, kind)
    for name, make in patterns.primitives().items():
        made[f"pattern {name}"] = functools.partial(of_pattern, name, make)
    for name, figure in figures().items():
        made[f"figure {name}"] = functools.partial(of_figure, name, figure)
    for name in exercises.__all__:
        if name.startswith("check_"):
            made[f"exercise {name}"] = functools.partial(of_exercise, name)
    made |= bad_parts.targets()
    several = (algebra, reading, engine, model, decoding, generating, training, looking, counting)
    return made | {each.__name__: each for each in several}


# ---- mechanisms


def variant_with(card: Card, option: str) -> Mapping[str, Any]:
    """The options of a variant that has this one: elsewhere it might mean nothing."""
    return next((each for each in variants(card) if option in each), {})


def tried(card: Card, dim: Any, heads: Any, causal: Any, **chosen: Any) -> Any:
    """A module built, and what it gives."""
    layer = attnlab.build(card.name, dim=dim, heads=heads, causal=causal, **chosen)
    width = dim if isinstance(dim, int) and dim < 1000 else DIM
    return layer(torch.randn(2, 7, width), **extra_inputs(card, torch.ones(2, 7, dtype=torch.bool)))


def of_build(card: Card) -> Iterator[Call]:
    right = {"dim": DIM, "heads": HEADS, "causal": card.causal == "always"}
    annotations = {"dim": Size, "heads": Size, "causal": bool} | card.option_names()
    for name, annotation in annotations.items():
        given = variant_with(card, name)
        chosen = {**right, **{n: v for n, v in given.items() if n in annotations}}
        default = {f.name: f.default for f in fields(card.options)}.get(name)
        parameter = inspect.Parameter(name, KEYWORD, annotation=annotation, default=default)
        function = with_signature(functools.partial(tried, card), [parameter])
        yield from bad_calls(f"build {card.name}", function, chosen)
    if issubclass(card.options, PatternOptions):
        pattern = card.options().pattern
        yield from bad_calls(f"pattern of {card.name}", pattern, {"heads": HEADS})


def with_signature(function: Callable[..., Any], parameters: Any) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        return function(**arguments)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    )
    return call


def of_form(card: Card, name: str) -> Iterator[Call]:
    form, target = card.forms[name], f"form {card.name} {name}"
    tensors = dict(zip(required(form), inputs(form, SIZES[0], torch.float32), strict=True))
    made = regrouped(form, tensors)
    real = torch.ones(SIZES[0]["b"], SIZES[0]["n"], dtype=torch.bool)
    beside = (
        functools.partial(extra_inputs, card) if "structure" in parameters(form) else lambda _: {}
    )
    for each, parameter in parameters(form).items():
        right = {**made, **beside(real), **card.arguments(form, variant_with(card, each))}
        if each not in right and each in letters_of(form):
            right |= example_of(form, each)
        yield from bad_calls(target, with_signature(form, [parameter]), right)
    right = {**made, **beside(real), **card.arguments(form, {})}
    for words, change in EVERYWHERE.items():
        changed = regrouped(form, {n: change(x) for n, x in tensors.items()})
        yield Call(target, f"all tensors {words}", functools.partial(form, **{**right, **changed}))
    empty = {n: x[:0] if "b" in letters(form, n) else x for n, x in tensors.items()}
    empty = regrouped(form, empty) | beside(real[:0])
    yield Call(target, "an empty batch", functools.partial(form, **{**right, **empty}), WELCOME)


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def letters(form: Callable[..., Any], name: str) -> tuple[str, ...]:
    return letters_of(form)[name][0].axes


EVERYWHERE: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": Tensor.to_sparse,
    "on meta": lambda x: x.to("meta"),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "complex where real is meant, or the reverse": lambda x: (
        x.real + 0 if x.is_complex() else x * 1j
    ),
    "of integers": lambda x: torch.ones_like(x, dtype=torch.long),
    "with no columns": lambda x: x[..., :0],
}


def example_of(form: Callable[..., Any], name: str) -> dict[str, Tensor]:
    """A padding, a mask or a bias that is right; other tensors are left out."""
    b, h, n, m = (SIZES[0][letter] for letter in "bhnm")
    known = {
        "padding": torch.ones(b, m, dtype=torch.bool),
        "mask": torch.ones(n, m).bool(),
        "bias": torch.zeros(h, n + m - 1),
    }
    return {name: known[name]} if name in known else {}


def of_module(card: Card) -> Iterator[Call]:
    target = f"module {card.name}"
    layer = attnlab.build(card.name, dim=DIM, heads=HEADS, causal=card.causal == "always")
    x, padding = torch.randn(2, 7, DIM), torch.arange(7) < torch.tensor([[7], [4]])
    beside, padded = extra_inputs(card, torch.ones_like(padding)), extra_inputs(card, padding)
    yield from bad_calls(target, layer.forward, {"x": x, **beside})
    yield from bad_calls(target, layer.forward, {"x": x, "padding": padding, **padded})
    if beside:
        yield Call(target, "no structure", lambda: layer(x), REFUSE)
    for bad in (math.nan, math.inf):
        dirty = x.masked_fill(~padding[..., None], bad)
        call = functools.partial(layer, dirty, padding, **padded)
        yield Call(target, f"{bad} in padded tokens", call, WELCOME)
    none = extra_inputs(card, padding[:0])
    yield Call(target, "an empty batch", lambda: layer(x[:0], **none), WELCOME)
    call = functools.partial(layer, x[:0], padding[:0], **none)
    yield Call(target, "an empty batch with padding", call, WELCOME)
    if card.causal != "never":
        yield from of_step(card)


def of_step(card: Card) -> Iterator[Call]:
    target, x = f"module {card.name}", torch.randn(2, 3, DIM)
    layer = decoder(card)
    if not hasattr(layer, "step"):
        return
    own = layer.step(x)[1]
    yield Call(target, "step from its own state", lambda: layer.step(x, own), WELCOME)
    yield Call(target, "step of an empty batch", lambda: layer.step(x[:0]), WELCOME)
    yield Call(
        target, "step from the state of another batch", lambda: layer.step(x[:1], own), REFUSE
    )
    yield Call(target, "step from a wide state", lambda: layer.step(x, own_of_double(card)))
    for value in VALUES:
        if value is not None:
            yield Call(
                target, f"step(state={shown(value)})", lambda v=value: layer.step(x, v), REFUSE
            )
    for words, change in EVERYWHERE.items():
        yield Call(target, f"step({words})", lambda c=change: layer.step(c(x), own))
    for other in CARDS:
        if other is not card and (state := state_of(other.name)) is not None:
            words = f"step from the state of {other.name}"
            yield Call(target, words, lambda s=state: layer.step(x, s)[0])


def decoder(card: Card) -> nn.Module:
    return attnlab.build(card.name, dim=DIM, heads=HEADS, causal=True)


@functools.cache
def state_of(name: str) -> Any:
    """What a decoder keeps of three tokens, which every other one is given; None without steps."""
    card = attnlab.card(name)
    layer = decoder(card) if card.causal != "never" else None
    return layer.step(torch.randn(2, 3, DIM))[1] if hasattr(layer, "step") else None


def own_of_double(card: Card) -> Any:
    layer = attnlab.build(card.name, dim=2 * DIM, heads=HEADS, causal=True)
    return layer.step(torch.randn(2, 3, 2 * DIM))[1]


# ---- position schemes and embeddings


def of_scheme(card: Card) -> Iterator[Call]:
    """Built, and called with what fits the layer that it was built for."""

    def tried(dim: Any, heads: Any, causal: Any, **chosen: Any) -> Any:
        layer = attnlab.build(card.name, dim=dim, heads=heads, causal=causal, **chosen)
        small = (size if size in range(1, 1000) else 1 for size in (dim, heads))
        return layer(**scheme_inputs.layer_inputs(layer, *small, torch.float32))

    right = {"dim": DIM, "heads": HEADS, "causal": False}
    annotations = {"dim": Size, "heads": Size, "causal": bool} | card.option_names()
    for name, annotation in annotations.items():
        given = {n: v for n, v in variant_with(card, name).items() if n in annotations}
        given |= {"vocab": scheme_inputs.VOCAB} if "vocab" in annotations else {}
        default = {f.name: f.default for f in fields(card.options)}.get(name)
        parameter = inspect.Parameter(name, KEYWORD, annotation=annotation, default=default)
        function = with_signature(tried, [parameter])
        yield from bad_calls(f"build {card.name}", function, {**right, **given})


def of_scheme_form(card: Card, name: str) -> Iterator[Call]:
    form, target = card.forms[name], f"form {card.name} {name}"
    for given in variants(card):
        made = scheme_inputs.form_inputs(card, name, given, torch.float32)
        options = scheme_inputs.form_options(card, name, given)
        yield from bad_calls(target, form, {**made, **options})
        yield from wrong_numbers(target, functools.partial(form, **options), made)


def of_scheme_module(card: Card) -> Iterator[Call]:
    target = f"module {card.name}"
    for given in variants(card):
        layer = scheme_inputs.build(card, DIM, HEADS, given)
        made = scheme_inputs.layer_inputs(layer, DIM, HEADS, torch.float32)
        yield from bad_calls(target, layer.forward, made)
        yield from wrong_numbers(target, layer, made)
        if "dim" in parameters(card.build):
            doubled = {n: torch.cat([x, x], -1) if is_real(x) else x for n, x in made.items()}
            want = REFUSE if doubled.keys() - {"tokens", "positions"} else WELCOME
            yield Call(target, "twice as wide", functools.partial(layer, **doubled), want)
        if isinstance(layer, Rotation):
            q, k, at = made.values()
            yield from bad_calls(target, layer.queries, {"q": q, "positions": at})
            yield from bad_calls(target, layer.keys, {"k": k, "positions": at})
        if "positions" in parameters(layer.forward):
            rows = {**made, "positions": torch.arange(14).view(2, 7)}
            if getattr(layer, "positions", rows) is not None:
                yield from bad_calls(target, layer.forward, rows)


def is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def wrong_numbers(target: str, call: Callable[..., Any], made: Mapping[str, Any]) -> Iterator[Call]:
    """All tensors spoilt, an empty batch, and numbers that no table may have a row for."""
    for words, change in EVERYWHERE.items():
        changed = {n: change(x) if isinstance(x, Tensor) else x for n, x in made.items()}
        yield Call(target, f"all tensors {words}", functools.partial(call, **changed))
    for name, x in made.items():
        if isinstance(x, Tensor) and not x.is_floating_point():
            want = REFUSE if name == "tokens" else EITHER
            for shift in (-1000, 10**6):
                wrong = {**made, name: x + shift}
                words = f"{name} moved by {shift}"
                yield Call(target, words, functools.partial(call, **wrong), want)


def of_scheme_in_a_model(card: Card) -> Iterator[Call]:
    """The options of a scheme as those of a model, and its own words for what it cannot take."""

    def made(**chosen: Any) -> Any:
        small = tiny(positions=card.name, position_options=chosen)
        return small(torch.zeros(1, 3, dtype=torch.long))

    target, decided = f"positions={card.name}", ("max_len", "vocab", "output", "std")
    for name, annotation in card.option_names().items():
        if name not in decided:
            given = {n: v for n, v in variant_with(card, name).items() if n not in decided}
            parameter = inspect.Parameter(name, KEYWORD, annotation=annotation)
            yield from bad_calls(target, with_signature(made, [parameter]), given)
    small = tiny(positions=card.name)
    tokens = torch.arange(6).view(2, 3)
    yield from bad_calls(target, small.forward, {"tokens": tokens})
    for words, wrong in (
        ("negative tokens", tokens - 9),
        ("tokens beyond the vocabulary", tokens + 9),
        ("too many tokens", torch.zeros(1, 17, dtype=torch.long)),
    ):
        yield Call(target, words, lambda x=wrong: small(x), REFUSE)


def catalogue() -> Iterator[Call]:
    for value in VALUES:
        yield Call("catalogue", f"card({shown(value)})", lambda v=value: attnlab.card(v), REFUSE)
        make = functools.partial(attnlab.build, value, dim=DIM)
        yield Call("catalogue", f"build({shown(value)})", make, REFUSE)
        load = functools.partial(pretrained.load, value)
        yield Call("catalogue", f"pretrained.load({shown(value)})", load, REFUSE)
        task = functools.partial(attnlab.tasks.task, value)
        yield Call("catalogue", f"task({shown(value)})", task, REFUSE)
    for name in ("tain", "cards_", "Watch"):
        yield Call("catalogue", f"attnlab.{name}", lambda n=name: getattr(attnlab, n), REFUSE)


# ---- tasks


def of_task(name: str, kind: Any) -> Iterator[Call]:
    target = f"task {name}"

    def made(**chosen: Any) -> Any:
        return attnlab.tasks.task(name, **chosen).batch("train", 2, 0)

    def drawn(split: str = "train", size: int = 2, seed: int = 0) -> Any:
        return made_once.batch(split, size, seed)

    made_once = attnlab.tasks.task(name)
    for parameter in inspect.signature(kind).parameters.values():
        right = {"unit": "patches"} if (name, parameter.name) == ("digits", "patch") else {}
        right |= {"unit": "bpe"} if parameter.name == "bpe_size" else {}
        yield from bad_calls(target, with_signature(made, [parameter]), right)
    yield from bad_calls(target, drawn, {}, skip={"size": [10**9]})
    yield from bad_calls(target, made_once.example, {"index": 1})
    batch = made_once.batch("train", 2, 0)
    for value in (0, "a", None, 1.5, [0]):
        yield Call(target, f"batch[{value!r}]", lambda v=value: batch[v], REFUSE)


# ---- patterns

KINDS: dict[str, tuple[Any, Any]] = {
    "whole": (int, 2),
    "positions": (Sequence[int], [0, 3]),
    "grid": (Sequence[int], (4, 5)),
    "side": (str, "row"),
    "pattern": (patterns.Pattern, patterns.local(1)),
}
"""Kind of an argument of a pattern → its annotation, and a right value."""


def of_pattern(name: str, make: Any) -> Iterator[Call]:
    """A pattern made, and its mask of 20 positions."""

    def dense(**chosen: Any) -> Any:
        return make(**chosen).dense(20)

    parameters = [
        inspect.Parameter(each, KEYWORD, annotation=annotation_of(argument))
        for each, argument in make.arguments.items()
    ]
    right = {each: KINDS[argument.kind][1] for each, argument in make.arguments.items()}
    if "summaries" in name:
        right |= {"stride": 8}
    if "axis" in right:
        right |= {"axis": 1}
    yield from bad_calls(f"pattern {name}", with_signature(dense, parameters), right)


def annotation_of(argument: patterns.Argument) -> Any:
    return Annotated[KINDS[argument.kind][0], argument]


def algebra() -> Iterator[Call]:
    """The methods of a pattern, and the factories that take tensors."""
    ids, valid = torch.tensor([0] * 9 + [1] * 11), torch.ones(2, 20, dtype=torch.bool)
    table = torch.arange(40).view(20, 2) % 20
    yield from bad_calls("document", patterns.document, {"ids": ids})
    yield from bad_calls("padding", patterns.padding, {"valid": valid})
    yield from bad_calls("listed", patterns.listed, {"table": table})
    for value in VALUES:
        make = functools.partial(patterns.per_head, value)
        yield Call("per_head", shown(value), make, REFUSE)
    for pattern in (patterns.local(2), patterns.strided(3) & patterns.causal(), ~patterns.hub()):
        yield from bad_calls("dense", pattern.dense, {"n": 5})
        yield from bad_calls("dense", pattern.dense, {"n": 5, "m": 7})
        yield from bad_calls("row", pattern.row, {"i": 2, "n": 5})
        yield from bad_calls("count", pattern.count, {"n": 5})
        yield from bad_calls("density", pattern.density, {"n": 5})
        yield from bad_calls("blocks", pattern.blocks, {"size": 2})
        yield from bad_calls("shifted", pattern.shifted, {"start": 2})
        right = {"n": 5, "layers": 2}
        yield from bad_calls("receptive field", pattern.receptive_field, right)


def reading() -> Iterator[Call]:
    for text in TEXTS:
        yield Call("read", text[:60], lambda t=text: patterns.read(t), REFUSE)
    for value in VALUES:
        yield Call("read", shown(value), lambda v=value: patterns.read(v), REFUSE)


TEXTS = (
    *("local", "local(", "local()", "local(1.5)", 'local("2")', "local(True)", "local(-1)"),
    *("local(1, 2)", "local(radius=1, radius=2)", "local(width=2)", "local(*[1])", "local(**{})"),
    *("local(1) | ", "local(1) | 3", "3 & local(1)", "local(1) and causal()", "-local(1)"),
    *("local(1) + local(2)", "local(local(1))", "causal().dense(3)", "causal().causal", "hub(1.5)"),
    *("blocks(2, 5)", "random(2, among=3)", "axial(3, 0)", "axial((4, 5), 7)", "per_head(1)"),
    *("__import__('os')", "local.__class__", "[local(1)]", "5", "'local(1)'", "local(2); causal()"),
    *(" | ".join(["local(1)"] * 3000), "~" * 3000 + "local(1)", "(" * 300 + "local(1)" + ")" * 300),
    *("local(1)\x00", "local(9**9)", "local(10_000)x", "lambda: 1", "causal().blocks('a')"),
)


def engine() -> Iterator[Call]:
    """Attention over a pattern, and its layout."""
    q, k, v = torch.randn(3, 2, 3, 20, 5)
    right = {"q": q, "k": k, "v": v, "pattern": patterns.local(2)}
    for form in (blocked, auto):
        yield from bad_calls(form.__name__, form, right)
        for words, change in EVERYWHERE.items():
            changed = {name: change(x) for name, x in (("q", q), ("k", k), ("v", v))}
            yield Call(form.__name__, words, functools.partial(form, **{**right, **changed}))
        short = {**right, "pattern": patterns.padding(torch.ones(2, 19).bool())}
        yield Call(form.__name__, "padding of others", functools.partial(form, **short), REFUSE)
        heads = {**right, "pattern": patterns.per_head(*[patterns.local(1)] * 2)}
        yield Call(form.__name__, "heads of others", functools.partial(form, **heads), REFUSE)
    yield from bad_calls("layout", layout, {"pattern": patterns.local(2), "n": 20, "m": 20})
    yield from bad_calls("softmax", masked_softmax, {"scores": torch.randn(2, 3, 4)})


# ---- models


def tiny(**more: Any) -> attnlab.TinyTransformer:
    sizes = {"vocab": 9, "dim": 12, "layers": 1, "heads": 2, "max_len": 16}
    return attnlab.TinyTransformer(**{**sizes, **more})


def model() -> Iterator[Call]:
    def made(**chosen: Any) -> Any:
        small = tiny(**chosen)
        tokens = torch.zeros(1, 3, dtype=torch.long)
        return small(tokens, source=tokens if small.kind == "encoder_decoder" else None)

    known = inspect.signature(attnlab.TinyTransformer).parameters.values()
    for parameter in known:
        yield from bad_calls("model", with_signature(made, [parameter]), {})
    small, pair = tiny(), tiny(kind="encoder_decoder")
    tokens, padding = torch.arange(6).view(2, 3), torch.ones(2, 3).bool()
    yield from bad_calls("forward", small.forward, {"tokens": tokens, "padding": padding})
    both = {"tokens": tokens, "source": tokens, "source_padding": padding}
    yield from bad_calls("forward", pair.forward, both)
    yield from bad_calls("encode", pair.encode, {"tokens": tokens})
    yield from bad_calls("decode", small.decode, {"tokens": tokens})
    yield from bad_calls("logits", small.logits, {"x": torch.randn(2, 3, 12)})
    for words, wrong in (
        ("negative tokens", tokens - 9),
        ("tokens beyond the vocabulary", tokens + 9),
        ("too many tokens", torch.zeros(1, 17, dtype=torch.long)),
        ("no tokens", tokens[:, :0]),
    ):
        yield Call("forward", words, lambda x=wrong: small(x), REFUSE)
    yield Call("forward", "an empty batch", lambda: small(tokens[:0]), WELCOME)
    with tempfile.TemporaryDirectory() as folder:
        yield from bad_calls("save", small.save, {"path": f"{folder}/model.safetensors"})
        yield from bad_calls(
            "load", attnlab.TinyTransformer.load, {"path": f"{folder}/model.safetensors"}
        )


def decoding() -> Iterator[Call]:
    tokens = torch.arange(6).view(2, 3)
    small, other = tiny(), tiny(layers=2)
    own, foreign = small.step(tokens)[1], other.step(tokens)[1]
    yield from bad_calls("step", small.step, {"tokens": tokens})
    yield Call("step", "from its own state", lambda: small.step(tokens, own), WELCOME)
    yield Call("step", "of another batch", lambda: small.step(tokens[:1], own), REFUSE)
    yield Call("step", "from another model's state", lambda: small.step(tokens, foreign), REFUSE)
    for value in VALUES:
        if value is not None:
            yield Call(
                "step", f"state={shown(value)}", lambda v=value: small.step(tokens, v), REFUSE
            )
    for name in (card.name for card in CARDS if card.causal != "never"):
        stranger = tiny(attention=name)
        if stranger.steps_incrementally:
            state = stranger.step(tokens)[1]
            yield Call("step", f"from a state of {name}", lambda s=state: small.step(tokens, s)[0])


def generating() -> Iterator[Call]:
    small, tokens = tiny(), torch.arange(6).view(2, 3)
    long = {"steps": [10**9]}
    right = {"model": small, "tokens": tokens, "steps": 2}
    yield from bad_calls("generate", attnlab.generate, right, skip=long)
    logits = torch.randn(2, 9)
    yield from bad_calls("sample", sample, {"logits": logits})
    broken = tiny()
    nn.init.constant_(broken.embedding.weight, math.nan)
    for temperature in (0, 1.0, 1e-46):
        make = functools.partial(attnlab.generate, broken, tokens, 2, temperature=temperature)
        yield Call("generate", f"NaN at temperature {temperature}", make, REFUSE)
        make = functools.partial(attnlab.generate, small, tokens, 2, temperature=temperature)
        yield Call("generate", f"temperature {temperature}", make, EITHER)


# ---- training


def training() -> Iterator[Call]:
    task = attnlab.tasks.task("copying", items=4)
    small = attnlab.TinyTransformer(dim=12, layers=1, heads=2, **task.model_options())

    def fit(model: Any, **arguments: Any) -> Any:
        model = copy.deepcopy(small) if model is small else model
        return attnlab.train.fit(model, **arguments)

    right = {"model": small, "task": task, "steps": 1, "batch_size": 2, "progress": False}
    huge = [10**9]
    long = dict.fromkeys(("steps", "batch_size", "evaluate_batches", "accumulate"), huge)
    with tempfile.TemporaryDirectory() as folder:
        for name, parameter in inspect.signature(attnlab.train.fit).parameters.items():
            more = {"save_every": {"folder": folder, "save_every": 1}}.get(name, {})
            call = with_signature(fit, [parameter])
            yield from bad_calls("fit", call, {**right, **more}, skip=long)
    for words, broken in BROKEN_TASKS.items():
        wrong = {**right, "task": Broken(task, broken)}
        yield Call("fit", f"a task with {words}", functools.partial(fit, **wrong), REFUSE)
    right = {"model": small, "task": task, "batches": 1}
    evaluate = attnlab.train.evaluate
    yield from bad_calls("evaluate", evaluate, right, skip={"batches": huge, "batch_size": huge})
    load = attnlab.train.load_checkpoint
    yield Call("load_checkpoint", "a folder that is not there", lambda: load("/nowhere"), REFUSE)
    for value in VALUES:
        want = EITHER if isinstance(value, str) else REFUSE
        yield Call("load_checkpoint", shown(value), lambda v=value: load(v), want)


class Broken:
    """A task whose batches are spoilt."""

    def __init__(self, task: Any, spoil: Callable[[Any], Any]) -> None:
        self.task, self.spoil = task, spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def batch(self, split: str, size: int, seed: int) -> Any:
        return self.spoil(self.task.batch(split, size, seed))


def spoilt(**changes: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    def spoil(batch: Any) -> Any:
        old = {name: getattr(batch, name) for name in ("inputs", "targets", "padding")}
        return type(batch)(**{**old, **{n: change(old[n]) for n, change in changes.items()}})

    return spoil


BROKEN_TASKS: dict[str, Callable[[Any], Any]] = {
    "no batch": lambda batch: None,
    "a tuple for a batch": lambda batch: (batch.inputs, batch.targets),
    "targets of -1": spoilt(targets=lambda x: torch.full_like(x, -1)),
    "targets of floats": spoilt(targets=Tensor.float),
    "targets beyond the vocabulary": spoilt(targets=lambda x: x + 1000),
    "inputs of floats": spoilt(inputs=Tensor.float),
    "inputs beyond the vocabulary": spoilt(inputs=lambda x: x + 1000),
    "inputs that are a list": spoilt(inputs=Tensor.tolist),
    "twice the rows": spoilt(**dict.fromkeys(("inputs", "targets"), lambda x: torch.cat([x, x]))),
    "targets that are shorter": spoilt(targets=lambda x: x[:, :-1]),
    "targets that all do not count": spoilt(targets=lambda x: torch.full_like(x, -100)),
    "padding of floats": spoilt(padding=lambda x: torch.ones(1, 8)),
}


# ---- looking inside


def looking() -> Iterator[Call]:
    def watched(model: nn.Module, only: Any = None, keep: Any = None) -> list[Any]:
        with attnlab.watch(model, only=only, keep=keep) as seen:
            small(torch.zeros(1, 3, dtype=torch.long))
        return [each.weights for each in seen]

    small, layer = tiny(), attnlab.build("full", dim=12, heads=2)
    watched.__signature__ = inspect.signature(attnlab.watch)  # type: ignore[attr-defined]
    yield from bad_calls("watch", watched, {"model": small})
    with attnlab.watch(small) as seen:
        small(torch.zeros(1, 3, dtype=torch.long))
    for value in VALUES:
        yield Call("watch", f"seen[{shown(value)}]", lambda v=value: seen[v])
    x, padding = torch.randn(1, 5, 12), torch.ones(1, 5).bool()
    right = {"module": layer, "x": x, "padding": padding}
    others = [len, int]  # whose own errors are the caller's
    yield from bad_calls("mixing_matrix", mixing_matrix, right, skip={"module": others})
    q, k, v = torch.randn(3, 1, 2, 5, 3)
    form = attnlab.card("full").forms["naive"]
    right = {"form": form, "q": q, "k": k, "v": v}
    yield from bad_calls("mixing_of", mixing_of, right, skip={"form": others})
    weights = torch.rand(2, 3, 5, 5).softmax(-1)
    more = {"tokens": list("abcde"), "mask": torch.ones(1, 1, 5, 5).bool()}
    padding = torch.ones(2, 5).bool()
    right = {"weights": weights, "padding": padding, **more}
    yield from bad_calls("head_statistics", head_statistics, right)
    seen = {"weights": weights, "grid": (2, 2), "ink": padding[:, 1:], "padding": padding}
    yield from bad_calls("patch_statistics", patch_statistics, seen)
    yield from bad_calls("spectrum", spectrum, {"maps": weights, "padding": padding})
    yield from bad_calls("rank", spectrum(weights).rank, {})
    yield from bad_calls("cumulative", spectrum(weights).cumulative, {})
    for name in ("head_statistics", "spectrum"):
        function = {"head_statistics": head_statistics, "spectrum": spectrum}[name]
        for bad in (math.nan, math.inf, -1.0):
            wrong = torch.full_like(weights, bad)
            yield Call(name, f"weights of {bad}", lambda f=function, w=wrong: f(w))


def counting() -> Iterator[Call]:
    sizes, values = [16, 32, 64], [1.0, 2.0, 4.0]
    yield from bad_calls("exponent", exponent, {"sizes": sizes, "values": values})
    cost = attnlab.card("full").cost("time", "naive")
    right = {"expression": cost, "letter": "n", "sizes": sizes, "values": dict.fromkeys("hmde", 2)}
    yield from bad_calls("expected_exponent", expected_exponent, right)
    for value in VALUES:
        if not callable(value):
            yield Call("count", shown(value), lambda v=value: count(v), REFUSE)
    card = attnlab.card("full")
    for method in (card.cost, card.order, card.order_latex):
        right = {"what": "time", "form": "naive"}
        yield from bad_calls(method.__name__, method, right)


# ---- exercises: a wrong solution gets an explanation, and an argument that is no solution an error


def of_exercise(name: str) -> Iterator[Call]:
    check = getattr(exercises, name)
    parameters = inspect.signature(check).parameters
    if "function" not in parameters:
        right = {next(iter(parameters)): 3}
        right |= {"expected": 3.0} if "expected" in parameters else {}
        yield from bad_calls(f"exercise {name}", check, right)
        return
    for value in VALUES:
        yield Call(f"exercise {name}", shown(value), lambda v=value: check(v), EITHER)
    for words, answer in ANSWERS.items():
        yield Call(f"exercise {name}", words, lambda a=answer: check(a), WELCOME)


def fails(*_: Any) -> Any:
    raise RuntimeError("what a learner's mistake raises")


ANSWERS: dict[str, Callable[..., Any]] = {
    "a function of nothing": lambda: 1,
    "a function that fails": fails,
    "a function that gives nothing": lambda *_: None,
    "a function that gives NaN": lambda *_: torch.tensor(math.nan),
    "a function that gives a text": lambda *_: "attention",
    "a function that gives its input": lambda *args: args[0],
    "a function that gives too much": lambda *args: args,
}


# ---- figures

RUN = [{"step": s, "loss": 3.0 / s, "validation_loss": 4.0 / s} for s in (1, 2, 3)]
MAP = np.array([[1.0, 0.0], [0.25, 0.75]])
FIGURES: dict[str, dict[str, Any]] = {
    "loss_curves": {"runs": {"full": RUN}},
    "cost_curves": {"series": {"full": [(8, 1.0), (16, 4.0)]}, "quantity": "time (ms)"},
    "trade_off": {"points": {"a": (1.0, [0.5, 0.6])}, "cost": "time (ms)", "score": "right (%)"},
    "roofline": {"points": {"a": (2e9, 4e6, 0.1)}, "peak": 1e11, "bandwidth": 1e10},
    "line_curves": {"series": {"a": [(0, 1.0), (2, -1.0)]}, "across": "h", "quantity": "next h"},
    "spectrum_curves": {"series": {"a": [0.5, 0.8, 1.0]}},
    "claimed_costs": {"cards": [attnlab.card("full"), attnlab.card("linear")], "n": 64},
    "score_dots": {"scores": {"full": {"copying": [90.0, 95.0]}}},
    "score_table": {"scores": {"full": {"copying": [90.0, 95.0]}}, "guesses": {"full": 6.0}},
    "part_bars": {"parts": {"head 0.1": [2.5, 2.0], "embedding": [-0.5, 0.1]}},
    "head_scatter": {"heads": {"0.1": ([0.9, 0.7], [0.1, 0.2])}, "across": "a", "up": "b"},
    "length_scores": {"scores": {"full": {32: [90.0, 95.0], 64: [40.0, 41.5]}}},
    "token_strip": {"tokens": ["a", "b"]},
    "image_sequence": {"image": np.arange(16).reshape(4, 4)},
    "image_grid": {"images": np.ones((1, 2, 4, 4))},
    "cluster_grid": {"points": np.ones((1, 3, 2)), "found": {"a": np.ones((1, 2, 4))}}
    | {"true": np.ones((1, 2, 4))},
    "heat_map": {"weights": MAP},
    "head_grid": {"weights": MAP[None, None]},
    "film": {"weights": MAP[None], "steps": [1]},
    "map_gallery": {"maps": {"full": MAP}},
    "pattern_map": {"pattern": patterns.local(1), "n": 6},
    "head_patterns": {"patterns": patterns.local(1), "n": 6},
    "receptive_field_film": {"patterns": patterns.local(1), "n": 6, "layers": 2},
    "reach_film": {"patterns": patterns.local(1), "n": 6, "layers": 2},
    "density_curves": {"patterns": {"local": patterns.local(1)}, "lengths": [4, 8]},
    "patch_maps": {"maps": np.ones((1, 2, 4, 4)), "query": (1, 2), "ink": np.eye(4, dtype=bool)},
    "pixel_receptive_field": {"panels": {"a": np.eye(4, dtype=bool)}, "pixel": (1, 1)},
    "process_timeline": {"panels": {"a": {"p": [("work", 0.0, 1.5), ("wait", 1.5, 2.0)]}}},
}
"""A right call of each, without its title."""


def figures() -> dict[str, Callable[..., Any]]:
    """Every function of attnlab.figures that draws."""
    home = attnlab.figures
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(home.__path__, f"{home.__name__}.")
    ]
    return {
        name: thing
        for module in modules
        for name, thing in vars(module).items()
        if inspect.isfunction(thing)
        and thing.__module__ == module.__name__
        and not name.startswith("_")
        and getattr(thing.__annotations__.get("return"), "__name__", "") == "Picture"
    }


def of_figure(name: str, figure: Callable[..., Any]) -> Iterator[Call]:
    assert name in FIGURES, f"FIGURES lacks a right call of {name}"
    right = {"title": "A title.", **FIGURES[name]}
    yield from bad_calls(f"figure {name}", figure, right)


# ---- the tests


@pytest.mark.parametrize("target", targets())
def test_bad_calls_end_in_a_sentence(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some texts are names of files
    found = [
        f"{call.target}: {call.words}: {message}" for call, message in faults(targets()[target]())
    ]
    assert not found, "\n".join([f"{len(found)} calls of {target} end badly:", *found])


def test_there_are_many_bad_calls() -> None:
    calls = (call for make in targets().values() for call in make())
    assert len(list(itertools.islice(calls, LEAST))) == LEAST  # to make all of them takes long
