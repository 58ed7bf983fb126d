"""The experiment `experts`, small: what each arm is, what is measured, and stored rows."""

import pytest
import torch

from attnlab.experiments import experts, stored
from attnlab.experiments.experts import ARMS, EXPERTS, LAYERS, build, measured
from attnlab.experiments.grid import parameters


@pytest.mark.parametrize("arm", ["switch", "narrow"])
def test_what_is_measured_of_an_untrained_model(arm: str) -> None:
    found = {what: value for what, value, _ in measured(build(arm, 0), windows=2)}
    assert len(found) == 1 + (4 * LAYERS if arm == "switch" else 0)
    assert 5 < found["loss"] < 6  # ln 256 is 5.5
    if arm == "switch":
        assert 0 < found["balance of layer 0"] <= EXPERTS
        assert 100 / EXPERTS <= found["fullest of layer 1"] <= 100


def test_a_random_router_learns_nothing_and_all_else_does() -> None:
    before, (model, _) = build("random router", 0), experts.ALL.train("random router", 0, steps=1)
    after = dict(model.named_parameters())
    for name, weight in before.named_parameters():
        assert torch.equal(weight, after[name]) == (".router." in name), name


def test_arms_have_the_work_or_the_parameters_of_the_experts() -> None:
    sizes = {arm: parameters(build(arm)) for arm in ARMS}
    dense = sizes["wide"] - sizes["narrow"]
    router, biases = 64 * EXPERTS, 64 * (EXPERTS - 1)
    assert sizes["switch"] - sizes["wide"] == LAYERS * (router + biases)
    assert dense == LAYERS * (EXPERTS - 1) * (2 * 64 * 64 + 64)
    assert len({sizes[arm] for arm in experts.SWITCHES}) == 1


def test_a_byte_tells_all_of_its_own_expert_and_nothing_of_a_random_one() -> None:
    tokens = torch.arange(64).repeat(1000)
    told = experts._told(tokens, tokens % EXPERTS)
    torch.testing.assert_close(told, torch.ones(()))
    assert experts._told(tokens, torch.arange(64_000) // 64 % EXPERTS) < 0.01


def test_what_the_lesson_says_of_the_stored_rows_holds() -> None:
    rows, last = stored("08_experts.json", "experts"), experts.STEPS[-1]

    def of(arm: str, what: str) -> list[float]:
        return [rows[f"{arm}, step {last}, {what}, seed {seed}"] for seed in experts.SEEDS]

    others = [x for arm in ARMS if arm != "much balance" for x in of(arm, "loss")]
    assert min(of("much balance", "loss")) > max(others)
    for layer in range(LAYERS):
        for arm in ("no balance", "no limit, no balance"):
            assert all(1.1 < x < 2.5 for x in of(arm, f"balance of layer {layer}"))
        assert max(of("switch", f"balance of layer {layer}")) < 1.15


def test_the_control_trains_four_arms_at_both_rates_and_longer() -> None:
    """What the lesson says of it: after more updates the wide layer is ahead in every seed."""
    rows = stored("08_experts.json", "experts")
    assert set(experts.CONTROL.arms) == {
        f"{arm} at {rate:g}" for arm in experts.LONGER for rate in experts.RATES
    }
    best = {}
    for arm in experts.LONGER:
        tried = [
            [rows[f"{arm} at {r:g}, {experts.UPDATES} updates, loss, seed {s}"] for s in (0, 1, 2)]
            for r in experts.RATES
        ]
        best[arm] = min(tried, key=sum)
    assert all(w < s - 0.1 for w, s in zip(best["wide"], best["switch"], strict=True))
    assert sum(best["switch"]) < sum(best["narrow"])
