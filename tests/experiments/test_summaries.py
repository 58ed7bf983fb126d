"""The experiment `summaries`, small: what the arms are, how they are scored, and what is stored."""

import pytest
import torch

from attnlab.experiments import stored, summaries
from attnlab.experiments.summaries import ARMS, RADIUS, SEEDS, build, layers, problem, score
from attnlab.mechanisms.fixed.memory_compressed import MemoryCompressedAttention


def connected(arm: str) -> torch.Tensor:
    """(n, n): which inputs change which outputs of the whole model, before its output layer."""
    model, n = build(arm, 0).double(), problem().length
    x = torch.randn(1, n, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def run(rows: torch.Tensor) -> torch.Tensor:
        for block in model.decoder.blocks:  # type: ignore[union-attr]
            rows = block(rows)
        return rows[0]

    with torch.no_grad():
        plain, heard = run(x), torch.zeros(n, n, dtype=torch.bool)
        for j in range(n):
            changed = x.clone()
            changed[0, j] = -x[0, j]
            heard[:, j] = ((run(changed) - plain).abs() > 1e-9).any(-1)
    return heard


@pytest.mark.parametrize("arm", ARMS)
def test_all_but_the_window_connect_the_stretch_with_the_questions(arm: str) -> None:
    task = problem()
    first = 1 + task.stretch
    heard = connected(arm)[-task.questions :, 1:first]
    assert not heard.any() if arm == "window" else heard.all()


def test_the_window_falls_short_by_one() -> None:
    task = problem()
    assert task.gap == 2 * RADIUS


def test_the_mean_is_held() -> None:
    torch.manual_seed(0)
    layer = layers("mean 4")[1](12, 3)
    assert isinstance(layer, MemoryCompressedAttention)
    x = torch.randn(2, 3, 8, 4)
    made = torch.einsum("bhtui,huio->bhto", x.unflatten(2, (2, 4)), layer.value_kernel)
    torch.testing.assert_close(made, x.unflatten(2, (2, 4)).mean(3))
    assert not layer.key_kernel.requires_grad
    assert layers("conv 4")[1](12, 3).key_kernel.requires_grad


def test_what_is_long_is_trained_longer() -> None:
    arms = summaries.GRID.arms
    assert arms["conv 4 long"].steps == 3 * arms["conv 4"].steps == 3 * summaries.STEPS


def test_scores_are_of_the_whole_and_of_places() -> None:
    task = problem()

    class Always(torch.nn.Module):
        """Says ● everywhere, except to the first question, where it looks."""

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            message = torch.zeros(*inputs.shape, 2)
            message[..., 0] = 1
            message[:, -task.questions, 1] = 2.0 * (inputs[:, 1:16].sum(1) > 7)
            return message

    found = score(Always(), task, texts=211)
    assert found["gist"] == 100
    assert 45 < found["places"] < 55


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    found = stored("13_summaries.json", "summaries")
    for seed in SEEDS:
        assert 45 < found[f"window, gist, seed {seed}"] < 55  # no path: a coin
        assert found[f"all, places, seed {seed}"] > 99
