"""Linformer: its limits (identity K1), its sharing, its windows, and the map it amounts to."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnlab
from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.lens.watch import watch
from attnlab.mechanisms.dense import full
from attnlab.mechanisms.lowrank.linformer import FORMS, Linformer, LinformerOptions, Projection
from attnlab.models.tiny import TinyTransformer

B, H, M, D, E = 2, 3, 11, 5, 7
REAL = torch.arange(M) < torch.tensor([[M], [M - 4]])


def linformer(dim: int, heads: int, *, form: str = "fused", **options: Any) -> Linformer:
    return Linformer(dim, heads, form=form, options=LinformerOptions(**options))  # type: ignore[arg-type]


def made(n: int = 13) -> list[Tensor]:
    shapes = ((B, H, n, D), (B, H, M, D), (B, H, M, E))
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


def permutation() -> Tensor:
    return torch.eye(M, dtype=torch.float64)[torch.randperm(M)]


by_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


# ---- K1: full attention as a limit


@by_form
@pytest.mark.parametrize("matrix", [lambda: torch.eye(M, dtype=torch.float64), permutation])
@pytest.mark.parametrize("padding", [None, REAL], ids=["whole", "padded"])
def test_one_place_per_position_is_full_attention(
    form: Callable[..., Tensor], matrix: Callable[[], Tensor], padding: Tensor | None
) -> None:
    q, k, v = made()
    e = matrix()
    mask = None if padding is None else padding[:, None, None, :]
    expected = full.naive(q, k, v, mask=mask)
    torch.testing.assert_close(form(q, k, v, e, e, padding=padding), expected)
    torch.testing.assert_close(form(q, k, v, e.expand(H, M, M), e, padding=padding), expected)


@by_form
def test_two_different_permutations_are_not_full_attention(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    out = form(q, k, v, permutation(), permutation())
    assert not torch.allclose(out, full.naive(q, k, v), atol=1e-2)


def test_module_of_identity_projections_is_the_full_module() -> None:
    ours = linformer(12, 3, k=M, max_len=M).double()
    theirs = full.FullAttention(12, 3).double()
    theirs.heads.load_state_dict(ours.heads.state_dict())
    for projection in (ours.e, ours.f):
        projection.weight.data = torch.eye(M, dtype=torch.float64)
    x = torch.randn(B, M, 12, dtype=torch.float64)
    torch.testing.assert_close(ours(x, REAL), theirs(x, REAL))


@pytest.mark.parametrize("n", [1, 7, M, 23])
def test_windows_of_one_position_are_full_attention_at_any_length(n: int) -> None:
    ours = linformer(12, 3, k=M, max_len=M, projection="mean-pool").double()
    theirs = full.FullAttention(12, 3).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(B, n, 12, dtype=torch.float64)
    padding = torch.arange(n) < torch.tensor([[n], [max(1, n - 3)]])
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours(x, padding), theirs(x, padding))


# ---- sharing, and what it costs


def projections(layers: list[nn.Module]) -> list[nn.Parameter]:
    """The projection matrices of a stack, each once."""
    parts = nn.ModuleList(layers).modules()
    owners = {id(p): p for p in parts if isinstance(p, Projection)}
    return [weight for owner in owners.values() for weight in owner.parameters()]


@pytest.mark.parametrize(
    ("sharing", "matrices"),
    [("none", 288), ("headwise", 24), ("key-value", 12), ("layerwise", 1)],
)
def test_matrices_of_twelve_layers_of_twelve_heads(sharing: str, matrices: int) -> None:
    k, max_len = 17, 31
    with torch.device("meta"):
        if sharing == "layerwise":
            given: dict = {"projection": Projection(k, max_len)}
        else:
            given = {"k": k, "max_len": max_len}
        layers = [linformer(24, 12, sharing=sharing, **given) for _ in range(12)]
    found = projections(layers)
    assert sum(weight.numel() for weight in found) == matrices * k * max_len
    every = {id(p): p.numel() for layer in layers for p in layer.parameters()}
    assert sum(every.values()) == 12 * 4 * 24 * 24 + matrices * k * max_len


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"projection": "convolution"}, 2 * 6),  # s = ⌈31 / 6⌉
        ({"projection": "convolution", "sharing": "none"}, 2 * 3 * 6),
        ({"projection": "convolution", "sharing": "key-value"}, 6),
        ({"projection": "mean-pool"}, 0),
        ({"sharing": "none"}, 2 * 3 * 6 * 31),
    ],
)
def test_parameters_of_the_projections(options: dict, expected: int) -> None:
    layer = linformer(12, 3, k=6, max_len=31, **options)
    assert sum(p.numel() for p in projections([layer])) == expected


def test_one_projection_serves_all_layers_of_a_model() -> None:
    shared = Projection(5, 13)

    def build(dim: int, heads: int, causal: bool) -> Linformer:
        return linformer(dim, heads, sharing="layerwise", projection=shared)

    model = TinyTransformer(
        23, dim=12, layers=3, heads=3, attention=build, kind="classifier", classes=2, max_len=13
    )
    assert projections([model]) == [shared.weight]
    model(torch.randint(23, (2, 13))).sum().backward()
    assert (shared.weight.grad != 0).all()


def test_each_layer_may_have_its_own_k() -> None:
    model = TinyTransformer(
        23,
        dim=12,
        layers=2,
        heads=3,
        attention="linformer",
        attention_options=[{"k": 5, "max_len": 13}, {"k": 3, "max_len": 13}],
        kind="classifier",
        classes=2,
        max_len=13,
    )
    assert [len(p) for p in projections([model])] == [5, 5, 3, 3]
    assert model(torch.randint(23, (2, 11))).shape == (2, 2)


# ---- the map it amounts to

OPTIONS = {
    "linear": {},
    "linear, none": {"sharing": "none"},
    "linear, key-value": {"sharing": "key-value"},
    "linear, early": {"early": True},
    "mean-pool": {"projection": "mean-pool"},
    "convolution": {"projection": "convolution"},
    "convolution, none": {"projection": "convolution", "sharing": "none"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("padding", [None, REAL], ids=["whole", "padded"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_mixing_matrix_is_the_closed_form(options: dict, padding: Tensor | None, form: str) -> None:
    """softmax(Q (E K)ᵀ / √d) F, with columns of padding taken out before."""
    layer = linformer(12, 3, k=4, max_len=17, form=form, **options).double()
    x = torch.randn(B, M, 12, dtype=torch.float64)
    mixing = mixing_matrix(layer, x, padding=padding)
    q, k, _ = layer.heads.project(x)
    real = torch.ones(B, 1, 1, M, dtype=torch.float64)
    if padding is not None:
        real = padding[:, None, None, :].double()
    e, f = (p(x).expand(B, H, -1, M) * real for p in (layer.e, layer.f))
    scores = q @ (e @ k).mT / math.sqrt(4)
    scores = scores.masked_fill((e == 0).all(-1)[:, :, None, :], -torch.inf)
    assert mixing.exact
    expected = scores.softmax(-1) @ f * real.mT
    torch.testing.assert_close(mixing.matrix, expected, rtol=1e-6, atol=1e-6)
    assert torch.linalg.matrix_rank(mixing.matrix).max() <= 4


def test_watching_shows_the_weights_over_the_places() -> None:
    layer = linformer(12, 3, k=4, max_len=17).double()
    x = torch.randn(B, M, 12, dtype=torch.float64)
    with watch(layer) as seen:
        layer(x)
    q, k, _ = layer.heads.project(x)
    expected = (q @ (layer.e(x) @ k).mT / math.sqrt(4)).softmax(-1)
    torch.testing.assert_close(seen[0].weights, expected)


@pytest.mark.parametrize("sharing", ["headwise", "key-value"])
@pytest.mark.parametrize("kind", ["linear", "convolution", "mean-pool"])
@pytest.mark.parametrize("form", FORMS)
def test_early_is_the_same_function(sharing: str, kind: str, form: str) -> None:
    late, early = (
        linformer(
            12, 3, k=4, max_len=17, sharing=sharing, projection=kind, early=early, form=form
        ).double()
        for early in (False, True)
    )
    early.load_state_dict(late.state_dict())
    x = torch.randn(B, M, 12, dtype=torch.float64, requires_grad=True)
    for padding in (None, REAL):
        outs = [layer(x, padding) for layer in (late, early)]
        torch.testing.assert_close(*outs)
        grads = [
            torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])
            for out, layer in zip(outs, (late, early), strict=True)
        ]
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs)


# ---- lengths and windows


def test_a_shorter_sequence_takes_the_first_columns() -> None:
    projection = Projection(3, 17)
    x = torch.zeros(B, 7, 12)
    torch.testing.assert_close(projection(x), projection.weight[:, :7])


@pytest.mark.parametrize("early", [False, True])
def test_too_long_is_answered_in_a_sentence(early: bool) -> None:
    layer = linformer(12, 3, k=4, max_len=17, early=early)
    with pytest.raises(ValueError, match=r"18 positions, but .* max_len=17.*larger max_len"):
        layer(torch.randn(B, 18, 12))


@pytest.mark.parametrize("kind", ["mean-pool", "convolution"])
def test_windows_go_on_past_max_len(kind: str) -> None:
    """k = 4, max_len = 11: windows of 3. Then any length works, and the last window is cut."""
    projection = Projection(4, 11, kind=kind)
    kernel = torch.full((3,), 1 / 3) if kind == "mean-pool" else projection.weight.detach()
    for n, places in ((1, 1), (3, 1), (5, 2), (11, 4), (23, 8)):
        e = projection(torch.zeros(1, n, 2))
        assert e.shape == (places, n)
        for place in range(places):
            inside = range(3 * place, min(3 * place + 3, n))
            torch.testing.assert_close(e[place, list(inside)], kernel[: len(inside)])
            assert (e[place, [i for i in range(n) if i not in inside]] == 0).all()


def test_pooling_is_pytorchs() -> None:
    """Where windows fill the length, mean-pool is avg_pool1d and convolution conv1d, stride s."""
    x = torch.randn(2, 12, 5)
    pooled = Projection(4, 12, kind="mean-pool")(x) @ x
    torch.testing.assert_close(pooled, nn.functional.avg_pool1d(x.mT, 3).mT)
    projection = Projection(4, 12, kind="convolution")
    kernel = projection.weight.expand(5, 1, 3)
    convolved = nn.functional.conv1d(x.mT, kernel, stride=3, groups=5).mT
    torch.testing.assert_close(projection(x) @ x, convolved)


def test_places_of_padding_alone_are_not_looked_at() -> None:
    """Windows of 3, 5 real positions of 11: two of the four places hold something."""
    layer = linformer(12, 3, k=4, max_len=11, projection="mean-pool", form="naive")
    padding = (torch.arange(11) < 5).expand(B, 11)
    with record() as notes:
        layer(torch.randn(B, 11, 12), padding)
    assert (notes["weights"][0][..., :2] > 0).all()
    assert (notes["weights"][0][..., 2:] == 0).all()


@by_form
def test_a_place_that_is_zero_stays_as_the_equation_has_it(form: Callable[..., Tensor]) -> None:
    """E with a row of zeros: its score is 0, not minus infinity, with or without padding."""
    q, k, v = made()
    e = torch.randn(3, M, dtype=torch.float64)
    e[1] = 0
    whole = torch.ones(B, M, dtype=torch.bool)
    expected = (q @ (e @ k).mT / math.sqrt(D)).softmax(-1) @ (e @ v)
    torch.testing.assert_close(form(q, k, v, e, e), expected)
    torch.testing.assert_close(form(q, k, v, e, e, padding=whole), expected)


@by_form
def test_padding_may_hold_anything(form: Callable[..., Tensor]) -> None:
    q, k, v = made()
    e = torch.randn(4, M, dtype=torch.float64)
    out = form(q, k, v, e, e, padding=REAL)
    for x in (k, v):
        x.transpose(1, 2)[~REAL] = torch.nan
    torch.testing.assert_close(form(q, k, v, e, e, padding=REAL), out)


def test_sums_over_a_full_length_keep_unit_variance() -> None:
    for kind in ("linear", "convolution"):
        e = Projection(8, 4093, kind=kind)(torch.zeros(1, 4093, 1)).detach()
        assert e.square().sum(-1).mean() == pytest.approx(1, abs=0.2), kind


# ---- refusals


def test_never_causal_and_says_why() -> None:
    said = "linformer cannot be causal: .* a sum over all positions, later ones included"
    with pytest.raises(ValueError, match=said):
        attnlab.build("linformer", dim=12, heads=3, causal=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 18, "max_len": 17}, "k should lie between 1 and max_len=17, got 18"),
        ({"k": 0}, "k should be at least 1, got 0"),
        ({"sharing": "layers"}, "no sharing 'layers'; did you mean 'layerwise'"),
        ({"projection": "max-pool"}, "no projection 'max-pool'; did you mean 'mean-pool'"),
        ({"sharing": "layerwise"}, "make it once, projection=Projection"),
        ({"projection": Projection(3, 5)}, "give it to every layer with sharing='layerwise'"),
        (
            {"projection": Projection(3, 5), "sharing": "layerwise", "max_len": 5},
            "k and max_len are those of the given projection",
        ),
        (
            {"projection": Projection(3, 5, heads=3), "sharing": "layerwise"},
            "one for all heads; this one was made with heads=3",
        ),
        ({"projection": "mean-pool", "sharing": "none"}, "mean-pool has no weights"),
        ({"sharing": "none", "early": True}, "E should be shared by them"),
        ({"form": "tiled"}, "no form 'tiled'"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        linformer(12, 3, **options)
