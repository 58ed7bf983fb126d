"""Integers for weights and inputs, against torch's observers and its fake quantization."""

import pytest
import torch
from torch import nn
from torch.ao.quantization import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
)

import attnlab
from attnlab.compression.levels import (
    Levels,
    Range,
    Scale,
    Watching,
    integer_product,
    integers,
    numbers,
    observe,
    packed,
    percentile_range,
    range_of,
    rounded,
    scale_of,
    unpacked,
)
from attnlab.compression.quantization import Quantization
from attnlab.models.compressed import load_compressed, save_compressed

SCHEMES = ("affine", "symmetric", "restricted")


def matrix() -> torch.Tensor:
    return torch.randn(13, 7, generator=torch.Generator().manual_seed(3)) + 0.3


def made_of(x: torch.Tensor, **options) -> tuple[Scale, Levels]:
    levels = Levels(**options)
    return scale_of(range_of(x, levels.per), levels), levels


@pytest.mark.parametrize("scheme", ["affine", "symmetric"])
def test_scales_are_those_of_the_observers_of_torch(scheme: str) -> None:
    x = matrix()
    kind = getattr(torch, f"per_tensor_{scheme}")
    theirs = MinMaxObserver(dtype=torch.qint8, qscheme=kind)
    theirs(x)
    step, zero = theirs.calculate_qparams()
    ours, levels = made_of(x, scheme=scheme)
    torch.testing.assert_close(ours.step, step[0])
    assert int(ours.zero) == int(zero)
    kind = getattr(torch, f"per_channel_{scheme}")
    each = PerChannelMinMaxObserver(ch_axis=0, dtype=torch.qint8, qscheme=kind)
    each(x)
    steps, zeros = each.calculate_qparams()
    ours, levels = made_of(x, scheme=scheme, per="channel")
    torch.testing.assert_close(ours.step[:, 0], steps)
    assert torch.equal(ours.zero[:, 0].long(), zeros.long())
    assert (levels.lowest, levels.highest) == (-128, 127)


def test_q8bert_is_restricted() -> None:
    x = matrix()
    (step, zero), levels = made_of(x, scheme="restricted")
    assert step.item() == pytest.approx(x.abs().max().item() / 127)
    assert (int(zero), levels.lowest, levels.highest) == (0, -127, 127)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_numbers_and_gradients_are_those_of_fake_quantization(scheme: str, bits: int) -> None:
    x = matrix()
    levels = Levels(bits=bits, scheme=scheme)
    scale = scale_of(Range(torch.tensor(-1.1), torch.tensor(0.7)), levels)  # so that some clip
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    theirs_out = torch.fake_quantize_per_tensor_affine(
        theirs, float(scale.step), int(scale.zero), levels.lowest, levels.highest
    )
    out = rounded(ours, scale, levels)
    torch.testing.assert_close(out, theirs_out, rtol=0, atol=2e-6)
    out.sum().backward()
    theirs_out.sum().backward()
    assert torch.equal(ours.grad, theirs.grad)
    assert 0 < ours.grad.sum() < x.numel()
    rounded(again := x.clone().requires_grad_(), scale, levels, everywhere=True).sum().backward()
    assert (again.grad == 1).all()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", range(2, 9))
def test_zero_is_exact_and_errors_are_half_a_step_and_rounding_again_changes_nothing(
    scheme: str, bits: int
) -> None:
    x = torch.cat([matrix(), torch.zeros(1, 7)])
    scale, levels = made_of(x, scheme=scheme, bits=bits)
    once = rounded(x, scale, levels)
    assert (once[-1] == 0).all()
    assert (once - x).abs().max() <= scale.step / 2 * (1 + 1e-5)
    assert torch.equal(rounded(once, scale, levels), once)
    positive = x.abs() + 3  # a range that does not hold 0 is widened
    scale, levels = made_of(positive, scheme=scheme, bits=bits)
    assert numbers(integers(torch.zeros(1), scale, levels), scale) == 0
    assert (rounded(positive, scale, levels) - positive).abs().max() <= scale.step * 0.50001


def test_the_formula_with_one_bit_less_uses_129_levels() -> None:
    x = torch.linspace(-1, 0.98, 10_001)
    step = (x.max() - x.min()) / 2**7
    assert len((x / step).round().unique()) == 129
    scale, levels = made_of(x)
    assert len(integers(x, scale, levels).unique()) == 256


