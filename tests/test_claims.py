"""Claims are tests: what the cards say is proved for every mechanism on the shelf, once for all.

Inputs are made from the forms' own signatures (their jaxtyping letters), with a different prime
for every letter that is free, so that two axes are never mixed up unnoticed. A mechanism added to
the shelf is tested here without a line being written.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attnlab
from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.probe import record
from attnlab.core.shapes import letters_of
from attnlab.measure.count import count, expected_exponent, exponent

CARDS = list(attnlab.cards())
DIM, HEADS = 12, 6  # kv_heads = 1, 2, 3 all divide
DTYPES = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}

# The group letter g must divide h, everything else is prime and different; k (projected length) and
# r (rank, random features) are for those that have them.
SIZES = [
    {"b": 2, "h": 6, "g": 3, "n": 7, "m": 7, "d": 5, "e": 11, "dim": 13, "k": 19, "r": 23},
    {"b": 2, "h": 3, "g": 1, "n": 5, "m": 17, "d": 7, "e": 11, "dim": 13, "k": 19, "r": 23},
    {"b": 1, "h": 2, "g": 2, "n": 1, "m": 1, "d": 3, "e": 5, "dim": 7, "k": 11, "r": 13},
]


def named(card: Card, *rest: Any) -> Any:
    return pytest.param(card, *rest, id="-".join([card.name, *(str(r) for r in rest)]))


ALL = [named(card, i) for card in CARDS for i in range(len(card.variants))]
FAST = [
    named(card, form, i)
    for card in CARDS
    for form in list(card.forms)[1:]
    for i in range(len(card.variants))
]
FORMS = [named(card, form) for card in CARDS for form in card.forms]
CAUSAL = [
    named(card, i) for card in CARDS if card.causal != "never" for i in range(len(card.variants))
]


def options(function: Callable[..., Any], variant: Any) -> dict[str, Any]:
    """Those of the variant's options that the function has."""
    return {k: v for k, v in variant.items() if k in inspect.signature(function).parameters}


def inputs(form: Callable[..., Any], sizes: dict[str, int], dtype: torch.dtype) -> list[Tensor]:
    """Random tensors for the required tensor arguments of a form, made from its own letters."""
    signature, made = inspect.signature(form), []
    for name, contracts in letters_of(form).items():
        if signature.parameters[name].default is inspect.Parameter.empty:
            axes = contracts[0].axes
            drawn = torch.randn([sizes[letter] for letter in axes], dtype=torch.float64)
            for letter in {letter for letter in axes if axes.count(letter) > 1}:
                drawn *= sizes[letter] ** -0.5  # a matrix from a width to itself: keeps sizes
            made.append(drawn.to(dtype))
    assert made, "a form takes at least one tensor"
    return made


