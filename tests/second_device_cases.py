"""What is run on the pretend second device, in a process that answers for each case asked for.

A case computes on the device it is given and yields tensors. On the pretend device all of them must
live there, and hold the same numbers as on the CPU.
"""

import collections
import functools
import inspect
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

import attnlab
from attnlab.core.card import Card
from attnlab.core.options import takes_padding
from attnlab.core.patterns import Pattern
from attnlab.core.patterns import padding as without_padded
from attnlab.core.probe import record
from attnlab.core.shapes import regrouped
from attnlab.core.sparse import auto as choice
from attnlab.core.sparse.auto import auto
from attnlab.core.sparse.blocked import blocked
from attnlab.lens import patching
from attnlab.lens.circuits import ov_circuit, qk_circuit
from attnlab.lens.heads import head_statistics
from attnlab.lens.logit_lens import logit_lens
from attnlab.lens.logit_parts import logit_parts
from attnlab.lens.mixing import mixing_matrix
from attnlab.lens.query_key.collect import collect
from attnlab.lens.spectrum import spectrum
from attnlab.models.positions import schemes
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.text_pairs import TextPairs
from attnlab.structures.tree_batch import TreeBatch
from attnlab.testing import architecture, compression
from attnlab.testing import mechanisms as claims
from tests import scheme_inputs, second_device
from tests.bad_parts import objective_for
from tests.bad_parts import task_for as objective_task
from tests.flex_by_hand import computed_by_hand
from tests.scheme_inputs import NOT_MIXING
from tests.test_claims import (
    CARDS,
    DIM,
    HEADS,
    SIZES,
    Executed,
    Sizes,
    call,
    causalities,
    inputs,
    lines_executed,
    masks,
    module,
    module_forms,
    required,
    variants,
)

Case = Callable[[torch.device], Iterator[Tensor]]

TASKS: dict[Any, str] = {TreeBatch: "listops", TextPairs: "tables"}
"""Structure → a task of such; there is none of graphs."""

OBJECTIVES = [c for c in attnlab.catalog.shelf("objectives") if c.role == "objective"]

PATTERNS = (
    "full()",
    "causal()",
    "local(2)",
    "strided(1)",
    "dilated(2, 3)",
    "summaries(4, 2)",
    "global_([0, -1])",
    'edges(1, 2, of="row")',
    "local_2d((4, 5), 1)",
    "axial((4, 5), 0)",
    "random(3)",
    "prefix(3)",
    "block_diagonal(4)",
    "(local(1) | random(2)).blocks(3)",
    "local(1).shifted(3)",
    "per_head(local(1), causal())",
    "~local(2) & causal()",
)


class OfVariant(NamedTuple):
    """What is asked of each variant of a card: ``group`` is the same for all of them. It runs on
    the device if its words are those of no other variant, or if it has lines that none before it
    had: they are looked at if it ``has_others`` of the same words beside it."""

    case: Case
    group: str
    has_others: bool

    def __call__(self, device: torch.device) -> Iterator[Tensor]:
        return self.case(device)


def variant_of(card: Card, index: int) -> Callable[[Case, str], OfVariant]:
    """What makes the cases of a variant, each with its group."""
    words = [words_of(card, each) for each in range(len(variants(card)))]
    has_others = words.count(words[index]) > 1
    return lambda case, group: OfVariant(case, group, has_others)


def words_of(card: Card, variant: int) -> str:
    """The options of a variant, with the type of a number in place of the number."""
    options = vars(claims.chosen(card, variant)) | dict(variants(card)[variant])
    number = (int, float, tuple)
    return repr(
        {
            name: type(value) if isinstance(value, number) and type(value) is not bool else value
            for name, value in sorted(options.items())
        }
    )


EXECUTED = collections.defaultdict[str, Executed](Executed)
"""By group."""


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    for card in CARDS:
        made |= of_card(card)
    for card in NOT_MIXING:
        made |= of_scheme(card)
    for card in (*attnlab.catalog.shelf("architecture"), *attnlab.catalog.shelf("compression")):
        made |= of_part(card)
    made |= {f"objective {each.name}": functools.partial(learned, each) for each in OBJECTIVES}
    made |= {f"pattern {code}": functools.partial(attended, code) for code in PATTERNS}
    others = (generated, watched, told_of_heads, resumed, recomputed, chosen, by_kernel, collected)
    others += (split, patched, circuits)
    return made | {case.__name__: case for case in others}


