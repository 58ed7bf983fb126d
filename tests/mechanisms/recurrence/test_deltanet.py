"""DeltaNet: the rule in plain steps, erasing and writing, dictionary and reflections, the state."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.probe import record
from attnlab.lens.mixing import mixing_matrix
from attnlab.measure.count import count
from attnlab.mechanisms.recurrence import deltanet
from attnlab.mechanisms.recurrence.deltanet import FORMS, DeltaNet, DeltaNetOptions
from tests.mechanisms.recurrence.delta_rules import close, orthonormal, plain_rule, units
from tests.mechanisms.recurrence.recurrences import WITH_MAPS, sequence

EVERY = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
ALWAYS, NEVER = 1000.0, -1000.0  # steps whose sigmoids are 1 and 0


def drawn(n: int = 13, d: int = 4) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, 3, n, w).double() for w in (d, d, 5)] + [torch.randn(2, 3, n).double()]


def layer(form: str = "chunked", negative: bool = False, **more) -> DeltaNet:
    torch.manual_seed(2)
    options = DeltaNetOptions(chunk=3, negative=negative)
    return DeltaNet(12, 3, form=form, options=options, **more).double()


@EVERY
@pytest.mark.parametrize("negative", [False, True])
def test_the_rule_in_plain_steps(form, negative: bool) -> None:
    q, k, v, step = drawn()
    wanted = plain_rule(units(q) / 2, units(k), v, torch.sigmoid(step) * (1 + negative))
    found = form(q, k, v, step, options=DeltaNetOptions(chunk=4, negative=negative))
    torch.testing.assert_close(found, wanted)


@EVERY
def test_what_was_written_by_a_whole_step_is_read_back(form) -> None:
    """b = 1: k_t S_t = v_t."""
    _, k, v, step = drawn()
    close(form(k, k, v, step + ALWAYS) * 2, v)


@EVERY
def test_without_steps_nothing_is_written(form) -> None:
    q, k, v, step = drawn()
    assert (form(q, k, v, step + NEVER) == 0).all()


@EVERY
def test_orthonormal_keys_are_a_dictionary_with_overwriting(form) -> None:
    """Each query gets the last value of its key, and zeros for a key that has none yet."""
    keys, (_, _, v, step) = orthonormal(11, 4), drawn(11)
    wanted_of = torch.tensor([3, 0, 2, 1, 0, 3, 3, 2, 1, 0, 2])  # the key for which each token asks
    q = orthonormal(4, 4)[:, :, wanted_of]
    out = form(q, keys, v, step + ALWAYS) * 2
    for t, key in enumerate(wanted_of.tolist()):
        written = [i for i in range(t + 1) if i % 4 == key]
        close(out[:, :, t], v[:, :, written[-1]] if written else torch.zeros_like(v[:, :, 0]))


@EVERY
def test_as_many_orthonormal_keys_as_the_width_are_linear_attention(form) -> None:
    q, _, v, step = drawn(4)
    k = orthonormal(4, 4)
    close(form(q, k, v, step + ALWAYS), ((units(q) / 2) @ k.mT).tril() @ v)


def test_one_step_is_a_step_of_gradient_descent() -> None:
    """Of size b, on half the squared difference between what the key reads and the value."""
    _, k, v, step = drawn(1)
    S = torch.randn(2, 3, 4, 5).double().requires_grad_()
    loss = (units(k) @ S - v).square().sum() / 2
    (grad,) = torch.autograd.grad(loss, S)
    _, after = deltanet.advance(k, k, v, step, S, DeltaNetOptions())
    torch.testing.assert_close(after, S - torch.sigmoid(step)[..., None] * grad)


@pytest.mark.parametrize(("step", "negative", "along"), [(0.0, False, 0.5), (ALWAYS, False, 0.0),
                                                         (ALWAYS, True, -1.0)])  # fmt: skip
def test_eigenvalues_of_a_transition(step: float, negative: bool, along: float) -> None:
    """1 - b along the key, and 1 across it."""
    k = torch.randn(1, 1, 1, 4, generator=torch.Generator().manual_seed(3)).double()
    eye, nothing = torch.eye(4).double()[None, None], torch.zeros(1, 1, 1, 4).double()
    options = DeltaNetOptions(negative=negative)
    _, A = deltanet.advance(k, k, nothing, torch.full((1, 1, 1), step).double(), eye, options)
    close(torch.linalg.eigvalsh(A)[0, 0], torch.tensor([along, 1, 1, 1]).double())


def test_reflections_count_modulo_two() -> None:
    """b = 2 on one key turns the sign of what it holds: the parity of the tokens that do so."""
    bits = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])  # the first token writes, then some turn
    k = torch.zeros(1, 1, 9, 2).double() + torch.tensor([1.0, 0.0])
    v = torch.zeros(1, 1, 9, 1).double()
    v[:, :, 0] = 1
    step = torch.cat((torch.zeros(1), torch.where(bits > 0, ALWAYS, NEVER)))  # b = 1, then 2 or 0
    options = DeltaNetOptions(negative=True, chunk=3)
    for form in FORMS.values():
        out = form(k, k, v, step.double()[None, None], options=options)[0, 0, 1:, 0]
        close(out * 2**0.5, 1 - 2.0 * (bits.cumsum(0) % 2).double())


def test_length_of_keys_is_taken_away() -> None:
    """Keys and queries of any length give the same, so that no state explodes."""
    q, k, v, step = drawn(61)
    options = DeltaNetOptions(negative=True)
    found = deltanet.chunked(q * 1e3, k * 1e3, v, step, options=options)
    close(found, deltanet.chunked(q * 10, k * 10, v, step, options=options))
    raw = plain_rule(q, k * 3, v, torch.sigmoid(step) * 2)  # b ‖k‖² > 2
    assert raw.abs().max() > 1e9 > 10 * found.abs().max()


@pytest.mark.parametrize("form", FORMS)
def test_the_mixing_matrix_is_exact_and_signed(form: str) -> None:
    made = layer(form)
    found = mixing_matrix(made, sequence(made))
    assert found.exact
    with record() as notes:
        layer("matrix")(sequence(made))
    torch.testing.assert_close(found.matrix, notes["weights"][0])
    assert (found.matrix < 0).any()


def test_the_layer_in_plain_steps() -> None:
    made = layer(head_dim=2, value_dim=5)
    x = sequence(made)
    with torch.no_grad():
        made.heads.output.gain.uniform_(0.5, 2)
    inputs = F.pad(x @ made.into.weight.mT, (0, 0, 3, 0))
    mixed = F.silu(sum(inputs[:, 3 - i : 14 - i] * made.taps[:, i] for i in range(4)))
    q, k, v = (
        part.unflatten(-1, (3, -1)).transpose(1, 2) for part in mixed.split([6, 6, 15], dim=-1)
    )
    step = (x @ made.steps.weight.mT).mT
    out = plain_rule(
        *(part.detach() for part in (units(q) / 2**0.5, units(k), v, torch.sigmoid(step)))
    )
    normed = out / (out.square().mean(-1, keepdim=True) + 1e-6).sqrt() * made.heads.output.gain
    wanted = normed.transpose(1, 2).flatten(2) @ made.heads.output.project.weight.mT
    torch.testing.assert_close(made(x), wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("promise", WITH_MAPS, ids=lambda one: one.__name__)
def test_promises_of_a_recurrence(promise, form: str) -> None:
    promise(layer(form))


def test_launches_grow_slowly() -> None:
    """16 times the tokens, in both passes, take less than twice as many calls that are no views."""
    made = DeltaNet(12, 3)
    few, many = (count(made, torch.randn(1, n, 12), backward=True).operations for n in (256, 4096))
    assert many < 2 * few


def test_heads_that_do_not_divide() -> None:
    with pytest.raises(
        ValueError, match="choose heads among the divisors of dim, or give head_dim"
    ):
        DeltaNet(12, 5)
    assert DeltaNet(12, 5, head_dim=3)(torch.randn(1, 4, 12)).shape == (1, 4, 12)
