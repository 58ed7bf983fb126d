"""The experiment `word_order`, small: one budget, and what an average of added positions knows."""

import pytest
import torch

from attnlab.experiments import stored
from attnlab.experiments.word_order import ARMS, SEEDS, build, problem, right


def parameters(name: str) -> int:
    return sum(each.numel() for each in build(ARMS[name], 0).parameters())


@pytest.mark.parametrize("network", ["average", "convolution", "Transformer"])
def test_one_budget(network: str) -> None:
    """The same for complex words as for words without positions; learned positions add 1,024."""
    none, complex_ = parameters(f"{network}, none"), parameters(f"{network}, complex")
    assert parameters(f"{network}, sinusoidal") == none
    assert parameters(f"{network}, learned") == none + 1024
    assert complex_ == none
    assert parameters("complex Transformer, complex") < parameters("Transformer, complex")


def test_equal_seeds_give_equal_models() -> None:
    one, same, other = (build(ARMS["average, complex"], seed) for seed in (1, 1, 2))
    for a, b, c in zip(*(m.parameters() for m in (one, same, other)), strict=True):
        assert torch.equal(a, b)
        assert a.ndim < 2 or not torch.equal(a, c) or a is one.embedding.angles.frequency


def test_right_counts_answers() -> None:
    task = problem(ARMS["average, none"])

    class Says(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            return torch.tensor([1.0, 0.0]).expand(len(tokens), 2)

    unseen = task.batch("validation", 2000, seed=0)
    assert right(Says(), task) == pytest.approx(
        100 * (unseen.targets == 0).float().mean().item(), abs=0.1
    )


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    """An average of sums knows no order."""
    found = stored("41_word_order.json", "word_order")
    for scheme in ("none", "learned", "sinusoidal"):
        assert all(abs(found[f"average, {scheme}, seed {seed}"] - 50) < 3 for seed in SEEDS)
