"""Synthesizer: each variant's map in closed form, its limits, counts and longest length."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.core import patterns
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.dense.full import FullAttention
from attnlab.mechanisms.lowrank import synthesizer as synthesizer_page
from attnlab.mechanisms.lowrank.synthesizer import (
    FORMS,
    VARIANTS,
    Synthesizer,
    SynthesizerOptions,
    fused,
    naive,
)

DIM, HEADS, LENGTH, N = 12, 3, 35, 11
MIXTURES = [variant for variant, components in VARIANTS.items() if len(components) > 1]
FACTORED = ["dense", "factorized_random", "dense_vanilla"]


def synthesizer(*, form: str = "fused", causal: bool = False, **options) -> Synthesizer:
    return Synthesizer(DIM, HEADS, causal=causal, form=form, options=SynthesizerOptions(**options))  # type: ignore[arg-type]


def layer(variant: str, *, max_len: int = LENGTH, form: str = "fused", **options) -> Synthesizer:
    torch.manual_seed(3)
    made = synthesizer(variant=variant, max_len=max_len, form=form, **options).double()
    with torch.no_grad():
        for parameter in made.synthesize.parameters():  # zero biases would hide a lost one
            parameter.normal_()
        if made.mixture is not None:
            made.mixture.copy_(torch.tensor([0.3, -0.9]))
    return made


def tokens(n: int = N) -> Tensor:
    return torch.randn(2, n, DIM, dtype=torch.float64)


# ---- closed forms, written as the paper writes them: no factors, no slices, one entry at a time


def hidden(part: nn.Module, x: Tensor, head: int) -> Tensor:
    linear = part.hidden.linear
    mine = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
    return torch.relu(x @ linear.weight[mine].T + linear.bias[mine])


def second(part: nn.Module, hidden: Tensor, head: int) -> Tensor:
    return hidden @ part.weight[head].T + part.bias[head]


def dense(part: nn.Module, x: Tensor, head: int) -> Tensor:
    return second(part.second, hidden(part, x, head), head)


def random(part: nn.Module, x: Tensor, head: int) -> Tensor:
    return part.table[head, : x.shape[0]]


def factorized_random(part: nn.Module, x: Tensor, head: int) -> Tensor:
    return (part.rows[head] @ part.columns[head].T)[: x.shape[0]]


def factorized_dense(part: nn.Module, x: Tensor, head: int) -> Tensor:
    a, b = part.factors
    tiled = second(part.tiled, hidden(part, x, head), head)
    repeated = second(part.repeated, hidden(part, x, head), head)
    assert (tiled.shape[1], repeated.shape[1]) == (a, b)
    columns = [tiled[:, j % a] * repeated[:, j // a] for j in range(a * b)]
    return torch.stack(columns, dim=1)


LOGITS: dict[str, Callable[[nn.Module, Tensor, int], Tensor]] = {
    "dense": dense,
    "random": random,
    "fixed_random": random,
    "factorized_random": factorized_random,
    "factorized_dense": factorized_dense,
}


def vanilla(made: Synthesizer, x: Tensor, head: int) -> Tensor:
    mine = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
    q, k = (x @ part.weight[mine].T for part in (made.heads.query, made.heads.key))
    return q @ k.T / math.sqrt(DIM // HEADS)


def closed_logits(made: Synthesizer, x: Tensor, head: int) -> Tensor:
    """Of one sequence (n, dim) and one head."""
    n, parts = len(x), iter(made.synthesize)
    each = [
        vanilla(made, x, head) if name == "vanilla" else LOGITS[name](next(parts), x, head)[:, :n]
        for name in VARIANTS[made.options.variant]
    ]
    if made.mixture is None:
        return each[0]
    powers = made.mixture.exp()
    return sum(w * s for w, s in zip(powers / powers.sum(), each, strict=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_map_is_the_closed_form(variant: str, form: str, causal: bool) -> None:
    made, x = layer(variant, form=form, causal=causal), tokens()
    found = mixing_matrix(made, x)
    assert found.exact
    later = torch.ones(N, N).triu(1).bool()
    for i in range(2):
        for head in range(HEADS):
            logits = closed_logits(made, x[i], head)
            logits = logits.masked_fill(later, -torch.inf) if causal else logits
            expected = logits.softmax(-1)
            torch.testing.assert_close(found.matrix[i, head], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_naive_notes_the_logits_and_their_weights(variant: str) -> None:
    made, x = layer(variant, form="naive"), tokens()
    with record() as notes:
        made(x)
    (logits,), (weights,) = notes["logits"], notes["weights"]
    torch.testing.assert_close(logits[1, 2], closed_logits(made, x[1], 2))
    torch.testing.assert_close(weights, logits.softmax(-1))
    assert ("mixture" in notes) == (variant in MIXTURES)
    if variant in MIXTURES:
        torch.testing.assert_close(notes["mixture"][0], made.mixture.softmax(0))


def test_a_mixture_starts_even() -> None:
    with record() as notes:
        synthesizer(variant="random_dense")(tokens().float())
    assert notes["mixture"][0].tolist() == [0.5, 0.5]


# ---- limits: Y1


def test_random_with_the_scores_of_full_attention_is_full_attention() -> None:
    full, made = FullAttention(DIM, HEADS).double(), layer("random", max_len=N)
    made.heads.value, made.heads.output = full.heads.value, full.heads.output
    x = tokens()[:1]
    q, k, _ = full.heads.project(x)
    made.synthesize[0].table.data = (q @ k.mT / math.sqrt(DIM // HEADS))[0]
    torch.testing.assert_close(made(x), full(x))


@pytest.mark.parametrize("form", ["naive", "fused"])
def test_dense_is_the_papers_equation(form: str) -> None:
    made = layer("dense", max_len=N, form=form)
    x, (F,) = torch.randn(2, N, DIM, dtype=torch.float64), made.synthesize
    first, second = F.hidden.linear, F.second
    weights = first.weight.unflatten(0, (HEADS, -1)).mT, first.bias.unflatten(0, (HEADS, -1))
    out = synthesizer_page.dense(x, *weights, second.weight.mT, second.bias, made.heads.values(x))
    torch.testing.assert_close(made.heads.merge(out), made(x))


def test_factorized_random_of_full_rank_is_random() -> None:
    made, free = layer("factorized_random", rank=LENGTH), layer("random")
    free.heads = made.heads
    made.synthesize[0].rows.data = free.synthesize[0].table.data
    made.synthesize[0].columns.data[:] = torch.eye(LENGTH)
    x = tokens()
    torch.testing.assert_close(made(x), free(x))


def test_factorized_random_has_the_rank_it_was_given() -> None:
    with record() as notes:
        layer("factorized_random", rank=3, form="naive")(tokens())
    assert torch.linalg.matrix_rank(notes["logits"][0]).unique().tolist() == [3]


def test_factorized_dense_with_one_factor_of_ones_is_dense() -> None:
    made, whole = layer("factorized_dense", factors=(1, LENGTH)), layer("dense")
    short, long = made.synthesize[0], whole.synthesize[0]
    short.tiled.weight.data.zero_()
    short.tiled.bias.data.fill_(1)
    short.repeated, short.hidden, made.heads = long.second, long.hidden, whole.heads
    x = tokens()
    torch.testing.assert_close(made(x), whole(x))


# ---- limits: Y2


def test_row_of_factorized_dense_is_an_outer_product() -> None:
    """Row i, seen as (b, a), has rank one; tiling both factors would not give that."""
    made, x = layer("factorized_dense", form="naive", factors=(5, 7)), tokens(LENGTH)
    with record() as notes:
        made(x)
    outer = notes["logits"][0].unflatten(-1, (7, 5))
    assert torch.linalg.matrix_rank(outer).unique().tolist() == [1]
    assert torch.linalg.matrix_rank(outer.flatten(-2).unflatten(-1, (5, 7))).min() > 1


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("variant", MIXTURES)
def test_one_hot_mixture_is_its_component(variant: str, which: int) -> None:
    made, x = layer(variant), tokens()
    made.mixture.data = torch.tensor([0.0, 0.0], dtype=torch.float64)
    made.mixture.data[which] = 1e4
    name = VARIANTS[variant][which]
    alone = FullAttention(DIM, HEADS).double() if name == "vanilla" else layer(name)
    if name == "vanilla":
        alone.heads = made.heads
    else:
        alone.synthesize[0] = made.synthesize[which]
        alone.heads.value, alone.heads.output = made.heads.value, made.heads.output
    torch.testing.assert_close(made(x), alone(x))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_zero_logits_are_the_mean_of_what_is_seen(variant: str, causal: bool) -> None:
    made, x = layer(variant, causal=causal), tokens()
    with torch.no_grad():
        for tensor in made.synthesize.state_dict(keep_vars=True).values():
            tensor.zero_()
        if "vanilla" in VARIANTS[variant]:
            made.heads.query.weight.zero_()
    mean = x.cumsum(1) / torch.arange(1, N + 1)[:, None] if causal else x.mean(1, keepdim=True)
    expected = made.heads.output(made.heads.value(mean)).expand(2, N, DIM)
    torch.testing.assert_close(made(x), expected)


# ---- what the weights depend on


@pytest.mark.parametrize("variant", ["random", "fixed_random", "factorized_random"])
def test_random_weights_do_not_depend_on_the_input(variant: str) -> None:
    made = layer(variant)
    first, second = (mixing_matrix(made, tokens()).matrix for _ in range(2))
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first[0], first[1])
    assert not torch.allclose(first[0, 0], first[0, 1])  # a head has its own


@pytest.mark.parametrize("variant", ["dense", "factorized_dense", "random_dense"])
def test_row_of_dense_logits_depends_on_its_own_token_only(variant: str) -> None:
    made, x = layer(variant, form="naive"), tokens().requires_grad_()
    with record() as notes:
        made(x)
    (gradient,) = torch.autograd.grad(notes["logits"][0][:, :, 4].square().sum(), x)
    others = [i for i in range(N) if i != 4]
    assert (gradient[:, others] == 0).all()
    assert (gradient[:, 4] != 0).any()


# ---- parameters


@pytest.mark.parametrize(
    ("variant", "expected", "biases"),
    [
        ("dense", 393_216, 512 + 8 * 256),
        ("random", 8 * 65_536, 0),
        ("fixed_random", 0, 0),
        ("factorized_random", 8 * 4_096, 0),
        ("factorized_dense", 278_528, 512 + 8 * 32),
        ("random_dense", 8 * 65_536 + 393_216, 512 + 8 * 256 + 2),
        ("dense_vanilla", 393_216 + 524_288, 512 + 8 * 256 + 2),
        ("random_vanilla", 8 * 65_536 + 524_288, 2),
    ],
)
def test_parameters_follow_the_papers_formulas(variant: str, expected: int, biases: int) -> None:
    """dim = 512, 8 heads, L = 256, k = 8, a = b = 16; beside them W_V and W_O, 2 · 512²."""
    with torch.device("meta"):
        made = attnlab.build("synthesizer", dim=512, heads=8, variant=variant)
    own = sum(p.numel() for p in made.parameters()) - 2 * 512**2
    assert own == expected + biases


def test_fixed_random_trains_values_and_output_alone() -> None:
    made = layer("fixed_random")
    assert {name for name, _ in made.named_parameters()} == {
        "heads.value.weight",
        "heads.output.weight",
    }
    assert "synthesize.0.table" in made.state_dict()  # drawn once: it must be saved
    trained = layer("random")
    assert "synthesize.0.table" in dict(trained.named_parameters())


# ---- the longest sequence


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_longer_sequence_is_refused(variant: str) -> None:
    made = layer(variant, causal=True)
    x = tokens(LENGTH + 1)
    assert made(x[:, :LENGTH]).shape == (2, LENGTH, DIM)
    with pytest.raises(ValueError, match=r"36 positions.*max_len=35; build it with max_len=36"):
        made(x)
    _, state = made.step(x[:, :LENGTH])
    with pytest.raises(ValueError, match="36 positions"):
        made.step(x[:, LENGTH:], state)


# ---- forms with a table


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_fused_honours_a_table_under_any_mask(dtype: torch.dtype, batch: int) -> None:
    tolerance = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2}[dtype]
    shapes = [(2, 3, 7, 5), (2, 3, 11, 5), (2, 3, 11, 13), (batch, 3, 7, 11)]
    holes = torch.rand(2, 3, 7, 11) > 0.4
    holes[0, 0, 2] = False
    real = torch.arange(11) < torch.tensor([[11], [4]])
    for mask in (None, patterns.causal(), patterns.causal() & patterns.padding(real), holes):
        *made, table = [torch.randn(s).to(dtype).requires_grad_() for s in shapes]
        exact = [x.detach().double().requires_grad_() for x in (*made, table)]
        expected = naive(*exact[:3], table=exact[3], mask=mask)
        out = fused(*made, table=table, mask=mask)
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
        direction = torch.randn(out.shape).to(dtype)
        mine = torch.autograd.grad((out * direction).sum(), [*made, table])
        theirs = torch.autograd.grad((expected * direction.double()).sum(), exact)
        for a, b in zip(mine, theirs, strict=True):
            bound = tolerance * max(1.0, b.abs().max().item())
            torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=bound)
        if mask is holes:
            assert (out[0, 0, 2] == 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_made_of_factors_never_holds_the_logits(variant: str) -> None:
    made = synthesizer(variant=variant, max_len=512)
    x = torch.randn(1, 509, DIM)
    largest = count(made, x).largest_tensor.elements
    assert (largest < 509 * 509) == (variant in FACTORED)


@pytest.mark.parametrize("variant", VARIANTS)
def test_autocast_gives_half_precision(variant: str) -> None:
    made, x = layer(variant).float(), tokens().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = made(x)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), made(x), rtol=0.1, atol=0.1)


# ---- decoding, and seeing inside


@pytest.mark.parametrize("variant", VARIANTS)
def test_state_holds_values_and_only_vanilla_keys(variant: str) -> None:
    _, state = layer(variant, causal=True).step(tokens())
    width = DIM // HEADS
    assert state.values.shape == (2, HEADS, N, width)
    assert state.keys.shape == (2, HEADS, N, width if "vanilla" in VARIANTS[variant] else 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_watch_sees_the_weights_that_are_used(variant: str, form: str) -> None:
    made, x = layer(variant, form=form, causal=True), tokens()
    model = nn.ModuleDict({"mixer": made})
    with attnlab.watch(model) as seen:
        made(x)
        _, state = made.step(x[:, :7])
        made.step(x[:, 7:], state)
    whole, first, rest = seen
    assert {record.name.partition("#")[0] for record in seen} == {"mixer"}
    expected = mixing_matrix(made, x).matrix
    torch.testing.assert_close(whole.weights, expected)
    torch.testing.assert_close(first.weights, expected[:, :, :7, :7])
    torch.testing.assert_close(rest.weights, expected[:, :, 7:])


# ---- refusals


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"variant": "rndom"}, "no variant of the Synthesizer 'rndom'; did you mean 'random'"),
        ({"form": "tiled"}, "no form 'tiled'"),
        ({"variant": "random", "rank": 4}, "rank belongs to variant='factorized_random'"),
        ({"factors": (5, 7)}, "factors belongs to variant='factorized_dense'; 'dense' has none"),
        (
            {"variant": "factorized_dense", "factors": (5, 8), "max_len": 35},
            r"should multiply to max_len=35, got \(5, 8\)",
        ),
        (
            {"variant": "factorized_dense", "factors": (-5, -7), "max_len": 35},
            r"factors\[0\] should be at least 1, got -5",
        ),
        ({"max_len": 0}, "max_len should be at least 1, got 0"),
        ({"variant": "factorized_random", "rank": 0}, "rank should be at least 1, got 0"),
    ],
)
def test_bad_options(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        synthesizer(**options)


def test_factors_are_as_near_to_each_other_as_they_can_be() -> None:
    for max_len, factors in ((256, (16, 16)), (35, (5, 7)), (24, (4, 6)), (13, (1, 13))):
        made = synthesizer(variant="factorized_dense", max_len=max_len)
        assert made.synthesize[0].factors == factors


def test_step_needs_a_causal_layer() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        layer("dense").step(tokens())
