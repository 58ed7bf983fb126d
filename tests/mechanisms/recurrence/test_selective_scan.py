"""The selective scan: plain loops, Hugging Face's block, its map, limits of the step, the state."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.probe import record
from attnlab.core.tracing import as_on_an_accelerator
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import selective_scan
from attnlab.mechanisms.recurrence.selective_scan import (
    FORMS,
    SelectiveScan,
    SelectiveScanOptions,
    scan,
)
from tests.mechanisms.recurrence.recurrences import PROMISES, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
RULES = pytest.mark.parametrize("rule", ["euler", "zoh"])


def drawn(n: int = 13, dim: int = 5, r: int = 3, b: int = 2) -> list[Tensor]:
    """x, log A, steps, B, C and D."""
    torch.manual_seed(1)
    shapes = ((b, n, dim), (dim, r), (b, n, dim), (b, n, r), (b, n, r), (dim,))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def layer(form: str = "chunked", **options) -> SelectiveScan:
    torch.manual_seed(2)
    return SelectiveScan(
        7, form=form, options=SelectiveScanOptions(**{"state": 3, **options})
    ).double()


def written(delta: float, A: float, rule: str) -> float:
    """By what B x is multiplied."""
    return delta if rule == "euler" else (math.exp(delta * A) - 1) / A


@RULES
@EVERY
def test_the_recurrence_in_plain_numbers(form, rule: str) -> None:
    x, log_A, steps, B, C, D = given = drawn()
    out = form(*given, options=SelectiveScanOptions(rule=rule))
    for b, c in ((0, 0), (1, 4)):
        h = [0.0] * 3
        for t in range(13):
            delta, y = math.log1p(math.exp(steps[b, t, c])), D[c].item() * x[b, t, c].item()
            for r in range(3):
                A = -math.exp(log_A[c, r])
                new = written(delta, A, rule) * B[b, t, r].item() * x[b, t, c].item()
                h[r] = math.exp(delta * A) * h[r] + new
                y += C[b, t, r].item() * h[r]
            assert out[b, t, c].item() == pytest.approx(y, rel=1e-10)


def test_hugging_faces_block() -> None:
    modeling = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    from transformers import MambaConfig

    torch.manual_seed(3)
    config = MambaConfig(hidden_size=32, state_size=5, conv_kernel=4, expand=2, num_hidden_layers=1)
    theirs, mine = modeling.MambaMixer(config, layer_idx=0).eval(), SelectiveScan(
        32, options=SelectiveScanOptions(state=5)
    )  # fmt: skip
    pairs = {
        mine.into.weight: theirs.in_proj.weight,
        mine.taps: theirs.conv1d.weight[:, 0].flip(1),  # torch correlates
        mine.bias: theirs.conv1d.bias,
        mine.select.weight: theirs.x_proj.weight,
        mine.steps.weight: theirs.dt_proj.weight,
        mine.steps.bias: theirs.dt_proj.bias,
        mine.log_A: theirs.A_log,
        mine.skip: theirs.D,
        mine.heads.output.weight: theirs.out_proj.weight,
    }
    with torch.no_grad():
        for ours, own in pairs.items():
            ours.copy_(own)
    x = torch.randn(2, 23, 32)
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-4, atol=1e-5)


# ---- the scan by chunks


@pytest.mark.parametrize("span", [1, 40, 1000, 1 << 18])
@pytest.mark.parametrize("together", [1, 64, 1 << 12])
@pytest.mark.parametrize("n", [1, 2, 7, 16, 67])
def test_any_length_by_any_span(
    n: int, together: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "SPAN", span)
    monkeypatch.setattr(scan, "TOGETHER", together)
    given = [x.requires_grad_() for x in drawn(n)]
    outs = [form(*given) for form in FORMS.values()]
    torch.testing.assert_close(outs[1], outs[0])
    grads = [torch.autograd.grad(out.square().sum(), given) for out in outs]
    for mine, theirs in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(mine, theirs)


def test_the_backward_pass_keeps_no_state_of_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a span alone: its bytes are what a long sequence needs beside its inputs."""
    monkeypatch.setattr(scan, "SPAN", 1 << 12)
    given = [x.requires_grad_() for x in drawn(512, dim=8, r=16, b=1)]

    def peak(form) -> int:
        return count(lambda: torch.autograd.grad(form(*given).sum(), given)).peak_bytes

    assert 2 * peak(selective_scan.chunked) < peak(selective_scan.naive)


def test_second_derivatives_are_refused() -> None:
    given = [x.requires_grad_() for x in drawn()]
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(selective_scan.chunked(*given).sum(), given, create_graph=True)


# ---- identities