def masks(form: Callable[..., Any], sizes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Keyword arguments that mask in every way a form accepts."""
    yield {}
    takes = inspect.signature(form).parameters
    b, h, n, m = (sizes[letter] for letter in "bhnm")
    if "padding" in takes:
        keys = sizes[letters_of(form)["padding"][0].axes[-1]]
        yield {"padding": torch.arange(keys) < torch.randint(1, keys + 1, (b, 1))}
        yield {"padding": torch.rand(b, keys) > 0.5}
    if "causal" in takes:
        yield {"causal": True}
    if "padding" in takes and "causal" in takes:
        yield {"causal": True, "padding": torch.rand(b, keys) > 0.5}
    if "mask" in takes:
        real = torch.arange(m) < torch.randint(1, m + 1, (b, 1))
        holes = torch.rand(b, h, n, m) > 0.4
        holes[0, 0, 0] = False  # a row with nothing to see
        yield {"mask": patterns.causal()}
        yield {"mask": patterns.causal() & patterns.padding(real)}
        yield {"mask": holes}
        yield {"mask": holes[0, 0]}
        yield {"mask": ~patterns.full()}


def numbers(card: Card, form: str) -> dict[str, int]:
    """What the letters of a card's costs stand for, in the first variant or by default."""
    takes = inspect.signature(card.forms[form]).parameters
    given = {name: takes[name].default for name in takes} | dict(card.variants[0])
    given |= {letter: given[option] for letter, option in card.options.items()}
    return {name: value for name, value in given.items() if isinstance(value, int)}


def grown(outputs: Tensor, made: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a function of the output that treats every entry differently."""
    torch.manual_seed(1)
    direction = torch.randn(outputs.shape, dtype=torch.float64).to(outputs.dtype)
    return torch.autograd.grad((outputs * direction).sum(), made)


def module(card: Card, variant: int, causal: bool | None = None, **more: Any) -> nn.Module:
    torch.manual_seed(2)
    causal = card.causal == "always" if causal is None else causal
    chosen = {**options(card.build, card.variants[variant]), **more}
    return attnlab.build(card.name, dim=DIM, heads=HEADS, causal=causal, **chosen).double()


def module_forms(card: Card) -> list[dict[str, str]]:
    """One set of options per form that the module can be built with."""
    if "form" not in inspect.signature(card.build).parameters:
        return [{}]
    return [{"form": form} for form in card.forms]


def test_there_are_cards() -> None:
    assert {"full", "multi_query"} <= {card.name for card in CARDS}
    assert FAST
    assert CAUSAL


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_every_option_of_a_variant_is_somebodys(card: Card, variant: int) -> None:
    chosen = card.variants[variant]
    taken = [options(function, chosen) for function in (*card.forms.values(), card.build)]
    assert set(chosen) == set().union(*taken)


@pytest.mark.parametrize("sizes", SIZES, ids=["self", "cached", "one"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(("card", "form", "variant"), FAST)
def test_form_equals_naive(
    card: Card, form: str, variant: int, dtype: torch.dtype, sizes: dict[str, int]
) -> None:
    naive, fast = card.forms["naive"], card.forms[form]
    for mask in masks(naive, sizes):
        made = [x.requires_grad_() for x in inputs(naive, sizes, dtype)]
        exact = [x.detach().double().requires_grad_() for x in made]
        expected = naive(*exact, **mask, **options(naive, card.variants[variant]))
        out = fast(*made, **mask, **options(fast, card.variants[variant]))
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])
        for mine, theirs in zip(grown(out, made), grown(expected, exact), strict=True):
            tolerance = DTYPES[dtype] * max(1.0, theirs.abs().max().item())
            torch.testing.assert_close(mine.double(), theirs, rtol=DTYPES[dtype], atol=tolerance)


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_row_with_nothing_to_see_is_zero(card: Card, form: str) -> None:
    function, sizes = card.forms[form], SIZES[0]
    if "mask" not in inspect.signature(function).parameters:
        pytest.skip(f"{card.name} takes no mask")
    made = [x.requires_grad_() for x in inputs(function, sizes, torch.float64)]
    mask = torch.ones(sizes["n"], sizes["m"], dtype=torch.bool)
    mask[3] = False
    with record() as notes:
        out = function(*made, mask=mask, **options(function, card.variants[0]))
    assert (out[..., 3, :] == 0).all()
    assert (out[..., 2, :] != 0).any()
    assert all(torch.isfinite(g).all() for g in grown(out, made))
    for weights in [value for name, value in notes if name == "weights"]:
        assert (weights[..., 3, :] == 0).all()
        torch.testing.assert_close(weights[..., :3, :].sum(-1), torch.ones_like(out[..., :3, 0]))


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_sequence_of_padding_alone_is_zero(card: Card, form: str) -> None:
    function, sizes = card.forms[form], SIZES[0]
    if "padding" not in inspect.signature(function).parameters:
        pytest.skip(f"{card.name} takes no padding")
    made = [x.requires_grad_() for x in inputs(function, sizes, torch.float64)]
    padding = torch.ones(sizes["b"], sizes["m"], dtype=torch.bool)
    padding[1] = False
    out = function(*made, padding=padding, **options(function, card.variants[0]))
    assert (out[1] == 0).all()
    assert (out[0] != 0).any()
    assert all(torch.isfinite(g).all() for g in grown(out, made))


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_promised_notes_fire_and_nothing_is_left(card: Card, form: str) -> None:
    function = card.forms[form]
    made = inputs(function, SIZES[0], torch.float64)
    with record() as notes:
        looked_at = function(*made, **options(function, card.variants[0]))
    unseen = function(*made, **options(function, card.variants[0]))
    assert set(card.notes.get(form, ())) == set(notes.names())
    assert torch.equal(looked_at, unseen)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_keeps_nothing(card: Card, variant: int) -> None:
    layer = module(card, variant)
    before = {name: set(vars(part)) for name, part in layer.named_modules()}
    with record() as notes:
        layer(torch.randn(2, 7, DIM, dtype=torch.float64))
    assert len(notes)
    assert before == {name: set(vars(part)) for name, part in layer.named_modules()}


@pytest.mark.parametrize(("card", "variant"), CAUSAL)
def test_nothing_leaks_from_the_future(card: Card, variant: int) -> None:
    for form in module_forms(card):
        layer = module(card, variant, causal=True, **form)
        x = torch.randn(2, 13, DIM, dtype=torch.float64, requires_grad=True)
        out = layer(x)
        for t in (1, 6, 12):
            other = x.detach().clone()
            other[:, t:] = torch.randn_like(other[:, t:]) * 10
            assert torch.equal(layer(other)[:, :t], out[:, :t]), form
            (grad,) = torch.autograd.grad(out[:, t - 1].sum(), x, retain_graph=True)
            assert (grad[:, t:] == 0).all()
            assert (grad[:, :t] != 0).any() or (card.late and t == 1)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_padding_changes_nothing_for_real_tokens(card: Card, variant: int) -> None:
    for causal in {"never": [False], "optional": [False, True], "always": [True]}[card.causal]:
        for form in module_forms(card):
            layer = module(card, variant, causal=causal, **form)
            x = torch.randn(2, 11, DIM, dtype=torch.float64)
            lengths = (11, 7)
            padding = torch.arange(11) < torch.tensor(lengths)[:, None]
            out = layer(x, padding)
            noisy = torch.where(padding[..., None], x, torch.randn_like(x) * 10)
            noisy_out = layer(noisy, padding)
            for row, length in enumerate(lengths):
                torch.testing.assert_close(
                    noisy_out[row, :length], out[row, :length], rtol=1e-9, atol=1e-9
                )
                if not card.by_length:
                    alone = layer(x[row : row + 1, :length])[0]
                    torch.testing.assert_close(out[row, :length], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_any_length_in_any_form(card: Card, variant: int) -> None:
    """Primes, powers of two, what no block divides, and one token alone."""
    for n in (1, 2, 3, 31, 64, 97):
        x = torch.randn(2, n, DIM, dtype=torch.float64)
        assert module(card, variant)(x).shape == x.shape
        made = inputs(card.forms["naive"], {**SIZES[0], "n": n, "m": n}, torch.float64)
        outs = [
            form(*made, **options(form, card.variants[variant])) for form in card.forms.values()
        ]
        assert torch.isfinite(outs[0]).all()
        for out in outs[1:]:
            torch.testing.assert_close(out, outs[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_is_the_same_by_any_form(card: Card, variant: int) -> None:
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    for causal in {"never": [False], "optional": [False, True], "always": [True]}[card.causal]:
        outs = [module(card, variant, causal, **form)(x) for form in module_forms(card)]
        for out in outs[1:]:
            torch.testing.assert_close(out, outs[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_batch_rows_do_not_talk(card: Card, variant: int) -> None:
    layer = module(card, variant)
    x = torch.randn(3, 7, DIM, dtype=torch.float64, requires_grad=True)
    out = layer(x)
    (grad,) = torch.autograd.grad(out[1].square().sum(), x)
    assert (grad[[0, 2]] == 0).all()
    assert (grad[1] != 0).any()
    torch.testing.assert_close(layer(x[1:2])[0], out[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), CAUSAL)
def test_step_by_step_equals_all_at_once(card: Card, variant: int) -> None:
    for form in module_forms(card):
        layer = module(card, variant, causal=True, **form)
        if not hasattr(layer, "step"):
            pytest.skip(f"{card.name} has no incremental path")
        x = torch.randn(2, 11, DIM, dtype=torch.float64)
        parts, state = [], None
        for piece in x.split([3, 1, 1, 2, 1, 1, 1, 1], dim=1):  # a prompt, then token by token
            out, state = layer.step(piece, state)
            parts.append(out)
        torch.testing.assert_close(torch.cat(parts, dim=1), layer(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_trains(card: Card, variant: int) -> None:
    layer = module(card, variant)
    x, target = torch.randn(2, 3, 7, DIM, dtype=torch.float64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    before = (layer(x) - target).square().mean()
    before.backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name
    optimizer.step()
    assert (layer(x) - target).square().mean() < before


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_recomputing_changes_no_gradient(card: Card, variant: int) -> None:
    """Under gradient checkpointing the forward pass runs twice, and backward reads once."""
    for form in module_forms(card):
        layer = module(card, variant, **form)
        x = torch.randn(2, 7, DIM, dtype=torch.float64, requires_grad=True)
        kept = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
        out = checkpoint(layer, x, use_reentrant=False)
        recomputed = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
        for mine, theirs in zip(recomputed, kept, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_compiles_whole(card: Card, variant: int) -> None:
    layer = module(card, variant)
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    torch.compiler.reset()  # each variant recompiles the same forward, and PyTorch counts them
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_cost_grows_as_claimed(card: Card, form: str) -> None:
    """FLOPs and the largest tensor, counted, not timed, over lengths that no block divides."""
    function = functools.partial(card.forms[form], **options(card.forms[form], card.variants[0]))
    base = {"b": 1, "h": 2, "g": 2, "d": 13, "e": 13, "dim": 7, "k": 19, "r": 23}
    lengths = (127, 257, 509, 1021)
    counts = []
    for n in lengths:
        made = inputs(card.forms[form], {**base, "n": n, "m": n}, torch.float32)
        function(*made)  # a layout is made once for each length and pattern, and kept
        counts.append(count(function, *made))
    counted = {
        "time": [c.flops for c in counts],
        "memory": [c.largest_tensor.elements for c in counts],
    }
    known = {**base, **numbers(card, form)}
    n, m = letters("n m")
    for what, values in counted.items():
        claim = expected_exponent(card.cost(what, form).subs(m, n), "n", lengths, known)
        slope = exponent(lengths, values).slope
        if what == "memory" and card.family == "fixed" and form != "naive":
            # Short sequences are one batch of blocks: their largest tensor is a bound, and jumps.
            assert slope <= claim + 0.1, values
        else:
            assert slope == pytest.approx(claim, abs=0.1), (what, values)


PATTERNED = [
    named(card, i)
    for card in CARDS
    if card.pattern is not None and card.pairs is not None
    for i in range(len(card.variants))
]


@pytest.mark.parametrize(("card", "variant"), PATTERNED)
def test_pairs_have_their_closed_form(card: Card, variant: int) -> None:
    """Counted in the dense mask, in the blocks of the pattern, and by the card."""
    chosen = options(card.pattern, card.variants[variant])
    takes = inspect.signature(card.pattern).parameters
    closed = card.pairs
    by_options = not isinstance(closed, dict | sympy.Expr)
    chosen |= {"heads": HEADS} if by_options and "heads" in takes else {}
    given = {name: takes[name].default for name in takes} | chosen
    known = {letter: given[option] for letter, option in card.options.items() if option in given}
    closed = closed(**options(closed, chosen)) if by_options else closed
    claims = closed if isinstance(closed, dict) else {"full": closed}
    for kind, claim in claims.items():
        causal = {"causal": kind == "causal"} if "causal" in takes else {}
        pattern = card.pattern(**chosen, **causal)
        for n in (1, 2, 3, 7, 16, 31, 64, 97):
            values = {**given, **known, "n": n, "m": n}
            # All letters at once: to replace them one by one simplifies a long formula each time.
            claimed = claim.xreplace({s: sympy.sympify(values[s.name]) for s in claim.free_symbols})
            of_heads = [pattern.of_head(head) for head in range(pattern.heads() or 1)]
            counted = sum(each.count(n) for each in of_heads)
            assert pattern.dense(n).sum() == counted == claimed, (kind, n)


@pytest.mark.parametrize(("card", "variant"), ALL)
def test_wrong_calls_are_answered_in_sentences(card: Card, variant: int) -> None:
    layer = module(card, variant)
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"`x` should be Float\[b n dim\]"):
        layer(x[0])
    with pytest.raises(ValueError, match="dim=12"):
        layer(x[..., :5])
    with pytest.raises(ValueError, match="nothing to attend to"):
        layer(x[:, :0])
    with pytest.raises(ValueError, match="not a float"):
        layer(x.long())
    with pytest.raises(ValueError, match=r"n is 5, expected 7 as in `x`"):
        layer(x, torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask == 0"):
        layer(x, torch.zeros(2, 7))
    with pytest.raises(ValueError, match="dtype"):
        layer(x.float())
    with pytest.raises(TypeError, match=f"{card.name} has no option 'colour'"):
        attnlab.build(card.name, dim=DIM, heads=HEADS, colour="red")
    chosen = options(card.build, card.variants[variant]) | {"causal": card.causal == "always"}
    with pytest.raises(ValueError, match="heads=5 does not divide dim=12"):
        attnlab.build(card.name, dim=DIM, heads=5, **chosen)


@pytest.mark.gpu
@pytest.mark.parametrize(("card", "variant"), ALL)
def test_module_moves_to_the_gpu(card: Card, variant: int, accelerator: torch.device) -> None:
    layer = module(card, variant)
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    expected = layer(x)
    torch.testing.assert_close(layer.to(accelerator)(x.to(accelerator)).cpu(), expected)


@pytest.mark.parametrize(("card", "form"), FORMS)
def test_what_does_not_fit_is_refused_in_a_sentence(card: Card, form: str) -> None:
    function, sizes = card.forms[form], SIZES[1]
    made = inputs(function, sizes, torch.float32)
    for index in range(1, len(made)):
        mixed = [x.double() if i == index else x for i, x in enumerate(made)]
        with pytest.raises(ValueError, match=r"is float64 but .* is float32; give them one dtype"):
            function(*mixed)
    if "mask" not in inspect.signature(function).parameters:
        return
    b, m = sizes["b"], sizes["m"]
    for shape, what in [((b, m + 2), "keys"), ((b, m - 2), "keys"), ((b + 1, m), "sequences")]:
        pattern = patterns.causal() & patterns.padding(torch.ones(shape, dtype=torch.bool))
        with pytest.raises(ValueError, match=f"padding is for .* {what}, but there are"):
            function(*made, mask=pattern)
    with pytest.raises(TypeError, match=r"`mask` should be .* or Pattern or None, got a str"):
        function(*made, mask="causal")
