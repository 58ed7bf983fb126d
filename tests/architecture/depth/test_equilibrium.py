"""Equilibrium: where the solver ends, and the gradient that it does not keep."""

from contextlib import suppress
from itertools import pairwise

import pytest
import scipy.optimize
import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.architecture.depth import equilibrium
from attnlab.architecture.depth.equilibrium import added, implicit, naive
from attnlab.core.branches import Branch
from attnlab.core.charges import charge, charged
from attnlab.core.fixed_point import NoFixedPointError, NotExactWarning, SolverOptions, anderson
from attnlab.core.probe import record
from attnlab.measure.count import count
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.copying import Copying
from attnlab.testing.architecture import deep
from attnlab.train import fit

EXACT = SolverOptions(tolerance=1e-13, most_steps=1000)
VOCAB, N = 11, 7


def model(**options: object) -> TinyTransformer:
    torch.manual_seed(1)
    given = {"vocab": VOCAB, "dim": 12, "heads": 2, "layers": 1, "hidden": 17, "max_len": N}
    solver = {"tolerance": 1e-12, "most_steps": 1000}
    return TinyTransformer(**given, depth="equilibrium", depth_options=solver, **options).double()


TOKENS = torch.randint(VOCAB, (3, N), generator=torch.Generator().manual_seed(0))


def step(x: Tensor, layers: list[nn.Module]):
    x = nn.functional.layer_norm(x, x.shape[-1:])
    return x, lambda z: x + added(z, layers)


def test_the_layers_leave_it_as_it_is() -> None:
    x, layers = deep(2)
    out = implicit(x, layers, EXACT)
    injected, f = step(x, layers)
    torch.testing.assert_close(f(out), out)
    once = f(injected)
    assert not torch.allclose(once, out, rtol=1e-4)


def test_it_is_many_layers_of_the_same_weights() -> None:
    """One after the other, each given x again."""
    x, layers = deep(2)
    found, f = step(x, layers)
    errors = []
    for _ in range(60):
        found = f(found)
        errors.append((found - implicit(x, layers, EXACT)).norm().item())
    assert errors[1] > 1e-3
    assert errors[-1] < 1e-10


def test_where_the_search_begins_does_not_matter() -> None:
    x, layers = deep(2)
    _, f = step(x, layers)
    with torch.no_grad():
        torch.manual_seed(5)
        ends = [anderson(f, start, EXACT) for start in (x, 0 * x, 10 * torch.randn_like(x))]
    torch.testing.assert_close(ends[1], ends[0])
    torch.testing.assert_close(ends[2], ends[0])


def test_it_finds_what_scipy_finds() -> None:
    x, layers = deep(3)
    with torch.no_grad():
        _, f = step(x, layers)
        mine = anderson(f, x, EXACT)
        residual = lambda z: (f(torch.from_numpy(z)) - torch.from_numpy(z)).numpy()  # noqa: E731
        theirs = scipy.optimize.anderson(residual, x.detach().numpy(), f_tol=1e-10)
    torch.testing.assert_close(mine, torch.from_numpy(theirs), rtol=1e-6, atol=1e-8)


