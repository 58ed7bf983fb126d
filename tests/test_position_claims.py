"""Claims of the position schemes, proved for every card of the family and every layer it enters.

``encode``: queries and keys (b, h, n, d) at positions; ``bias``: a number for positions i and j;
``embed``: tokens at positions. What goes with what is computed from the layers' own annotations
(``catalog.goes_with``), and each pair is built, or refused, here.
"""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import attnlab
from attnlab import catalog
from attnlab.core.card import Card, letters
from attnlab.core.options import parameters_of
from attnlab.core.positions import DistanceBias, Rotation, positions_of
from attnlab.core.probe import record
from attnlab.measure.count import exponent
from attnlab.models.positions import schemes
from attnlab.testing.mechanisms import Executed, lines_executed
from tests.scheme_inputs import SIZES, VOCAB, form_inputs
from tests.test_claims import DTYPES

DIM, HEADS = 12, 3
MIXERS = [card for card in attnlab.cards() if card.mixes]
SCHEMES = list({c.name: c for c in schemes().values() if c.structure is None}.values())
"""Those of sequences; what is told a structure has tests of its own."""
NOT_ATTENTION = [card for card in SCHEMES if card.role != "attend"]
INSIDE = [card for card in SCHEMES if card.role in ("encode", "bias")]
IN_TWO_ROWS = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [0, 0, 1, 2, 5, 200, 11]])
SHIFT = 1000


def variants(cards: list[Card]) -> list[Any]:
    return [
        pytest.param(card, given, id=f"{card.name}-{at}")
        for card in cards
        for at, given in enumerate(({}, *card.variants))
    ]


def of_role(role: str) -> list[Card]:
    return [card for card in SCHEMES if card.role == role]


def scheme(card: Card, given: Mapping[str, Any], *, causal: bool = True) -> nn.Module:
    torch.manual_seed(0)
    given = {"vocab": VOCAB, **given} if "vocab" in card.option_names() else given
    made = attnlab.build(card.name, dim=DIM, heads=HEADS, causal=causal, **given).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def model(card: Card, given: Mapping[str, Any], **options: Any) -> attnlab.TinyTransformer:
    torch.manual_seed(1)
    sizes = {"dim": DIM, "heads": HEADS, "layers": 2, "max_len": 64} | options
    own = {name: value for name, value in given.items() if name != "max_len"}
    made = attnlab.TinyTransformer(VOCAB, positions=card.name, position_options=own, **sizes)
    for parameter in made.parameters():  # biases start at zero, where nothing depends on them
        nn.init.normal_(parameter, std=0.3)
    return made.double().eval()


def inputs(
    card: Card, form: str, given: Mapping[str, Any], dtype: torch.dtype, **lengths: int
) -> list[Tensor]:
    return list(form_inputs(card, form, given, dtype, **lengths).values())


def outputs(card: Card, form: str, given: Mapping[str, Any], made: list[Tensor]) -> list[Tensor]:
    function = card.forms[form]
    out = function(*made, **card.arguments(function, given))
    return list(out) if isinstance(out, tuple) else [out]


# ---- forms


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("rows", [False, True], ids=["one row", "a row each"])
@pytest.mark.parametrize(("card", "given"), variants(of_role("encode")))
def test_forms_equal_naive(card: Card, given: Any, rows: bool, dtype: torch.dtype) -> None:
    for form in list(card.forms)[1:]:
        made = inputs(card, "naive", given, dtype)
        if rows:
            made = [IN_TWO_ROWS if not x.is_floating_point() else x for x in made]
        mine = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in made]
        exact = [x.double() if x.is_floating_point() else x for x in made]
        exact = [x.requires_grad_(x.is_floating_point()) for x in exact]
        found, expected = outputs(card, form, given, mine), outputs(card, "naive", given, exact)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(one.double(), other, rtol=DTYPES[dtype], atol=DTYPES[dtype])
        for one, other in zip(_gradients(found, mine), _gradients(expected, exact), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=DTYPES[dtype], atol=DTYPES[dtype])


