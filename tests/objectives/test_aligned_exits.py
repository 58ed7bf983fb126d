"""Aligned exits: a loss at every exit, and oracles that say when to leave."""

import pytest
import torch

from attnlab import catalog
from attnlab.core.charges import charged
from attnlab.core.probe import record
from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.aligned_exits import (
    aligned_loss,
    log_likelihoods,
    sequence_oracle,
    token_oracle,
)
from attnlab.objectives.batches import UNSCORED, summed_loss
from attnlab.tasks import Batch
from attnlab.tasks.copying import Copying
from attnlab.train import evaluate, fit

B, N, EXITS, VOCAB = 3, 5, 4, 11


def batch() -> Batch:
    torch.manual_seed(0)
    tokens, targets = (torch.randint(VOCAB, (B, N)) for _ in range(2))
    targets[:, 0] = UNSCORED
    return Batch(tokens, targets)


def model(**options: object) -> TinyTransformer:
    torch.manual_seed(1)
    given = {"vocab": VOCAB, "dim": 12, "heads": 2, "layers": EXITS, "max_len": N}
    return TinyTransformer(**{**given, "depth": "depth_adaptive", **options})


def test_the_loss_is_the_mean_over_the_exits() -> None:
    every, given = torch.randn(EXITS, B, N, VOCAB), batch()
    expected = sum(summed_loss(logits, given.targets) for logits in every) / EXITS
    torch.testing.assert_close(aligned_loss(every, given.targets), expected)


def test_likelihoods_are_those_of_the_targets() -> None:
    every, given = torch.randn(EXITS, B, N, VOCAB), batch()
    found = log_likelihoods(every, given.targets)
    assert found.shape == (B, N, EXITS)
    assert (found[:, 0] == 0).all()
    logits = every[2, 1, 3].log_softmax(-1)
    torch.testing.assert_close(found[1, 3, 2], logits[given.targets[1, 3]])


def test_oracles_choose_what_the_equations_say() -> None:
    likelihoods = -torch.rand(B, N, EXITS, dtype=torch.float64)
    for cost in (0.0, 0.07):
        found = token_oracle(likelihoods, cost, 2.0), sequence_oracle(likelihoods, cost)
        for row in range(B):
            sums = [sum(likelihoods[row, t, n].item() for t in range(N)) for n in range(EXITS)]
            best = max(range(EXITS), key=lambda n: sums[n] - cost * (n + 1))
            assert (found[1][row] == best).all()
            for t in range(N):
                near = [
                    sum(2.718281828459045 ** (-((t - u) ** 2) / 2.0) * likelihoods[row, u, n].item()
                        for u in range(N))
                    for n in range(EXITS)
                ]  # fmt: skip
                assert found[0][row, t] == max(range(EXITS), key=lambda n: near[n] - cost * (n + 1))


def test_with_much_smoothing_each_token_has_the_oracle_of_its_sequence() -> None:
    likelihoods = -torch.rand(B, N, EXITS, dtype=torch.float64)
    smooth = token_oracle(likelihoods, 0.05, 1e12)
    assert torch.equal(smooth, sequence_oracle(likelihoods, 0.05))
    alone = token_oracle(likelihoods, 0.0, 1e-12)
    assert torch.equal(alone, likelihoods.argmax(-1))
    assert not torch.equal(alone, smooth)


def test_a_dear_layer_lets_all_leave_at_once() -> None:
    assert (token_oracle(-torch.rand(B, N, EXITS), 50.0, 1.0) == 0).all()


def test_what_is_charged_teaches_to_leave_and_unscored_tokens_to_stay() -> None:
    ours, given = model().train(), batch()
    objective = catalog.build("aligned_exits", cost=50.0)
    head = ours.decoder.depth.scores
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(60):
        with charged() as charges:
            objective.answers(ours, given)
        ((name, value),) = charges.items
        assert name == "exits"
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    with record() as notes, torch.no_grad():
        ours.eval()(given.inputs)
    (left,) = notes["halted"]
    assert (left[:, 1:] == 1).all()  # scored
    assert (left[:, 0] == EXITS).all()
    ours.train()
    with charged() as charges:
        catalog.build("aligned_exits", cost=50.0, weight=0.0).answers(ours, given)
    assert charges.total() == 0


def test_nothing_is_charged_when_the_model_is_only_asked() -> None:
    with charged() as charges, torch.no_grad():
        catalog.build("aligned_exits").answers(model().eval(), batch())
    assert charges.total() is None


def test_fit_trains_every_exit() -> None:
    task = Copying()
    torch.manual_seed(0)
    made = TinyTransformer(
        **task.model_options(), dim=16, heads=2, layers=3, depth="depth_adaptive"
    )
    before = evaluate(made, task, batches=2, objective="aligned_exits").loss
    fit(made, task, 25, batch_size=16, learning_rate=5e-3, progress=False, device="cpu",
        objective="aligned_exits")  # fmt: skip
    assert made.decoder.depth.trained
    after = evaluate(made, task, batches=2, objective="aligned_exits").loss
    assert after < before - 0.05
    made.decoder.depth.leave_after = 1
    assert evaluate(made, task, batches=2).loss < before - 0.05


@pytest.mark.parametrize("options", [{"depth": "plain"}, {"depth": "reversible"}])
def test_a_model_without_exits_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="build a language model or a token classifier with depth"):
        catalog.build("aligned_exits").answers(model(**options), batch())


@pytest.mark.parametrize("wrong", [{"smoothing": 0}, {"cost": -1}, {"weight": -0.5}])
def test_options_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="should be"):
        catalog.build("aligned_exits", **wrong)