@RULES
@EVERY
def test_constant_coefficients_are_the_kernel_of_a_real_state_space(form, rule: str) -> None:
    x, log_A, steps, B, C, D = drawn(n=11)
    steps, B, C = (each[:1, :1].expand(2, 11, -1) for each in (steps, B, C))
    out = form(x, log_A, steps, B, C, D, options=SelectiveScanOptions(rule=rule))
    A, delta = -log_A.exp(), F.softplus(steps[0, 0])[:, None]
    drive = delta if rule == "euler" else ((delta * A).exp() - 1) / A
    wanted = D * x
    for k in range(11):
        K = (C[0, 0] * drive * B[0, 0] * (delta * A * k).exp()).sum(dim=1)
        wanted = wanted + K * F.pad(x, (0, 0, k, 0))[:, :11]
    torch.testing.assert_close(out, wanted)


@EVERY
def test_one_state_is_a_gated_running_mean_by_the_printed_rule_only(form) -> None:
    """Theorem 1: N = 1, A = -1, B = C = 1 give h = (1 - g) h + g x with g = sigmoid(s)."""
    x, _, s, B, _, D = drawn(r=1)
    ones, g = torch.ones_like(B), s.sigmoid()
    given = (x, torch.zeros(5, 1).double(), s, ones, ones, torch.zeros_like(D))
    for rule, enters in (("zoh", g), ("euler", F.softplus(s))):
        h, wanted = torch.zeros(2, 5).double(), []
        for t in range(13):
            h = (1 - g[:, t]) * h + enters[:, t] * x[:, t]
            wanted.append(h)
        out = form(*given, options=SelectiveScanOptions(rule=rule))
        torch.testing.assert_close(out, torch.stack(wanted, dim=1))


@EVERY
def test_a_step_of_zero_keeps_the_state_and_a_large_one_replaces_it(form) -> None:
    x, log_A, steps, B, C, D = drawn()
    held = steps.clone()
    held[:, 6:9] = -800
    with record() as notes:
        form(x[:, :9], log_A, held[:, :9], B[:, :9], C[:, :9], D)
        form(x[:, :6], log_A, held[:, :6], B[:, :6], C[:, :6], D)
    torch.testing.assert_close(*notes["state"])
    steps[:, -1] = 1e4
    with record() as notes:
        form(x, log_A, steps, B, C, D, options=SelectiveScanOptions(rule="zoh"))
    wanted = B[:, -1, None] * x[:, -1, :, None] / log_A.exp()
    torch.testing.assert_close(notes["state"][0], wanted)


@RULES
@torch.no_grad()
def test_the_mixing_matrix_is_the_hidden_attention(rule: str) -> None:
    made = layer(rule=rule)
    x = sequence(made)
    with record() as notes:
        found = mixing_matrix(made, x)
    assert found.exact
    assert found.matrix.shape == (2, 14, 11, 11)
    inputs = made.into(x).chunk(2, dim=-1)[0]
    _, log_A, steps, B, C = made._selected(inputs, None)
    torch.testing.assert_close(notes["steps"][0], steps)
    delta = F.softplus(steps)
    for b, c, i, j in ((0, 0, 4, 4), (1, 13, 10, 0), (0, 7, 6, 2), (1, 2, 3, 5)):
        wanted = made.skip[c].item() * (i == j)
        for r in range(3):
            A = -math.exp(log_A[c, r])
            decay = math.exp(A * delta[b, j + 1 : i + 1, c].sum())
            new = written(delta[b, j, c].item(), A, rule) * B[b, j, r].item()
            wanted += C[b, i, r].item() * decay * new if j <= i else 0
        assert found.matrix[b, c, i, j].item() == pytest.approx(wanted, rel=1e-9, abs=1e-14)


# ---- the layer


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form=form))


def test_parameters_of_mamba_130m() -> None:
    """A block of width 768, and 24 of them with their norms and the tied embedding."""
    with torch.device("meta"):
        block = sum(x.numel() for x in SelectiveScan(768).parameters())
    assert block == 3_770_880
    assert 24 * (block + 768) + 768 + 50_280 * 768 == 129_135_360


def test_steps_begin_between_a_thousandth_and_a_tenth() -> None:
    made = SelectiveScan(64)
    begin = F.softplus(made.steps.bias)
    assert 0.001 <= begin.min() < 0.003
    assert 0.04 < begin.max() <= 0.1001
    assert made.log_A[3].exp().tolist() == pytest.approx(range(1, 17))


def test_complex_numbers_and_other_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="the dtype is complex, not a float"):
        layer()(torch.randn(2, 7, 7) * 1j)
    with pytest.raises(ValueError, match="width 6, but this layer was built with dim=7"):
        layer()(torch.randn(1, 3, 6).double())
    with pytest.raises(ValueError, match="state should be at least 1, got 0"):
        SelectiveScanOptions(state=0)


def test_launches_grow_like_the_root_of_n_where_chunks_fit_in_the_caches() -> None:
    """On an accelerator, in both passes: each time four times the tokens, twice the steps."""

    def run(n: int) -> int:
        made = layer().float().to("meta")
        x = torch.randn(1, n, 7, device="meta", requires_grad=True)
        with as_on_an_accelerator():
            return count(made, x, backward=True).operations

    few, many, most = (run(n) for n in (8**2, 16**2, 32**2))
    assert 1.8 * (many - few) <= most - many <= 2.2 * (many - few)