def test_two_halves_are_rounded_to_the_even() -> None:
    scale = Scale(torch.tensor(1.0), torch.tensor(0, dtype=torch.int8))
    q = integers(torch.tensor([0.5, 1.5, 2.5, -0.5]), scale, Levels())
    assert q.tolist() == [0, 2, 2, 0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("per", ["tensor", "channel"])
def test_the_product_of_integers_is_that_of_the_numbers(scheme: str, per: str) -> None:
    x, W = matrix()[:5] * 2, matrix()
    xs, xl = made_of(x)
    ws, wl = made_of(W, scheme=scheme, per=per)
    X, Q = integers(x, xs, xl), integers(W, ws, wl)
    found = integer_product(X, xs, Q, ws)
    wanted = numbers(X, xs).double() @ numbers(Q, ws).double().T
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    bias = torch.randn(13)
    moved = integer_product(X, xs, Q, ws, bias).double() - wanted
    assert ((moved - bias).abs() <= (xs.step * ws.step.reshape(-1)) / 2 + 1e-6).all()


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("K", [1, 2, 7, 16, 64])
def test_the_product_of_integers_is_exact_at_every_size(K: int, rows: int) -> None:
    """PyTorch's kernel of integers is not: it gives other sums with older instructions."""
    draws = torch.Generator().manual_seed(K)
    for n in (1, 3, 100, 6400):
        X, W = (torch.randint(-128, 128, (m, K), generator=draws).to(torch.int8) for m in (n, rows))
        one = Scale(torch.tensor(1.0, dtype=torch.float64), torch.tensor(0, dtype=torch.int8))
        found = integer_product(X, one, W, one)
        assert torch.equal(found, X.double() @ W.double().T)


def test_digits_are_read_as_well_with_integers_alone() -> None:
    whole, digits = attnlab.pretrained.load("digits")
    batch = digits.batch("validation", 200, seed=0)
    smaller = Quantization(activations="dynamic")(whole).eval()
    with torch.no_grad():
        same = smaller(batch.inputs).argmax(-1) == whole.eval()(batch.inputs).argmax(-1)
    assert same.float().mean() > 0.95


def test_a_product_of_int8_wraps_and_ours_does_not() -> None:
    a = torch.full((1, 9), 100, dtype=torch.int8)
    assert (a @ a.T).item() != 90_000
    one = Scale(torch.tensor(1.0), torch.tensor(0, dtype=torch.int8))
    assert integer_product(a, one, a, one).item() == 90_000
    for z in (-128, 127):  # the largest sums and corrections
        low = torch.full((2, 9), -128, dtype=torch.int8)
        scale = Scale(torch.tensor(1.0), torch.tensor(z, dtype=torch.int8))
        assert (integer_product(low, scale, low, scale) == 9 * (-128 - z) ** 2).all()


def test_a_scale_for_each_row_is_never_worse_in_its_worst_row() -> None:
    W = matrix() * torch.logspace(-3, 0, 13)[:, None]
    errors = []
    for per in ("tensor", "channel"):
        scale, levels = made_of(W, bits=4, per=per)
        wrong = (rounded(W, scale, levels) - W).norm(dim=1) / W.norm(dim=1)
        errors.append(wrong.max().item())
    assert errors[1] < 0.2 < errors[0]


def test_ranges_are_those_of_torchs_observers() -> None:
    batches = [matrix() * k for k in (1, 3, 2)]
    theirs = {"minmax": MinMaxObserver(), "moving_average": MovingAverageMinMaxObserver(0.01)}
    for name, observer in theirs.items():
        found = None
        for x in batches:
            observer(x)
            found = observe(found, x, Watching(observer=name))
        torch.testing.assert_close(found.low, observer.min_val)
        torch.testing.assert_close(found.high, observer.max_val)


def test_one_outlier_widens_every_step_and_a_percentile_does_not() -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    x[0] = 60
    worst, levels = [], Levels(scheme="symmetric")
    for found in (range_of(x), percentile_range(x, 99.9)):
        scale = scale_of(found, levels)
        worst.append((rounded(x, scale, levels) - x)[1:].square().mean())
    assert worst[0] > 50 * worst[1]


def model() -> nn.Module:
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(11, dim=12, heads=3, layers=2, max_len=9)
    return made.eval()


TOKENS = torch.arange(8)[None]


def test_a_tied_table_is_one_table_of_integers() -> None:
    compress = Quantization()
    smaller = compress(model())
    table = smaller.embedding
    assert (table.q.dtype, table.q.shape) == (torch.int8, (11, 12))
    assert "output.weight" not in smaller.state_dict()
    torch.testing.assert_close(table(TOKENS), table.weight[TOKENS])
    assert (smaller(TOKENS) - model()(TOKENS)).abs().max() < 0.05
    one = nn.Linear(6, 6, bias=False)
    two = nn.Linear(6, 6, bias=False)
    two.weight = one.weight
    both = Quantization()(nn.Sequential(one, two))
    assert both[0].q is both[1].q
    assert compress.bytes(both) == 36 + 5
    same = Quantization()(nn.Sequential(one, nn.Tanh(), one))
    assert same[0] is same[2]


def test_static_ranges_are_observed_on_examples_alone() -> None:
    net = nn.Sequential(nn.Linear(7, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    x = matrix()
    static = Quantization(activations="static", examples=[x[:6], x[6:]])(net)
    assert torch.equal(static[0].low, x.min())
    assert torch.equal(static[0].high, x.max())
    assert net.training
    before = static[0].high.clone()
    static(100 * x)  # clipped, not observed
    assert torch.equal(static[0].high, before)
    net.eval(), static.eval()
    torch.testing.assert_close(static(x), net(x), rtol=0, atol=0.05)


def test_products_of_integers_train_what_is_before_them() -> None:
    layer = Quantization(activations="dynamic")(nn.Linear(7, 5))
    x = matrix().requires_grad_()
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(13, 7))
    assert torch.equal(layer.bias.grad, torch.full((5,), 13.0))
    with torch.no_grad():
        assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("bits", range(2, 9))
def test_integers_are_packed_without_a_gap(bits: int) -> None:
    lowest = -(2 ** (bits - 1))
    q = torch.arange(lowest, -lowest).repeat(3)[:-1].to(torch.int8)
    data = packed(q, bits, lowest)
    assert len(data) == -(-len(q) * bits // 8)
    assert torch.equal(unpacked(data, len(q), bits, lowest), q)


@pytest.mark.parametrize("case", ["quantization", "channels", "static", "magnitude", "structured",
                                  "kmeans", "aware", "pruned integers", "pruned kmeans",
                                  "pruned aware"])  # fmt: skip
def test_a_file_is_as_small_as_claimed_and_loads_equal_bit_for_bit(case: str, tmp_path) -> None:
    whole = model()
    compress, smaller = {
        "quantization": lambda: one(Quantization(Levels(bits=3))),
        "channels": lambda: one(Quantization(Levels(bits=5, per="channel"), "dynamic")),
        "static": lambda: one(Quantization(activations="static", examples=[TOKENS])),
        "magnitude": lambda: one(attnlab.build("magnitude_pruning", kept=0.2)),
        "structured": lambda: one(attnlab.build("structured_pruning", kept=0.5)),
        "kmeans": lambda: one(attnlab.build("kmeans_weights", bits=3)),
        "aware": lambda: one(attnlab.build("quantization_aware", bits=4, activations=False)),
        "pruned integers": lambda: one(Quantization(Levels(per="channel")), pruned(0.3)),
        "pruned kmeans": lambda: one(attnlab.build("kmeans_weights", bits=5), pruned(0.3)),
        "pruned aware": lambda: one(
            attnlab.build("quantization_aware", bits=4, activations=False), pruned(0.3)
        ),
    }[case](), None  # fmt: skip
    compress, smaller = compress
    path = tmp_path / "smaller.safetensors"
    save_compressed(smaller, path)
    again = load_compressed(path, model())
    with torch.no_grad():
        assert torch.equal(again(TOKENS), smaller(TOKENS))
    assert compress.bytes(again) == compress.bytes(smaller)
    others = sum(p.numel() * 4 for n, p in whole.named_parameters() if p.dim() == 1 or "posi" in n)
    others += 4 * whole.embedding.weight.numel()
    assert body(path) <= compress.bytes(smaller) + others


def body(path) -> int:
    """The bytes of a file behind its header of names and shapes."""
    content = path.read_bytes()
    return len(content) - 8 - int.from_bytes(content[:8], "little")


def one(compress, whole: nn.Module | None = None):
    made = compress(model() if whole is None else whole)
    return compress, compress.convert(made) if hasattr(compress, "convert") else made


def pruned(kept: float) -> nn.Module:
    return attnlab.build("magnitude_pruning", kept=kept)(model())


PAGES = {
    "numbers": lambda: None,
    "integers": lambda: Quantization(Levels(bits=5, per="channel")),
    "kmeans": lambda: attnlab.build("kmeans_weights", bits=3),
    "mask": lambda: attnlab.build("magnitude_pruning", kept=0.3),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_model_whose_units_are_gone_is_loaded_by_the_whole_one(page: str, tmp_path) -> None:
    """Layers of different widths: two heads and six hidden units here, one and eight there."""
    cut = [(0, 1), (1, 3), *[(1, j) for j in range(20, 48)], (2, 0), (2, 2)]
    compress = attnlab.build("structured_pruning", cut=cut)
    shrunk = compress.remove(compress(model()))
    smaller = PAGES[page]()(shrunk) if page != "numbers" else shrunk
    blocks = smaller.decoder.blocks
    assert [block.attention.heads.heads for block in blocks] == [2, 1]
    path, other = tmp_path / "smaller.safetensors", tmp_path / "whole.safetensors"
    save_compressed(smaller, path)
    save_compressed(PAGES[page]()(model()) if page != "numbers" else model(), other)
    again = load_compressed(path, model())
    with torch.no_grad():
        assert torch.equal(again(TOKENS), smaller(TOKENS))
    assert [block.attention.heads.heads for block in again.decoder.blocks] == [2, 1]
    assert body(path) < 0.9 * body(other)
    with pytest.raises(ValueError, match="another shape"):
        load_compressed(other, shrunk)


def test_at_two_bits_the_convention_decides() -> None:
    """What the page says of the shipped digits, with room for other processors."""
    whole, task = attnlab.pretrained.load("digits")
    unseen = task.batch("validation", 355, seed=0)
    shares = {}
    for scheme in SCHEMES:
        for per in ("tensor", "channel"):
            made = Quantization(Levels(bits=2, scheme=scheme, per=per))(whole)
            with torch.no_grad():
                right = made(unseen.inputs).argmax(-1) == unseen.targets
            shares[scheme, per] = 100 * right.double().mean().item()
    for (scheme, per), share in {
        ("affine", "tensor"): 71, ("symmetric", "tensor"): 54, ("restricted", "tensor"): 10,
        ("affine", "channel"): 95, ("symmetric", "channel"): 93, ("restricted", "channel"): 82,
    }.items():  # fmt: skip
        assert shares[scheme, per] == pytest.approx(share, abs=4)


def test_what_a_mask_has_cut_is_the_integer_of_zero() -> None:
    layer = attnlab.build("magnitude_pruning", kept=0.25)(nn.Linear(16, 9))
    for scheme in SCHEMES:
        compress = Quantization(Levels(scheme=scheme))
        smaller = compress(layer)
        assert torch.equal(smaller.weight == 0, layer.weight == 0)
        # a bit for each of 144 weights, a byte for the 36 that are left, scale and zero point
        assert compress.bytes(smaller) == 18 + 36 + 5
    dense = Quantization()(nn.Linear(16, 9))
    assert Quantization().bytes(dense) == 144 + 5


@pytest.mark.parametrize("name", ["quantization", "quantization_aware", "kmeans_weights",
                                  "magnitude_pruning"])  # fmt: skip
def test_attention_of_torch_is_refused_as_it_would_be_left_out(name: str) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True).eval()
    with pytest.raises(ValueError, match=r"self_attn is an nn.MultiheadAttention.*attnlab.replace"):
        attnlab.build(name)(layer)
    x = torch.randn(2, 5, 12)
    with torch.no_grad():
        before = layer(x)
        attnlab.replace(layer, "full")
        after = attnlab.build(name, **({"kept": 0.99} if "pruning" in name else {"bits": 8}))(layer)
        assert (after(x) - before).abs().max() < 0.2


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    model().save(path)
    with pytest.raises(ValueError, match="holds no compressed module"):
        load_compressed(path, model())
    save_compressed(Quantization()(model()), path)
    wide = attnlab.TinyTransformer(11, dim=24, layers=2)
    for other, words in ((nn.Linear(3, 3), "no layer"), (wide, "another shape")):
        with pytest.raises(ValueError, match=words):
            load_compressed(path, other)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Levels(bits=1), "bits should be from 2 to 8, or 32"),
        (lambda: Levels(bits=0), "bits should be from 2 to 8, or 32"),
        (lambda: Quantization(activations="static"), "there are none: give examples"),
        (lambda: Quantization(activations="static", examples=[]), "there are none: give examples"),
        (lambda: Quantization(examples=[TOKENS]), "need no examples"),
        (lambda: Watching(percent=0.0), "percent should be above 0"),
        (lambda: Quantization()(nn.Tanh()), "has no linear layer"),
    ],
)
def test_bad_calls_are_sentences(wrong, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        wrong()