def of_card(card: Card) -> Iterator[tuple[str, Case]]:
    for index in range(len(variants(card))):
        of = variant_of(card, index)
        for name in card.forms:
            case = functools.partial(run_form, card, name, index)
            yield f"{card.name} {name} {index}", of(case, f"{card.name} {name}")
        for causal in causalities(card):
            name = f"{card.name} module{' causal' if causal else ''}"
            case = functools.partial(run_module, card, index, causal)
            yield f"{name} {index}", of(case, name)
    if card.structure is None or card.structure in TASKS:
        yield f"{card.name} training", functools.partial(trained, card)
    yield f"{card.name} mixing matrix", functools.partial(mixed, card)
    yield f"{card.name} waits for nothing", functools.partial(without_waiting, card)


def of_scheme(card: Card) -> Iterator[tuple[str, Case]]:
    for index, given in enumerate(variants(card)):
        of = variant_of(card, index)
        for name in card.forms:
            case = functools.partial(run_scheme_form, card, name, given)
            yield f"{card.name} {name} {index}", of(case, f"{card.name} {name}")
        case = functools.partial(run_scheme, card, given)
        yield f"{card.name} module {index}", of(case, f"{card.name} module")
        if card.name in schemes() and card.structure is None:
            name = f"positions={card.name}"
            yield f"{name} {index}", of(functools.partial(modelled, card, given), name)


# ---- mechanisms


def run_form(card: Card, form: str, index: int, device: torch.device) -> Iterator[Tensor]:
    """Output, gradients and notes, under every mask."""
    with torch.device(device):  # what is made here lies on the device
        made = inputs(card.forms[form], SIZES[0], torch.float64)
        ways = list(masks(card.forms[form], SIZES[0]))
    for mask in ways:
        leaves = [x.detach().requires_grad_() for x in made]
        with record() as notes:
            out = call(card, form, index, leaves, mask)
        yield out
        yield from gradients(out, leaves, materialize_grads=True)
        yield from (value for _, value in notes if isinstance(value, Tensor))


def run_module(card: Card, index: int, causal: bool, device: torch.device) -> Iterator[Tensor]:
    """Alone, with padding and its gradients, and decoding where it can; under the default options
    in every form, under others, of which ``run_form`` asks every form, in the last."""
    for form in module_forms(card)[-1 if index else 0 :]:
        layer = module(card, index, causal, **form).to(device)
        x = torch.randn(2, 11, DIM, dtype=torch.float64).to(device).requires_grad_()
        yield layer(x.detach())
        out = layer(x, padded(2, 11).to(device))
        yield out
        yield from gradients(out, [x, *layer.parameters()])
        if causal and hasattr(layer, "step"):
            yield from decoded(layer, x.detach())


WAITS = {
    "adaptive_span": "the longest of the spans that were learned is the width of the band",
    "entmax": "the support of the rows is sought until all have been found",
    "gtn": "edges are read",
    **dict.fromkeys(
        ("gru", "brc", "nbrc", "lstm"), "the pretend device has no recurrent kernels of its own"
    ),
    "unlimiformer": "the index is searched",
}
"""Mechanisms in whose fast forms the CPU waits for the device, and why."""


def without_waiting(card: Card, device: torch.device) -> Iterator[Tensor]:
    """No fast form reads a number of what is computed: on a GPU the CPU would wait for it."""
    waited = set()
    for form in list(card.forms)[1:]:
        given = {"form": form} if "form" in card.option_names() else {}
        layer = module(card, 0, causalities(card)[0], **given).to(device)
        x = torch.randn(2, 64, DIM, dtype=torch.float64).to(device).requires_grad_()
        layer(x)  # what is made once for each length is made
        second_device.WAITED.clear()
        out = layer(x)
        out.sum().backward()
        waited |= set(second_device.WAITED)
        yield out
    if not card.forms.keys() - {"naive"}:
        yield torch.zeros(1).to(device)
    if device.type == second_device.NAME:
        assert bool(waited) is (card.name in WAITS), f"the CPU waits for {sorted(waited)}"