def _gradients(outs: list[Tensor], made: list[Tensor]) -> tuple[Tensor, ...]:
    torch.manual_seed(3)
    total = sum((out * torch.randn(out.shape).to(out.dtype)).sum() for out in outs)
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, [x for x in made if x.requires_grad])


@pytest.mark.parametrize(("card", "given"), variants(NOT_ATTENTION))
def test_promised_notes_fire(card: Card, given: Any) -> None:
    for form in card.forms:
        made = inputs(card, form, given, torch.float64)
        with record() as notes:
            outputs(card, form, given, made)
        assert set(notes.names()) == set(card.notes.get(form, ()))


# ---- what a scheme is


@pytest.mark.parametrize(("card", "given"), variants(of_role("encode")))
def test_a_rotation_is_relative(card: Card, given: Any) -> None:
    """Scores do not change when all positions move, and position 0 leaves vectors as they are."""
    made = scheme(card, given)
    assert isinstance(made, Rotation)
    q, k = torch.randn(2, 2, HEADS, 9, DIM // HEADS, dtype=torch.float64).unbind(0)
    at = torch.arange(9)
    still = made(q, k, torch.zeros(9, dtype=torch.long))
    torch.testing.assert_close(still, (q, k), rtol=1e-12, atol=1e-12)
    (q0, k0), (q1, k1) = made(q, k, at), made(q, k, at + SHIFT)
    past = torch.ones(9, 9, dtype=torch.bool).tril()
    torch.testing.assert_close((q1 @ k1.mT)[..., past], (q0 @ k0.mT)[..., past])
    assert not torch.allclose((q0 @ k0.mT)[..., past], (q @ k.mT)[..., past])


@pytest.mark.parametrize(("card", "given"), variants(of_role("bias")))
def test_a_bias_is_relative(card: Card, given: Any) -> None:
    made = scheme(card, given)
    assert isinstance(made, DistanceBias)
    i, j = torch.randint(50, (2, 7)), torch.randint(50, (2, 11))
    bias = made(i, j)
    assert bias.shape == (2, HEADS, 7, 11)
    assert torch.equal(made(i + SHIFT, j + SHIFT), bias)
    assert bias.unique().numel() > 2
    table = made.by_distance(4, 9, torch.device("cpu"))
    at = torch.arange(9)
    for row in range(4):
        expected = made(at[5 + row : 6 + row], at).squeeze(-2)
        torch.testing.assert_close(table[:, 3 - row : 12 - row], expected)


@pytest.mark.parametrize(("card", "given"), variants(NOT_ATTENTION))
def test_far_beyond_any_training_length(card: Card, given: Any) -> None:
    """Finite and exact at positions of a million, or refused in a sentence."""
    made = scheme(card, {**given, "factor": 1e6} if given.get("scaling") == "xpos" else given)
    at = torch.arange(9) + 10**6
    if isinstance(made, Rotation):
        q = torch.randn(1, HEADS, 9, DIM // HEADS)
        near, far = made(q, q, at - 10**6), made(q, q, at)
        assert torch.isfinite(far[0]).all()
        past = torch.ones(9, 9, dtype=torch.bool).tril()
        scores = [(a @ b.mT)[..., past] for a, b in (near, far)]
        torch.testing.assert_close(scores[1], scores[0], rtol=1e-4, atol=1e-4)
    elif isinstance(made, DistanceBias):
        assert torch.isfinite(made(at, at - 10**6)).all()
    elif "vocab" in card.option_names():
        assert torch.isfinite(made(torch.randint(VOCAB, (1, 9)), at)).all()
    elif "max_len" in card.option_names():
        with pytest.raises(
            ValueError, match=r"positions should lie in 0 … .*; the table ends at max_len"
        ):
            made(torch.randn(1, 9, DIM, dtype=torch.float64), at)
    else:
        assert torch.isfinite(made(torch.randn(1, 9, DIM, dtype=torch.float64), at)).all()


# ---- in a model


@pytest.mark.parametrize(("card", "given"), variants(SCHEMES))
def test_steps_equal_all_at_once(card: Card, given: Any) -> None:
    made = model(card, given)
    tokens = torch.randint(VOCAB, (2, 23))
    expected, state, at = made(tokens), None, 0
    for piece in tokens.split([5, 1, 1, 4, 1, 11], dim=1):
        out, state = made.step(piece, state)
        at += piece.shape[1]
        torch.testing.assert_close(out, expected[:, at - 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("card", "given"), variants(SCHEMES))
def test_padding_takes_no_position(card: Card, given: Any) -> None:
    """On the left, on the right or between: the others are as if it were not there."""
    made = model(card, given)
    tokens = torch.randint(VOCAB, (1, 9))
    expected = made(tokens)[0]
    places = {
        "right": [*range(9)],
        "left": [*range(4, 13)],
        "between": [0, 1, 4, 5, 6, 9, 10, 11, 12],
    }
    for where, chosen in places.items():
        row = torch.randint(VOCAB, (1, 13))
        row[0, chosen] = tokens
        padding = torch.zeros(1, 13, dtype=torch.bool)
        padding[0, chosen] = True
        out = made(row, padding)[0, chosen]
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9, msg=where)


@pytest.mark.parametrize(("card", "given"), variants([c for c in SCHEMES if c.name != "none"]))
def test_order_matters(card: Card, given: Any) -> None:
    """Without positions a causal layer's last output is that of a set; with them it is not."""
    tokens = torch.tensor([[1, 2, 3, 4, 5], [2, 1, 4, 3, 5]])
    out = model(card, given, layers=1)(tokens)[:, -1]
    assert not torch.allclose(out[0], out[1], rtol=0, atol=1e-6)
    plain = model(schemes()["none"], {}, layers=1)(tokens)[:, -1]
    torch.testing.assert_close(plain[0], plain[1])


@pytest.mark.parametrize(("card", "given"), variants(SCHEMES))
def test_a_model_trains_and_is_saved(card: Card, given: Any, tmp_path: Any) -> None:
    made = model(card, given).train()
    tokens = torch.randint(VOCAB, (2, 11))
    loss = made(tokens).square().mean()
    loss.backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    made.eval().float().save(tmp_path / "m")
    again = attnlab.TinyTransformer.load(tmp_path / "m").eval()
    torch.testing.assert_close(again(tokens), made(tokens))


@pytest.mark.parametrize("card", SCHEMES, ids=lambda card: card.name)
def test_a_model_compiles_whole(card: Card) -> None:
    """With the default options, and with each variant that runs a line of attnlab which those
    before it do not run. Layers are alike, so one is enough, and so are tokens but in a loop."""
    done = Executed()
    tokens = torch.randint(VOCAB, (2, 5))
    for given in ({}, *card.variants):
        made = model(card, given, layers=1).float()
        expected = made(tokens)  # what is made once is made before the lines are noted
        if done.adds(lines_executed(made, tokens)):
            torch.compiler.reset()
            compiled = torch.compile(made, fullgraph=True, backend="eager")
            torch.testing.assert_close(compiled(tokens), expected)


# ---- what goes with what

PAIRS = [
    pytest.param(mixer, card, id=f"{mixer.name}-{card.name}") for mixer in MIXERS for card in INSIDE
]


def layer(mixer: Card, card: Card, causal: bool, **options: Any) -> nn.Module:
    torch.manual_seed(2)
    given = {"positions": card.name} | options
    made = attnlab.build(mixer.name, dim=DIM, heads=HEADS, causal=causal, **given).double()
    for name, parameter in made.named_parameters():
        if "positions" in name:
            nn.init.normal_(parameter)
    return made


def causalities(mixer: Card) -> list[bool]:
    return {"never": [False], "optional": [False, True], "always": [True]}[mixer.causal]


def forms_of(mixer: Card) -> list[dict[str, str]]:
    return [{"form": form} for form in mixer.forms] if "form" in mixer.option_names() else [{}]


@pytest.mark.parametrize(("mixer", "card"), PAIRS)
def test_a_layer_takes_a_scheme_or_says_why_not(mixer: Card, card: Card) -> None:
    if not catalog.goes_with(mixer.name, card.name):
        with pytest.raises(ValueError, match=rf"{mixer.name} cannot take .*mechanisms that can: "):
            layer(mixer, card, causalities(mixer)[0])
        return
    x = torch.randn(2, 11, DIM, dtype=torch.float64)
    plain = attnlab.build(mixer.name, dim=DIM, heads=HEADS, causal=causalities(mixer)[0]).double()
    for causal in causalities(mixer):
        made = [layer(mixer, card, causal, **form) for form in forms_of(mixer)]
        outs = [each(x) for each in made]
        for out in outs[1:]:
            torch.testing.assert_close(out, outs[0], rtol=1e-9, atol=1e-9)
        plain.load_state_dict(made[0].state_dict(), strict=False)
        assert causal != causalities(mixer)[0] or not torch.allclose(outs[0], plain(x))
        for each in made:
            _check_shift(each, x)
            if causal and hasattr(each, "step"):
                _check_steps(each, x)


def _check_shift(made: nn.Module, x: Tensor) -> None:
    """Padding on the left moves all tokens, and changes nothing where the pattern stays."""
    if hasattr(made, "pattern"):
        return
    moved = torch.cat((torch.randn_like(x[:, :3]), x), dim=1)
    padding = torch.arange(moved.shape[1])[None].expand(2, -1) >= 3
    torch.testing.assert_close(made(moved, padding)[:, 3:], made(x), rtol=1e-9, atol=1e-9)


def _check_steps(made: nn.Module, x: Tensor) -> None:
    parts, state = [], None
    for piece in x.split([3, 1, 4, 1, 2], dim=1):
        out, state = made.step(piece, state)  # type: ignore[operator]
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), made(x), rtol=1e-9, atol=1e-9)