def test_anderson_takes_fewer_steps_where_plain_steps_are_slow() -> None:
    torch.manual_seed(6)
    turned = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64))[0]
    slow = turned @ torch.diag(torch.linspace(0.1, 0.97, 12, dtype=torch.float64)) @ turned.T
    b = torch.randn(2, 3, 12, dtype=torch.float64)
    counts = []
    for solve in (anderson, equilibrium.iterated):
        seen: list[Tensor] = []

        def f(z: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(z)
            return z @ slow + b

        solve(f, b, SolverOptions(tolerance=1e-6, most_steps=1000, window=5))
        counts.append(len(seen))
    assert 2 * counts[0] < counts[1]


def test_gradients_are_those_of_finite_differences() -> None:
    x, layers = deep(2)
    x = x.detach()[:1, :2].requires_grad_()
    matrices = [m for layer in layers for m in layer.matrices]
    assert torch.autograd.gradcheck(
        lambda x, *_: implicit(x, layers, EXACT), (x, *matrices), fast_mode=True
    )


def test_the_gradient_of_the_last_step_alone_is_another() -> None:
    x, layers = deep(2)
    parameters = [m for layer in layers for m in layer.matrices]
    out = implicit(x, layers, EXACT)
    direction = torch.randn_like(out)
    whole = torch.autograd.grad(out, parameters, direction)
    _, f = step(x, layers)
    last = torch.autograd.grad(f(out.detach()), parameters, direction)
    unrolled = torch.autograd.grad(naive(x, layers, EXACT), parameters, direction)
    for mine, wrong, right in zip(whole, last, unrolled, strict=True):
        torch.testing.assert_close(mine, right)
        assert (wrong - right).norm() > 0.05 * right.norm()


def test_tokens_are_not_told_of_later_ones() -> None:
    ours = model().eval()
    changed = TOKENS.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % VOCAB
    with torch.no_grad():
        torch.testing.assert_close(ours(changed)[:, :4], ours(TOKENS)[:, :4])
        assert not torch.allclose(ours(changed)[:, 4:], ours(TOKENS)[:, 4:])


def test_decoding_gives_what_the_whole_text_gives() -> None:
    ours, state = model().eval(), None
    with torch.no_grad():
        whole = ours(TOKENS)
        for i in range(N):
            out, state = ours.step(TOKENS[:, i : i + 1], state)
            torch.testing.assert_close(out, whole[:, i])


def test_a_solve_has_one_dropout_mask_and_the_next_has_another() -> None:
    ours = model(dropout=0.3).train()
    torch.manual_seed(2)
    first, second = ours(TOKENS), ours(TOKENS)  # another mask in each step would not converge
    assert not torch.allclose(first, second)
    torch.manual_seed(2)
    again = ours(TOKENS)
    torch.testing.assert_close(again, first)
    grads = []
    for disturbed in (False, True):
        torch.manual_seed(2)
        out = ours(TOKENS)
        torch.manual_seed(9 if disturbed else 2)  # what comes between does not matter
        grads.append(torch.autograd.grad(out.square().sum(), list(ours.parameters())))
    torch.testing.assert_close(grads[0], grads[1])


def test_every_step_is_noted() -> None:
    ours = model().eval()
    with record() as notes, torch.no_grad():
        ours(TOKENS)
    steps = notes["states"]
    assert len(steps) > 3
    assert all(each.shape == (3, N, 12) for each in steps)
    moved = [(b - a).norm() for a, b in pairwise(steps)]
    assert moved[-1] < 1e-8 < moved[0]


class Turns(nn.Module):
    """z → −2 z: nothing contracts. Or all becomes NaN."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(factor, dtype=torch.float64))

    @property
    def branches(self) -> tuple[Branch, ...]:
        return (Branch(lambda z: torch.sin(self.weight * z), (self.weight,)),)


def test_without_a_fixed_point_the_residual_is_said_and_no_gradient_is_given() -> None:
    x, _ = deep(1)
    few = SolverOptions(most_steps=8, window=1)
    with pytest.raises(NoFixedPointError, match=r"after 8 steps the relative residual is [0-9.]+"):
        implicit(x, [Turns(30.0)], few)
    with pytest.raises(NoFixedPointError, match="residual is nan"):
        implicit(x, [Turns(float("nan"))], SolverOptions(most_steps=8, inexact=True))
    with pytest.warns(NotExactWarning, match="The gradient is not exact"):
        out = implicit(x, [Turns(30.0)], SolverOptions(most_steps=8, window=1, inexact=True))
    assert out.isfinite().all()


@pytest.mark.parametrize("tolerance", [0, 1, -0.1])
def test_tolerances_that_mean_nothing_are_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance should be between 0 and 1"):
        catalog.build("equilibrium", tolerance=tolerance)


def test_a_join_that_normalises_the_sum_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a join that only adds"):
        model(join="post_norm")


def test_what_layers_charge_is_refused() -> None:
    """It would have no gradient: the layers run without one."""
    x, layers = deep(1)
    branch = layers[0].branches[0]

    class Charging(nn.Module):
        branches = (Branch(lambda z: charge("c", z.sum()) or branch.run(z), branch.parameters),)

    with charged(), pytest.raises(ValueError, match="has no gradient here"):
        implicit(x, [Charging()])


@pytest.mark.parametrize(("n", "dim"), [(256, 64), (512, 48)])
def test_the_most_memory_is_near_that_of_one_plain_layer(n: int, dim: int) -> None:
    """Both passes, counted, whatever the number of steps: the solver holds a few streams beside."""
    tokens, peaks = torch.arange(n)[None] % 32, {}
    for depth, tolerance in (("plain", None), ("equilibrium", 1e-3), ("equilibrium", 1e-6)):
        torch.manual_seed(0)
        given = {"depth_options": {"tolerance": tolerance}} if tolerance else {}
        one = TinyTransformer(
            vocab=32, dim=dim, heads=4, layers=1, max_len=n, positions="none", depth=depth, **given
        )
        peaks[depth, tolerance] = count(one, tokens, backward=True).peak_bytes
    plain, few, many = peaks.values()
    assert few < 1.3 * plain
    assert many < 1.01 * few


def test_the_backward_pass_leaves_parameters_as_they_were() -> None:
    """Those that learn nothing, too; while it looks for y none of them takes a gradient."""
    ours = model()
    frozen = ours.decoder.blocks[0].feed_forward.expand.weight.requires_grad_(False)
    takes = {name: each.requires_grad for name, each in ours.named_parameters()}
    ours(TOKENS).square().sum().backward()
    assert takes == {name: each.requires_grad for name, each in ours.named_parameters()}
    assert frozen.grad is None
    assert all(each.grad is not None for each in ours.parameters() if each.requires_grad)


def test_a_second_derivative_is_refused() -> None:
    x, layers = deep(1)
    for way in (catalog.build("equilibrium"), catalog.build("reversible")):
        with pytest.raises(RuntimeError, match="has first derivatives only"):
            torch.autograd.grad(way(x, layers).sum(), x, create_graph=True)


# ---- the penalty


def whole_jacobian(z: Tensor, layers: list[nn.Module]) -> Tensor:
    found = torch.autograd.functional.jacobian(lambda z: added(z, layers), z, create_graph=True)
    return found.reshape(z.numel(), z.numel())


def test_the_penalty_is_the_mean_square_of_the_rows_of_the_jacobian_in_the_mean() -> None:
    """Exactly so over noise whose rows are orthogonal; its gradients too."""
    x, layers = deep(2)
    x = x.detach()[:2, :3]
    matrices = [m for layer in layers for m in layer.matrices]
    exact = whole_jacobian(x, layers).square().sum() / x.numel()
    every = torch.linalg.qr(torch.randn(x.numel(), x.numel(), dtype=x.dtype))[0]
    found = sum(equilibrium.jacobian(x, layers, row.view_as(x)) for row in every)
    torch.testing.assert_close(found, exact)
    wanted, mine = (torch.autograd.grad(each, matrices) for each in (exact, found))
    torch.testing.assert_close(mine, wanted)


def test_the_penalty_is_charged_while_training_alone_and_once() -> None:
    ours = model(dropout=0.3)
    ours.decoder.depth.options = equilibrium.EquilibriumOptions(
        tolerance=1e-12, most_steps=1000, penalty=2.0
    )
    for training, times in ((True, 1), (False, 0)):
        ours.train(training)
        with charged() as charges:
            ours(TOKENS).sum().backward()
        assert [name for name, _ in charges.items] == ["jacobian"] * times
    ours.train()
    with charged() as charges, torch.no_grad():
        ours(TOKENS)
    assert not charges.items


def test_the_penalty_has_the_dropout_mask_of_the_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then z − g(z) is what was injected."""
    x, layers = deep(1)
    branch, seen = layers[0].branches[0], []

    class Dropped(nn.Module):
        branches = (Branch(lambda z: nn.functional.dropout(branch.run(z), 0.3), branch.parameters),)

    def spied(z: Tensor, layers: list[nn.Module], noise: Tensor) -> Tensor:
        seen.append(z - added(z, layers))
        return z.sum()

    monkeypatch.setattr(equilibrium, "jacobian", spied)
    way = catalog.build("equilibrium", tolerance=1e-12, most_steps=1000, penalty=1.0).train()
    way(x, [Dropped()])
    torch.testing.assert_close(seen[0], nn.functional.layer_norm(x, x.shape[-1:]))


def trained(penalty: float, steps: int, seed: int) -> int:
    """How many steps a training with a high learning rate takes before a text has no fixed point;
    ``steps`` if it does not happen."""
    task, taken = Copying(8, 8), []
    torch.manual_seed(seed)
    ours = TinyTransformer(
        **task.model_options(), dim=32, heads=2, layers=1, hidden=64, depth="equilibrium",
        depth_options={"penalty": penalty},
    )  # fmt: skip
    with suppress(NoFixedPointError):
        fit(ours, task, steps, learning_rate=1e-2, batch_size=16, progress=False, device="cpu",
            seed=seed, callbacks=[lambda state: taken.append(state.step)])  # fmt: skip
    return len(taken)


def test_training_that_stops_goes_on_with_the_penalty() -> None:
    """Which trainings stop depends on the last digits, and so on the processor: the first one that
    does is compared. It is no promise: see the page."""
    stops = ((seed, taken) for seed in range(20) if (taken := trained(0.0, 60, seed)) < 60)
    seed, without = next(stops)
    assert trained(10.0, 60, seed) > without


def test_a_penalty_on_what_has_no_second_derivative_is_refused() -> None:
    ours = model(attention="entmax", attention_options={"form": "implicit"})
    ours.decoder.depth.options = equilibrium.EquilibriumOptions(penalty=1.0, tolerance=1e-6)
    with pytest.raises(ValueError, match="penalty needs layers that can be differentiated twice"):
        ours(TOKENS)


def test_a_penalty_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="penalty should be at least 0, got -1"):
        catalog.build("equilibrium", penalty=-1)