def decoded(layer: nn.Module, x: Tensor) -> Iterator[Tensor]:
    state = None
    for piece in x.split([3, 1, 2, 5], dim=1)[:3]:
        out, state = layer.step(piece, state)
        yield out


def padded(b: int, n: int) -> Tensor:
    """The last sequence is four tokens shorter than the others."""
    return torch.arange(n) < torch.tensor([n] * (b - 1) + [n - 4])[:, None]


def gradients(out: Tensor, leaves: list[Tensor], **more: bool) -> tuple[Tensor, ...]:
    """Of a function of the output that treats every entry differently."""
    torch.manual_seed(1)
    parts = (out.real, out.imag) if out.is_complex() else (out,)
    drawn = [torch.randn(out.shape, dtype=torch.float64).to(out.device) for _ in parts]
    total = torch.stack([(x * y).sum() for x, y in zip(parts, drawn, strict=True)]).sum()
    return torch.autograd.grad(total, leaves, **more)


def mixed(card: Card, device: torch.device) -> Iterator[Tensor]:
    x = torch.randn(1, 9, DIM, dtype=torch.float64).to(device)
    yield mixing_matrix(module(card, 0).to(device), x).matrix


# ---- position schemes and embeddings


def run_scheme_form(
    card: Card, form: str, given: Mapping[str, Any], device: torch.device
) -> Iterator[Tensor]:
    with torch.device(device):
        made = scheme_inputs.form_inputs(card, form, given, torch.float64)
    options = scheme_inputs.form_options(card, form, given)
    given_there = {name: x.to(device) for name, x in made.items()}
    leaves = [x.requires_grad_() for x in given_there.values() if is_real(x)]
    with record() as notes:
        yield from outs_and_gradients(card.forms[form](**given_there, **options), leaves)
    yield from (value for _, value in notes if isinstance(value, Tensor))


def run_scheme(card: Card, given: Mapping[str, Any], device: torch.device) -> Iterator[Tensor]:
    """As a layer, at one row of positions for all and at a row for each sequence."""
    layer = scheme_inputs.build(card, DIM, HEADS, given).double()
    made = scheme_inputs.layer_inputs(layer, DIM, HEADS, torch.float64)
    ways = [made]
    if "positions" in made:
        ways.append({**made, "positions": torch.arange(14).view(2, 7)})
    if "padding" in inspect.signature(layer.forward).parameters:
        ways.append({**made, "padding": padded(2, 7)})
    layer = layer.to(device)
    for way in ways:
        there = {name: x.to(device) for name, x in way.items()}
        leaves = [x.requires_grad_() for x in there.values() if is_real(x)]
        yield from outs_and_gradients(layer(**there), [*leaves, *layer.parameters()])


def is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def outs_and_gradients(out: Any, leaves: Iterable[Tensor]) -> Iterator[Tensor]:
    outs = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None]
    yield from outs
    wanted = [x for x in leaves if x.requires_grad]
    for each in outs:
        if each.requires_grad:
            found = gradients(each, wanted, allow_unused=True)
            yield from (x for x in found if x is not None)


def modelled(card: Card, given: Mapping[str, Any], device: torch.device) -> Iterator[Tensor]:
    """Trained by ``fit``, called with padding, and generating."""
    task = task_for("full")
    own = {name: value for name, value in given.items() if name != "max_len"}
    sizes = {"dim": 12, "heads": 2, "layers": 1, **task.model_options()}
    model = attnlab.TinyTransformer(positions=card.name, position_options=own, **sizes).double()
    history = fit(model, 2, device)
    yield torch.tensor(history.column("loss")).to(device)
    yield from model.parameters()
    tokens = torch.arange(16).view(2, 8).to(device)
    yield model(tokens, padding=padded(2, 8).to(device))
    yield attnlab.generate(model, tokens[:, :3], 3, temperature=0)


# ---- feed-forward layers, joins, depths, compressions


def of_part(card: Card) -> Iterator[tuple[str, Case]]:
    for index in range(len(variants(card))):
        asked = {"feed": run_feed, "compress": compressed}.get(card.role, run_part)
        case = functools.partial(asked, card, index)
        yield f"{card.name} {index}", variant_of(card, index)(case, card.name)