def test_what_goes_with_what_is_not_empty_and_not_everything() -> None:
    found = {(m.name, s.name) for m in MIXERS for s in INSIDE if catalog.goes_with(m.name, s.name)}
    assert {("full", "rope"), ("full", "alibi"), ("multi_query", "t5_bias")} <= found
    assert ("bigbird", "rope") in found
    assert {("longformer", "rope"), ("linear", "rope"), ("memorizing_transformer", "rope")} <= found
    assert not {("linformer", "rope"), ("linear", "alibi"), ("synthesizer", "rope")} & found


@pytest.mark.parametrize(
    "card", [c for c in catalog.shelf() if c.role == "attend"], ids=lambda card: card.name
)
def test_whoever_compares_queries_with_keys_turns_them_or_says_why_not(card: Card) -> None:
    assert bool(card.positions_reason) == ("encode" not in card.position_roles)
    if card.positions_reason:
        with pytest.raises(ValueError, match=re.escape(card.positions_reason)):
            layer(card, attnlab.card("rope"), causalities(card)[0])
        assert card.positions_reason in dict(card.rows())["positions"]
    assert bool(card.biases_reason) == ("bias" not in card.position_roles)
    if card.biases_reason:
        with pytest.raises(ValueError, match=re.escape(card.biases_reason)):
            layer(card, attnlab.card("alibi"), causalities(card)[0])
        assert card.biases_reason in dict(card.rows())["positions"]
        assert not any("bias" in parameters_of(form) for form in card.forms.values())


