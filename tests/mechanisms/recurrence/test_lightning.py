"""Lightning attention: the rule in plain steps, its slopes, its limits, MiniMax's layer."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.positions import alibi
from attnlab.mechanisms.recurrence import gated_linear, lightning, mamba2
from attnlab.mechanisms.recurrence.lightning import FORMS, Lightning, LightningOptions
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
PLACES = pytest.mark.parametrize(("layer", "layers"), [(0, 1), (0, 5), (3, 5), (4, 5)])


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 3, n, width).double() for width in (d, d, 5)]


def layer(form: str = "chunked", **more) -> Lightning:
    torch.manual_seed(2)
    options = LightningOptions(chunk=3, layer=1, layers=3)
    return Lightning(12, 3, form=form, options=options, **more).double()


def slopes(heads: int, place: int, layers: int) -> list[float]:
    factor = 1 - place / (layers - 1 + 1e-5) + 1e-5
    return [2 ** (-8 * (head + 1) / heads) * factor for head in range(heads)]


def plain(q: Tensor, k: Tensor, v: Tensor, rates: list[float]) -> Tensor:
    """o_t = Σ_j e^(-s (t - j)) (q_t · k_j) v_j, pair by pair."""
    out = np.zeros(v.shape)
    for row, head, t in np.ndindex(*v.shape[:3]):
        for j in range(t + 1):
            score = sum(a * b for a, b in zip(q[row, head, t], k[row, head, j], strict=True))
            faded = math.exp(-rates[head] * (t - j)) * score.item()
            out[row, head, t] += faded * v[row, head, j].numpy()
    return torch.from_numpy(out)


@EVERY
@PLACES
def test_the_rule_in_plain_steps(form, layer: int, layers: int) -> None:
    given = drawn()
    options = LightningOptions(layer=layer, layers=layers, chunk=4)
    wanted = plain(*given, slopes(3, layer, layers))
    torch.testing.assert_close(form(*given, options=options), wanted)


@pytest.mark.parametrize("size", [1, 2, 5, 13, 64])
def test_chunks_of_any_size(size: int) -> None:
    given = drawn()
    found = lightning.chunked(*given, options=LightningOptions(chunk=size))
    torch.testing.assert_close(found, lightning.naive(*given))


# ---- slopes and limits


def test_the_first_layer_fades_by_the_slopes_of_alibi() -> None:
    q = torch.zeros(1, 8, 5, 4, dtype=torch.float64)
    found = -lightning.log_decays(q, LightningOptions(layers=7))[0, :, 0, 0]
    torch.testing.assert_close(found, alibi.slopes(8).double(), rtol=2e-5, atol=0)


def test_later_layers_fade_less_and_the_last_hardly_at_all() -> None:
    q = torch.zeros(1, 8, 5, 4, dtype=torch.float64)
    rates = torch.stack(
        [
            -lightning.log_decays(q, LightningOptions(layer=i, layers=7))[0, :, 0, 0]
            for i in range(7)
        ]
    )
    assert (rates.diff(dim=0) < 0).all()
    assert (rates > 0).all()
    assert (rates[-1] < 2e-5).all()


@EVERY
def test_the_last_layer_is_nearly_linear_attention_without_a_denominator(form) -> None:
    q, k, v = drawn()
    found = form(q, k, v, options=LightningOptions(layer=99, layers=100))
    torch.testing.assert_close(found, (q @ k.mT).tril() @ v, rtol=1e-3, atol=1e-3)


@EVERY
def test_it_is_gated_linear_attention_and_mamba_2_with_constant_decays(form) -> None:
    q, k, v = drawn()
    found = form(q, k, v)
    rates = torch.tensor(slopes(3, 0, 1)).double()
    logits = torch.logit((-rates).exp())[:, None, None].expand_as(k)
    options = gated_linear.GatedLinearOptions(temperature=1.0)
    torch.testing.assert_close(found, gated_linear.naive(2 * q, k, v, logits, options=options))
    step = torch.full((2, 3, 13), 1.0).double().expm1().log()  # its softplus is 1
    skip = torch.zeros(3).double()
    torch.testing.assert_close(found, mamba2.naive(q, k, v, step, rates.log(), skip))


# ---- Hugging Face's MiniMax


def minimax(place: int, layers: int, **more):
    pytest.importorskip("transformers.models.minimax")
    from transformers.models.minimax.configuration_minimax import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    torch.manual_seed(3)
    config = MiniMaxConfig(
        hidden_size=14, num_attention_heads=3, num_key_value_heads=3, head_dim=6, block_size=16,
        num_hidden_layers=layers, layer_types=["linear_attention"] * layers,
    )  # fmt: skip
    theirs = MiniMaxLightningAttention(config, place).eval()
    mine = Lightning(
        14, 3, options=LightningOptions(layer=place, layers=layers), head_dim=6, **more
    )
    with torch.no_grad():
        theirs.norm.weight.add_(0.3 * torch.randn_like(theirs.norm.weight))
        parts = theirs.qkv_proj.weight.view(3, 3, 6, 14)  # heads, then queries, keys, values
        mine.into.weight.copy_(parts.transpose(0, 1).reshape(54, 14))
        mine.heads.output.gate.weight.copy_(theirs.output_gate.weight)
        mine.heads.output.gain.copy_(theirs.norm.weight)
        mine.heads.output.project.weight.copy_(theirs.out_proj.weight)
    return theirs, mine


@PLACES
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_the_layer_of_minimax(form: str, layer: int, layers: int) -> None:
    """With its weights copied, over several of its blocks, and with padding at the left."""
    theirs, mine = minimax(layer, layers, form=form)
    x = torch.randn(2, 67, 14)
    torch.testing.assert_close(mine(x), theirs(x, None, None)[0], rtol=1e-4, atol=1e-5)
    real = torch.arange(67) >= torch.tensor([[0], [20]])
    wanted = theirs(x, None, real)[0]
    torch.testing.assert_close(mine(x, real)[real], wanted[real], rtol=1e-4, atol=1e-5)


# ---- the layer


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact(form: str) -> None:
    made = layer(form, value_dim=5)
    x = sequence(made)
    found = mixing_matrix(made, x)
    assert found.exact
    q, k, _ = made.taken(x)
    eye = torch.eye(11).double().expand(2, 3, -1, -1)
    torch.testing.assert_close(found.matrix, plain(q.detach(), k.detach(), eye, slopes(3, 1, 3)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = Lightning(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


def test_a_layer_that_the_model_does_not_have() -> None:
    with pytest.raises(ValueError, match="layer=4 should be below layers=4"):
        LightningOptions(layer=4, layers=4)
