"""Universal Transformer: the signal of position and step, and when each token halts."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.architecture.depth import universal
from attnlab.architecture.depth.universal import Universal, naive, signal, until_halted
from attnlab.core.charges import charged
from attnlab.core.depth import loop
from attnlab.core.probe import record
from attnlab.models.counts import count
from attnlab.models.tiny import TinyTransformer

B, N, DIM, STEPS = 2, 7, 6, 5


class Step(nn.Module):
    """A layer that mixes positions and says how often it was called."""

    def __init__(self, padding: Tensor | None = None, start: int | Tensor = 0) -> None:
        super().__init__()
        self.matrix = nn.Parameter(0.4 * torch.randn(DIM, DIM, dtype=torch.float64))
        self.padding, self.start, self.calls = padding, start, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + torch.tanh(x @ self.matrix) + 0.1 * x.cumsum(1)


def repeated(padding: Tensor | None = None, start: int | Tensor = 0) -> tuple[Tensor, list[Any]]:
    torch.manual_seed(4)
    layer = Step(padding, start)
    return torch.randn(B, N, DIM, dtype=torch.float64), [layer] * STEPS


def of_place(place: int, j: int) -> float:
    angle = place * 10000 ** (-(j - j % 2) / DIM)
    return math.cos(angle) if j % 2 else math.sin(angle)


def test_the_signal_is_that_of_position_and_step() -> None:
    x, layers = repeated()
    told = signal(x, layers)
    for step in range(STEPS):
        for i in range(N):
            for j in range(DIM):
                expected = of_place(i, j) + of_place(step + 1, j)
                assert told[step, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_positions_count_real_tokens_and_go_on_in_decoding() -> None:
    x, layers = repeated(padding=torch.arange(N) >= torch.tensor([[0], [3]]))
    told = signal(x, layers)
    assert told.shape == (STEPS, B, N, DIM)
    torch.testing.assert_close(told[:, 1, 3:], told[:, 0, : N - 3])
    x, later = repeated(start=torch.tensor([4, 2]))
    torch.testing.assert_close(signal(x, later)[:, 0, :3], told[:, 0, 4:])
    torch.testing.assert_close(signal(x, later)[:, 1, :3], told[:, 0, 2:5])


def test_without_the_signal_it_is_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x, layers = repeated()
    assert not torch.allclose(naive(x, layers), loop(x, layers))
    monkeypatch.setattr(universal, "signal", lambda x, layers: x.new_zeros(STEPS, 1, 1))
    assert torch.equal(naive(x, layers), loop(x, layers))


# ---- halting


def probability(x: Tensor) -> Tensor:
    return (1.2 * x[..., 0] - 1.5).sigmoid()


def token_by_token(
    x: Tensor, layers: list[Any], epsilon: float, *, listing: bool
) -> tuple[Tensor, list[list[int]], list[list[float]]]:
    """The definition, in plain numbers: first all states, then each token alone."""
    states, hs = [], []
    for told, layer in zip(signal(x, layers), layers, strict=True):
        hs.append(probability(x + told))
        x = layer(x + told)
        states.append(x)
    results, steps, remainders = torch.zeros_like(x), [], []
    for b in range(x.shape[0]):
        steps.append([0] * N)
        remainders.append([0.0] * N)
        for i in range(N):
            total, weights = 0.0, []
            for t in range(STEPS):
                h = hs[t][b, i].item()
                if total + h > 1 - epsilon or (t == STEPS - 1 and not listing):
                    weights.append(1 - total)
                    remainders[b][i] = 1 - total
                    break
                weights.append(h)
                total += h
            steps[b][i] = len(weights)
            for t, w in enumerate(weights):
                kept = (1 - w) if listing else 1
                results[b, i] = w * states[t][b, i] + kept * results[b, i]
    return results, steps, remainders


@pytest.mark.parametrize("listing", [False, True])
@pytest.mark.parametrize("epsilon", [0.01, 0.3])
def test_halting_is_as_defined(epsilon: float, listing: bool) -> None:
    x, layers = repeated()
    expected, steps, remainders = token_by_token(x, layers, epsilon, listing=listing)
    found = until_halted(x, layers, probability, epsilon=epsilon, listing=listing)
    assert len({step for row in steps for step in row}) > 2
    assert found.steps.tolist() == steps
    assert (min(min(row) for row in remainders) == 0) == listing  # some never halt
    torch.testing.assert_close(found.remainders, torch.tensor(remainders, dtype=torch.float64))
    torch.testing.assert_close(found.results, expected)


def test_the_weights_of_a_token_sum_to_one_but_not_those_of_the_listing() -> None:
    x, _ = repeated()
    ones = torch.ones_like(x)

    class One(Step):
        def forward(self, x: Tensor) -> Tensor:
            return ones

    same = [One()] * STEPS
    for p in (0.05, 0.3, 0.6, 0.999):
        h = torch.full_like(x[..., 0], p)
        torch.testing.assert_close(until_halted(x, same, lambda _, h=h: h).results, ones)
        listed = until_halted(x, same, lambda _, h=h: h, listing=True).results
        assert (listed < 1).all() or p == 0.999


def test_limits_of_halting_are_one_step_and_the_whole_loop() -> None:
    x, layers = repeated()
    for p, steps in ((0.9999, 1), (1e-9, STEPS)):
        found = until_halted(x, layers, lambda x, p=p: torch.full_like(x[..., 0], p))
        assert (found.steps == steps).all()
        told = signal(x, layers)
        expected = x
        for step in range(steps):
            expected = layers[step](expected + told[step])
        torch.testing.assert_close(found.results, expected)


def test_all_steps_end_when_every_token_has_halted() -> None:
    x, layers = repeated()
    until_halted(x, layers, lambda x: torch.full_like(x[..., 0], 0.6))
    assert layers[0].calls == 2
    until_halted(x, layers, lambda x: torch.full_like(x[..., 0], 0.6), to_the_end=True)
    assert layers[0].calls == 2 + STEPS


def test_padding_takes_no_step_and_costs_nothing() -> None:
    padding = torch.arange(N) < torch.tensor([[N], [3]])
    x, layers = repeated(padding)
    way = Universal(DIM, STEPS, act=True, ponder=0.5).double().train()
    prices = []
    for _ in range(2):
        with charged() as charges, record() as notes:
            way(x, layers)
        steps = notes.last("halted")
        assert (steps[~padding] == 0).all()
        assert (steps[padding] > 0).all()
        assert [name for name, _ in charges.items] == ["ponder"]
        prices.append(charges.total())
        x = x.masked_fill(~padding[..., None], 100.0)
    assert prices[0] is not None
    torch.testing.assert_close(prices[0], prices[1])
    found = until_halted(x, layers, way._probability)
    spent = [(n + r).item() for n, r in zip(found.steps[padding], found.remainders[padding])]  # noqa: B905
    assert prices[0].item() == pytest.approx(0.5 * sum(spent) / len(spent))
    with charged() as charges:
        way.eval()(x, layers)
    assert charges.total() is None


def test_the_price_pulls_towards_fewer_steps() -> None:
    x, layers = repeated()
    way = Universal(DIM, STEPS, act=True, ponder=1.0).double()
    with charged() as charges:
        way(x, layers)
    total = charges.total()
    assert total is not None
    total.backward()
    assert way.unit is not None
    assert way.unit.bias.grad.item() < 0  # type: ignore[union-attr]


def test_what_is_noted_is_the_step_and_the_states() -> None:
    x, layers = repeated()
    with record() as notes:
        Universal(DIM, STEPS).double()(x, layers)
    assert [state.shape for state in notes["states"]] == [x.shape] * STEPS
    assert "halted" not in notes
    with record() as notes:
        Universal(DIM, STEPS, act=True).double()(x, layers)
    assert notes.last("halted").shape == (B, N)
    assert notes.last("halted").dtype == torch.int64
    assert len(notes["states"]) == notes.last("halted").max()


# ---- in a model


def model(**changes: Any) -> TinyTransformer:
    torch.manual_seed(1)
    options: dict[str, Any] = {
        "vocab": 11, "dim": 12, "heads": 3, "layers": 4, "max_len": N, "positions": "none",
        "depth": "universal",
    }  # fmt: skip
    return TinyTransformer(**{**options, **changes}).double().eval()


TOKENS = torch.randint(11, (B, N), generator=torch.Generator().manual_seed(0))
ACT = {"act": True, "epsilon": 0.2}


@pytest.mark.parametrize("options", [{}, ACT, {**ACT, "listing": True}], ids=str)
@pytest.mark.parametrize("kind", ["language_model", "encoder_decoder"])
def test_decoding_gives_what_the_whole_sequence_gives(options: dict[str, Any], kind: str) -> None:
    ours, state, parts = model(depth_options=options, kind=kind), None, []
    source: dict[str, Any] = {"source": TOKENS} if kind == "encoder_decoder" else {}
    with torch.no_grad():
        given = {"memory": ours.encode(TOKENS)} if source else {}
        for t in range(N):
            logits, state = ours.step(TOKENS[:, t : t + 1], state, **given)
            parts.append(logits)
        torch.testing.assert_close(torch.stack(parts, 1), ours(TOKENS, **source))


def test_padding_changes_nothing_for_real_tokens() -> None:
    ours = model(depth_options=ACT, kind="token_classifier", classes=3)
    padding = torch.arange(N) < torch.tensor([[N], [4]])
    out = ours(TOKENS, padding)
    torch.testing.assert_close(out[1, :4], ours(TOKENS[1:, :4])[0])
    assert out.isfinite().all()


def test_layers_that_are_computed_again_give_the_same_and_charge_once() -> None:
    ours, found = model(depth_options=ACT).train(), []
    for again in (False, True):
        ours.checkpoint = again
        with charged() as charges:
            loss = ours(TOKENS).square().mean()
            total = charges.total()
            assert total is not None
            gradients = torch.autograd.grad(loss + total, list(ours.parameters()))
        assert len(charges.items) == 1
        found.append((total, *gradients))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_one_block_and_a_unit_are_all_there_is() -> None:
    one, many = (
        sum(p.numel() for p in model(layers=n, depth_options=ACT).parameters()) for n in (1, 9)
    )
    assert one == many
    assert many - sum(p.numel() for p in model(layers=9).parameters()) == 12 + 1


def test_the_unit_is_a_row_of_the_counts() -> None:
    ours = model(depth_options=ACT)
    rows = {row.part: row for row in count(ours, N)}
    assert rows["decoder.depth"].parameters == 12 + 1
    assert rows["decoder.depth"].flops == 2 * 12 * N * steps_of(ours)
    assert rows["total"].parameters == sum(p.numel() for p in ours.parameters())
    assert sum(row.flops for name, row in rows.items() if name != "total") == rows["total"].flops


def steps_of(ours: TinyTransformer) -> int:
    """How many steps a sequence of zeros takes."""
    with record() as notes, torch.no_grad():
        ours(torch.zeros(1, N, dtype=torch.long))
    return len(notes["states"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0.0, "act": True}, "epsilon should lie between 0 and 1, got 0"),
        ({"epsilon": 1, "act": True}, "epsilon should lie between 0 and 1, got 1"),
        ({"ponder": -0.1, "act": True}, "ponder is the price of a step"),
        ({"listing": True}, "give act=True too"),
        ({"act": 1}, "act should be True or False"),
        ({"steps": 3}, "universal has no option 'steps'"),
    ],
)
def test_halting_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        model(depth_options=options)


def test_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="layers should be at least 1, got 0"):
        model(layers=0, depth_options=ACT)
    with pytest.raises(ValueError, match="a Universal Transformer takes at least one step"):
        Universal(DIM, 1, act=True)(torch.zeros(B, N, DIM), [])