def test_wrong_questions_are_answered_in_sentences() -> None:
    def build(**options: Any) -> nn.Module:
        return attnlab.build("full", **{"dim": 8, "heads": 2, **options})

    def tiny(**options: Any) -> attnlab.TinyTransformer:
        return attnlab.TinyTransformer(9, **{"dim": 8, "heads": 2, "layers": 1, **options})

    with pytest.raises(ValueError, match="a mechanism that mixes positions and a scheme"):
        catalog.goes_with("rope", "full")
    with pytest.raises(ValueError, match=r"positions='learned' .* before the first layer; .* rope"):
        build(positions="learned")
    with pytest.raises(ValueError, match=r"positions='shaw' .* own, attnlab.build\('shaw', …\)"):
        build(positions="shaw")
    with pytest.raises(ValueError, match="no mechanism 'rop'; did you mean 'rope'"):
        build(positions="rop")
    with pytest.raises(TypeError, match="positions should be"):
        build(positions=nn.Linear(2, 2))
    of_four = [attnlab.build(name, dim=8, heads=4) for name in ("rope", "alibi")]
    with pytest.raises(
        ValueError, match=r"for heads of width 2, but .* have width 4; .* the layer's dim and heads"
    ):
        build(positions=of_four[0])
    with pytest.raises(ValueError, match=r"built for 4 heads, but the layer has 2; .* heads=2"):
        build(positions=of_four[1])
    growing = attnlab.build("rope", dim=8, heads=2, scaling="xpos", factor=512.0)
    with pytest.raises(ValueError, match=r"only a causal layer can take .*xpos"):
        build(positions=growing)
    layer, x = build(positions="alibi"), torch.randn(1, 3, 8)
    with pytest.raises(ValueError, match="a layer with positions has no cross-attention"):
        layer(x, context=x)
    with pytest.raises(ValueError, match="attention='rope' does not mix positions"):
        tiny(attention="rope")
    with pytest.raises(ValueError, match="position_options cannot set 'max_len'"):
        tiny(position_options={"max_len": 9})
    with pytest.raises(TypeError, match="position_options are keyword arguments"):
        tiny(position_options=[1])
    with pytest.raises(TypeError, match="rope has no option 'bas'; did you mean 'base'"):
        tiny(positions="rope", position_options={"bas": 2.0})
    with pytest.raises(ValueError, match="hopfield cannot take rotated queries and keys: a retr"):
        tiny(positions="rope", attention="hopfield")
    own = build(causal=True)
    with pytest.raises(ValueError, match="goes into layers that are built by name"):
        tiny(positions="rope", attention=own)