def run_feed(card: Card, index: int, device: torch.device) -> Iterator[Tensor]:
    """Each form, and the layer, with padding where it takes it; gradients and notes."""
    for form in card.forms.values():
        with torch.device(device):
            made = inputs(form, Sizes(b=2, n=7, dim=5, f=11), torch.float64)
        leaves = [x.detach().requires_grad_() for x in made]
        tensors = regrouped(form, dict(zip(required(form), leaves, strict=True)))
        with record() as notes:
            out = form(**tensors, **card.arguments(form, variants(card)[index]))
        yield from outs_and_gradients(out, leaves)
        yield from (value for _, value in notes if isinstance(value, Tensor))
    layer = architecture.built(card, index).to(device)
    x = torch.randn(2, 11, architecture.DIM, dtype=torch.float64).to(device).requires_grad_()
    given = {"padding": padded(2, 11).to(device)} if takes_padding(layer) else {}
    yield from outs_and_gradients(layer(x, **given), [x, *layer.parameters()])


def run_part(card: Card, index: int, device: torch.device) -> Iterator[Tensor]:
    """A join or a depth in a model, called with padding and decoding step by step."""
    parts: dict[str, Any] = {card.role: card.name, f"{card.role}_options": variants(card)[index]}
    if card.role == "depth" and not attnlab.goes_with("pre_norm", card.name):
        parts["join"] = "sub_ln"
    made = TinyTransformer(9, dim=12, heads=2, layers=3, max_len=12, **parts).double()
    made = made.eval().to(device)
    tokens = torch.arange(16).view(2, 8).to(device) % 9
    yield from outs_and_gradients(made(tokens, padding=padded(2, 8).to(device)), made.parameters())
    with torch.no_grad():
        first, state = made.step(tokens[:, :5])
        yield from (first, made.step(tokens[:, 5:], state)[0])


def compressed(card: Card, index: int, device: torch.device) -> Iterator[Tensor]:
    """Each form, and a network, called and differentiated."""
    W = torch.randn(13, 7, dtype=torch.float64).to(device)
    for form in card.forms.values():
        yield form(W, **card.arguments(form, variants(card)[index]))
    made = compression.compressed(card, index, compression.network().double().to(device))
    x = torch.randn(5, compression.DIM, dtype=torch.float64).to(device)
    yield from outs_and_gradients(made(x), made.parameters())


# ---- patterns


def attended(code: str, device: torch.device) -> Iterator[Tensor]:
    """The mask, and its blocks, with and without padding."""
    pattern = attnlab.core.patterns.read(code)
    under_padding = pattern & without_padded(padded(2, 20).to(device))
    made = torch.randn(3, 2, 2, 20, 5, dtype=torch.float64).to(device)
    for each in (pattern, under_padding):
        yield each.dense(20, device=device)
        yield from over_blocks(made, each)
        yield from over_blocks(made, each, block=4)
    dropped = blocked(*made, pattern, dropout=0.3, allow_fully_masked=True)
    yield torch.zeros_like(dropped)  # a device has its own random numbers


def over_blocks(made: Tensor, pattern: Pattern, block: int | None = None) -> Iterator[Tensor]:
    leaves = [x.detach().requires_grad_() for x in made]
    out = blocked(*leaves, pattern, block=block, allow_fully_masked=True)
    yield out
    yield from gradients(out, leaves)


def chosen(device: torch.device) -> Iterator[Tensor]:
    """``auto`` asks what a long sequence would cost on this device."""
    q, k, v = torch.randn(3, 1, 2, 601, 5, dtype=torch.float64).to(device)
    yield auto(q, k, v, attnlab.core.patterns.local(3))


