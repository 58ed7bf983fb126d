"""The experiment `trees`, small: one budget, the same trees for all, and what is stored."""

import pytest
import torch

from attnlab.experiments.trees import (
    ARMS,
    BASELINE,
    PLANS,
    build,
    problem,
    right,
    unseen,
    written,
)  # fmt: skip


def parameters(name: str, arm: str) -> int:
    return sum(each.numel() for each in build(name, arm, 0).parameters())


@pytest.mark.parametrize("name", PLANS)
def test_one_budget(name: str) -> None:
    """The numbers of parameters differ by a tenth at most."""
    counts = [parameters(name, arm) for arm in ARMS]
    assert max(counts) < 1.1 * min(counts)


@pytest.mark.parametrize("name", PLANS)
def test_all_models_are_told_the_same_trees(name: str) -> None:
    """Row by row, leaves and nodes are the tokens of the text without its closing brackets."""
    of_tree, of_text = (problem(name, arm) for arm in ("Tree-LSTM", "Transformer, brackets"))
    told, read = (task.batch("train", 20, seed=5) for task in (of_tree, of_text))
    assert told.structure is not None
    assert read.structure is None
    assert torch.equal(told.targets, read.targets)
    for one, other in zip(told.inputs, read.inputs, strict=True):
        left = sorted(token for token in of_tree.tokens(one) if token != "·")
        right_ = [token.removeprefix("(") for token in of_text.tokens(other)]
        assert left == sorted(token for token in right_ if token not in ("·", "", ")"))


@pytest.mark.parametrize("name", PLANS)
def test_sizes_beyond_those_of_training(name: str) -> None:
    plan = PLANS[name]
    ends = [end for sizes in plan.scored for end in sizes]
    assert ends == sorted(ends)
    assert all(low > plan.scored[0][1] for low, _ in plan.scored[1:])


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("name", PLANS)
def test_every_model_reads_the_largest_trees(name: str, arm: str) -> None:
    model, task = (
        build(name, arm, 0).eval(),
        PLANS[name].task(ARMS[arm].form, PLANS[name].scored[-1]),
    )
    assert 0 <= right(model, task) <= 100


def test_equal_seeds_give_equal_models() -> None:
    one, same, other = (build("logic", "Tree-LSTM", seed) for seed in (1, 1, 2))
    for a, b, c in zip(*(m.parameters() for m in (one, same, other)), strict=True):
        assert torch.equal(a, b)
        assert a.ndim < 2 or not torch.equal(a, c)


def test_right_counts_answers() -> None:
    task = problem("listops", "Transformer, brackets")

    class Says(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            return (
                torch.nn.functional.one_hot(torch.tensor([7]), 10).float().expand(len(tokens), 10)
            )

    share = (unseen(task).targets == 7).double().mean().item()
    assert right(Says(), task) == pytest.approx(100 * share)
    assert 5 < 100 * share < 15


def test_sizes_are_written_as_ranges() -> None:
    assert written(PLANS["listops"], (1, 2)) == "depth 1–2"
    assert written(PLANS["agreement"], (3, 3)) == "attractors 3"


def test_flat_trees_have_the_same_tokens_and_no_other_tree() -> None:
    batch, flat = (problem("logic", arm).batch("train", 7, 2) for arm in ("Tree-LSTM", BASELINE))
    assert torch.equal(batch.inputs, flat.inputs)
    assert torch.equal(batch.targets, flat.targets)
    for row, real in enumerate(batch.padding):
        root = int(batch.structure.roots[row])
        expected = [root if i != root else -1 for i in range(int(real.sum()))]
        assert flat.structure.parents[row][real].tolist() == expected
    assert (batch.structure.parents != flat.structure.parents).any()