# ---- costs


class Elements(TorchDispatchMode):
    """Counts the elements of all results that are computed, and those of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.computed = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else [out]:
            if isinstance(each, Tensor) and not each._is_view():
                self.computed += each.numel()
                self.largest = max(self.largest, each.numel())
        return out


@pytest.mark.parametrize(("card", "given"), variants(NOT_ATTENTION))
def test_cost_grows_as_claimed(card: Card, given: Any) -> None:
    """Elements computed, and the largest tensor, n alone growing."""
    n, m = letters("n m")
    lengths = (31, 62, 124, 248)
    for form in card.forms:
        counts = []
        for length in lengths:
            made = inputs(card, form, given, torch.float32, n=length, m=length)
            with Elements() as counted:
                outputs(card, form, given, made)
            counts.append((counted.computed + 1, counted.largest + 1))
        for what, values in zip(("time", "memory"), zip(*counts, strict=True), strict=True):
            claim = card.cost(what, form).subs(m, n)
            claimed = [
                float(claim.subs({n: length}).subs(_widths(claim))) + 1 for length in lengths
            ]
            grows, expected = (exponent(lengths, x).slope for x in (values, claimed))
            assert grows <= expected + 0.1, (form, what, values)


def _widths(claim: Any) -> dict[Any, int]:
    return {x: SIZES[x.name] for x in claim.free_symbols if x.name != "n"}


def test_positions_count_valid_tokens() -> None:
    padding = torch.tensor([[True, False, True, True], [False, False, True, True]])
    at = positions_of(4, torch.device("cpu"), padding=padding, start=3)
    assert at.tolist() == [[3, 3, 4, 5], [3, 3, 3, 4]]


def test_every_name_is_known_to_the_model() -> None:
    """Also by alias; what turns tokens into vectors without positions is no scheme."""
    assert {"learned", "sinusoidal", "none", "nope", "rope", "alibi", "t5_bias"} <= set(schemes())
    for card in SCHEMES:
        assert card.role != "embed" or "positions" in parameters_of(card.forms["naive"])