def by_kernel(device: torch.device) -> Iterator[Tensor]:
    """A layer on a GPU takes FlexAttention by itself, whose lists and tables all lie there."""
    n, bounds = 301, dict.fromkeys(("SHORT", "SHORT_GPU", "FULL_ROWS", "PRICE"), 0)
    layers = {
        "longformer": {"window": 8},
        "streaming": {"sinks": 3, "window": 9},
        "bigbird": {"block": 4, "random": 1, "per_head": True},
    }
    for name, options in layers.items():
        causal = attnlab.card(name).causal == "always"
        layer = attnlab.build(name, dim=12, heads=2, causal=causal, **options).double().to(device)
        x = torch.randn(2, n, 12, dtype=torch.float64).to(device).requires_grad_()
        with computed_by_hand(device.type), mock.patch.multiple(choice, **bounds):
            with record() as notes:
                out = layer(x, padded(2, n).to(device))
            if device.type != "cpu":
                assert notes.last("choice").form == "flex", notes.last("choice")
            yield from outs_and_gradients(out, [x, *layer.parameters()])


# ---- models


def tiny(name: str) -> attnlab.TinyTransformer:
    """A model for ``copying``, or for ``digits`` where the mechanism cannot be causal."""
    task = task_for(name)
    sizes = {"dim": 12, "heads": 2, "layers": 1}
    return attnlab.TinyTransformer(**sizes, attention=name, **task.model_options()).double()


def task_for(name: str) -> attnlab.tasks.Task:
    structure = attnlab.card(name).structure
    if structure is not None:
        return attnlab.tasks.task(TASKS[structure])
    causal = attnlab.card(name).causal != "never"
    return attnlab.tasks.task("copying", items=4) if causal else attnlab.tasks.task("digits")


def fit(model: nn.Module, steps: int, device: torch.device, **more: Any) -> Any:
    task = task_for(model.config["attention"])
    more |= {"batch_size": 4, "device": device, "progress": False}
    return attnlab.train.fit(model, task, steps, **more)


def trained(card: Card, device: torch.device) -> Iterator[Tensor]:
    """By ``fit``; Accelerate keeps to the CPU, and ``fit`` to the device that it was given."""
    model = tiny(card.name)
    more = {"evaluate_every": 2, "evaluate_batches": 2, "accumulate": 2}
    once = card.name != "full" and card.structure is None  # the rest is nothing of the mechanism's
    history = fit(model, 1, device) if once else fit(model, 2, device, **more)
    losses = [*history.column("loss"), *history.column("validation_loss")]
    yield torch.tensor(losses).to(device)
    yield from model.parameters()


def learned(card: Card, device: torch.device) -> Iterator[Tensor]:
    """By an objective; some tell the layers which token sees which, and where it stands."""
    task = objective_task(card)
    for positions in ("learned", "rope", "alibi") if card.build.orders else ("learned",):
        options = attnlab.train.model_options(task, card.name)
        made = TinyTransformer(**options, dim=12, heads=2, layers=1, positions=positions).double()
        given = (
            objective_for(card, task).double() if "teacher" in card.option_names() else card.name
        )
        more = {"objective": given, "batch_size": 4, "device": device, "progress": False}
        history = attnlab.train.fit(made, task, 2, **more)
        yield torch.tensor(history.column("loss")).to(device)
        yield from made.parameters()


def resumed(device: torch.device) -> Iterator[Tensor]:
    """From a checkpoint, which lies on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        for steps in (1, 2):
            model = tiny("full")
            fit(model, steps, device, folder=folder, warmup=0)
    yield from model.parameters()


def recomputed(device: torch.device) -> Iterator[Tensor]:
    model = tiny("longformer")
    fit(model, 2, device, gradient_checkpointing=True)
    yield from model.parameters()


def generated(device: torch.device) -> Iterator[Tensor]:
    prompt = torch.tensor([[1, 2, 3], [3, 4, 5]]).to(device)
    for name in (card.name for card in CARDS if card.causal != "never"):
        model = tiny(name).to(device)
        yield attnlab.generate(model, prompt, 3, temperature=0)
        if name != "full":  # how a token is drawn is nothing of the mechanism's
            continue
        yield attnlab.generate(model, prompt, 3, top_k=4, incremental=False)
        generator = torch.Generator(device).manual_seed(1)
        yield attnlab.generate(model, prompt, 3, generator=generator)


def watched(device: torch.device) -> Iterator[Tensor]:
    tokens = torch.arange(16).view(2, 8).to(device)
    for card in (card for card in CARDS if card.structure is None):
        model = tiny(card.name).to(device)
        with attnlab.watch(model, keep="copy") as seen:
            model(tokens, padding=padded(2, 8).to(device))
        for each in seen:
            yield from (x for x in (each.queries, each.keys, each.values) if x is not None)
            with suppress(ValueError):  # a sentence, where the mechanism has no weights
                yield each.weights


def told_of_heads(device: torch.device) -> Iterator[Tensor]:
    weights = torch.rand(2, 3, 7, 7).softmax(-1).to(device)
    padding = padded(2, 7).to(device)
    arrays = vars(head_statistics(weights, list("abc.def"), padding=padding))
    arrays["singular values"] = spectrum(weights, padding=padding).singular_values
    yield from (torch.from_numpy(array).to(device) for array in arrays.values())


def reading_model(device: torch.device) -> TinyTransformer:
    return TinyTransformer(17, dim=12, heads=2, layers=2, max_len=8).double().to(device)


def split(device: torch.device) -> Iterator[Tensor]:
    """A logit by parts, with answers that are told on the CPU, and the logit lens."""
    tokens, real = torch.arange(16).view(2, 8).to(device), padded(2, 8).to(device)
    model = reading_model(device)
    found = logit_parts(model, tokens, torch.arange(16).view(2, 8), others=3, padding=real)
    assert found.means()
    yield found.values
    lens = logit_lens(model, tokens, padding=real, sublayers=True)
    assert lens.right(3)
    yield lens.logits


def patched(device: torch.device) -> Iterator[Tensor]:
    text, other = (each.view(2, 8).to(device) for each in (torch.arange(16), torch.arange(1, 17)))
    run = patching.Patching(
        reading_model(device), text, other, answer=3, instead=torch.tensor([1, 2])
    )
    head, pattern = patching.Head(0, 1, (2, 3)), patching.Pattern(1, 0)
    yield run.logits(head, pattern, patching.Path((0, 0), (1, 0), "value"))


def circuits(device: torch.device) -> Iterator[Tensor]:
    tokens, model = torch.arange(16).view(2, 8).to(device), reading_model(device)
    real, before = padded(2, 8).to(device), tokens.cpu().roll(1, 1)
    qk = qk_circuit(model, tokens, 1, 0, keys_by=before, padding=real)
    for found in (qk, ov_circuit(model, tokens, 1, 1)):
        assert 0 <= found.first() <= 1
        yield found.values


def collected(device: torch.device) -> Iterator[Tensor]:
    """Queries and keys, masks, a bias and padding: read on the device, kept in arrays."""
    tokens, real = torch.arange(16).view(2, 8).to(device), padded(2, 8).to(device)
    for positions in ("rope", "alibi"):
        model = TinyTransformer(17, dim=12, heads=2, layers=1, positions=positions).to(device)
        for layer in collect(model, [{"tokens": tokens, "padding": real}]):
            assert (layer.outside is None) == (positions == "rope")
            for array in (layer.queries, layer.keys, layer.weights, layer.by_position):
                yield torch.from_numpy(array).to(device)


# ---- the process


def fault(case: Case) -> str:
    """What is wrong with a case: "" or the end of a traceback."""
    try:
        torch.manual_seed(0)
        expected: list[Tensor] = []
        if isinstance(case, OfVariant) and case.has_others:
            lines = lines_executed(expected.extend, case(torch.device("cpu")))
            if not EXECUTED[case.group].adds(lines) and expected:
                return ""
        else:
            expected = list(case(torch.device("cpu")))
        with second_device.pretending() as device:
            torch.manual_seed(0)
            for index, (mine, right) in enumerate(zip(case(device), expected, strict=True)):
                if mine.device != device:
                    raise AssertionError(f"result {index} {tuple(mine.shape)} is on {mine.device}")
                found = mine.detach().cpu()
                if found.dtype != right.dtype or not torch.equal(found, right):
                    torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6)
        return "" if expected else "the case yields nothing"
    except Exception:
        return traceback.format_exc(limit=-8)


def serve(asked: Connection) -> None:
    """Answer each name of a case with what is wrong with it, until there are no more names."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    second_device.register()
    made = cases()
    with suppress(EOFError):
        while True:
            name = asked.recv()
            asked.send((name, fault(made[name])))
    # Without PyTorch's own end: threads of the pretend device that still run would abort it.
    os._exit(0)
