"""The experiment `attend_to_blocks`, small: other choices, what is read, and what is trained."""

import copy

import pytest
import torch
from torch import Tensor

from attnlab.experiments import attend_to_blocks as experiment
from attnlab.experiments import stored
from attnlab.experiments.attend_to_blocks import (
    MAIN,
    RATES,
    TASK,
    OtherBlocks,
    OtherTokens,
    WithoutBranch,
    answers,
    choosing,
    layer_of,
    other_choices,
    read,
)

N, ASKS = TASK.length, TASK.length - TASK.questions


def sharp(arm: str) -> experiment.TinyTransformer:
    """A model with larger weights in its layer, so that choices differ."""
    model = MAIN.build(arm, seed=3)
    with torch.no_grad():
        for each in layer_of(model).parameters():
            each.mul_(3)
    return model.eval()


def texts() -> Tensor:
    return TASK.batch("validation", 4, seed=5).inputs


@torch.no_grad()
def differ(one: torch.nn.Module, other: torch.nn.Module) -> float:
    found: Tensor = (one(texts()) - other(texts())).abs().max()
    return found.item()


def test_blocks_chosen_by_their_means_are_those_of_the_page() -> None:
    model = sharp("MoBA")
    assert differ(model, choosing(model, OtherBlocks, by="mean")) < 1e-5
    for by in ("largest", "random"):
        assert differ(model, choosing(model, OtherBlocks, by=by)) > 1e-3


def test_all_blocks_are_dense_attention() -> None:
    model, dense = sharp("MoBA"), MAIN.build("dense").eval()
    dense.load_state_dict(model.state_dict())
    assert differ(other_choices(model)["all"], dense) < 1e-5
    everything = {"chosen": N // experiment.BLOCK}
    assert differ(choosing(model, OtherBlocks, options=everything), dense) < 1e-5


def test_all_tokens_are_dense_attention_whatever_orders_them() -> None:
    model, dense = sharp("indexer"), MAIN.build("dense").eval()
    own = {k: v for k, v in model.state_dict().items() if ".index_" not in k}
    dense.load_state_dict(own)
    assert differ(other_choices(model)["all"], dense) < 1e-5
    for by in ("attention", "random"):
        assert differ(choosing(model, OtherTokens, by=by, options={"chosen": N}), dense) < 1e-5


def test_the_tokens_that_attention_weighs_most_are_read() -> None:
    model = sharp("indexer")
    with experiment.record() as dense, torch.no_grad():
        other_choices(model)["all"](texts())
    with experiment.record() as few, torch.no_grad():
        choosing(model, OtherTokens, by="attention")(texts())
    whole, mine = dense["weights"][0].mean(1), few["mask"][0][:, 0]
    most = whole.topk(experiment.READ).values.sum(-1)  # of equal tokens any may be read
    torch.testing.assert_close((whole * mine).sum(-1), most)
    assert torch.equal(mine.sum(-1)[0], (torch.arange(N) + 1).clamp(max=experiment.READ))


def test_a_branch_that_is_left_out_has_no_gate() -> None:
    model = sharp("NSA")
    for branch, name in enumerate(experiment.BRANCHES):
        with experiment.record() as notes, torch.no_grad():
            choosing(model, WithoutBranch, branch=branch)(texts())
        shut = (notes["gates"][0] == 0).all((0, 1, 2))
        assert shut.tolist() == [place == branch for place in range(3)], name


def test_a_copy_chooses_otherwise_and_the_model_stays() -> None:
    model = sharp("MoBA")
    before = copy.deepcopy(model)
    for other in other_choices(model).values():
        assert other is not model
    assert differ(model, before) == 0


@pytest.mark.parametrize(
    "arm", ["dense", "window", "random blocks", "LSH", "routing", "NSA", "untrained indexer"]
)
def test_other_choices_are_those_of_selections_alone(arm: str) -> None:
    known = {"NSA": 3, "untrained indexer": 3}
    assert len(other_choices(MAIN.build(arm))) == known.get(arm, 0)


def test_answers_are_the_tokens_that_give_the_value() -> None:
    batch = TASK.batch("validation", 8, seed=1)
    gives = answers(batch.inputs, TASK)
    assert gives[:, ASKS:].sum(-1).eq(1).all()
    assert not gives[:, :ASKS].any()
    place = gives[:, ASKS:].int().argmax(-1)
    value = batch.inputs.gather(1, place) % TASK.values
    assert torch.equal(value, batch.targets[:, ASKS:])


def test_what_is_read_is_counted() -> None:
    places = torch.arange(ASKS, N).double() + 1
    found = {arm: read(MAIN.build(arm).eval()) for arm in MAIN.arms}
    assert found["dense"] == (round(places.mean().item(), 2), 0, 100)
    assert found["window"].keys == experiment.READ
    own = (places - 1) % experiment.BLOCK + 1
    blocks = round(own.mean().item() + experiment.BLOCK * (experiment.CHOSEN - 1), 2)
    assert found["MoBA"].keys == found["random blocks"].keys == blocks
    assert found["MoBA"].compared == 14.5  # 14 blocks before the first 8 questions, then 15
    assert found["random blocks"].compared == 0
    assert found["indexer"].keys == experiment.READ
    assert found["indexer"].compared == round(places.mean().item() * 2 * 8 / 32, 2)
    means = (places // experiment.BLOCK).mean().item()
    assert found["NSA"].keys == round(blocks + means, 2)
    assert found["LSH"].keys <= experiment.READ
    assert found["routing"].keys <= experiment.READ


def test_random_blocks_find_what_chance_finds() -> None:
    """Two heads with three of 14 or 15 blocks: 1 − (1 − 3 / 14.5)², as no block is the own one."""
    found = read(MAIN.build("random blocks").eval(), texts=256).found
    assert found == pytest.approx(100 * (1 - (1 - 3 / 14.5) ** 2), abs=2)


def test_answers_are_told_apart_by_what_is_read() -> None:
    """The parts are those of `read` and of the score."""
    model = MAIN.build("window", 1).eval()
    found, says, value = experiment.answered(model, texts=64, seed=2)
    batch = TASK.batch("validation", 64, seed=2)
    assert experiment.percent(found) == read(model, texts=64, seed=2).found
    with torch.no_grad():
        said = model(batch.inputs)[:, ASKS:].argmax(-1)
    assert torch.equal(says.view_as(said), said)
    assert torch.equal(value.view_as(said), batch.targets[:, ASKS:])


def test_the_window_finds_what_is_near() -> None:
    batch = TASK.batch("validation", 64, seed=2)
    place = answers(batch.inputs, TASK)[:, ASKS:].int().argmax(-1)
    near = torch.arange(ASKS, N) - place < experiment.READ
    assert read(MAIN.build("window").eval()).found == experiment.percent(near)


@pytest.mark.parametrize(
    ("arm", "wide", "narrow"),
    [("indexer, dense before", (N, "all"), (32, "chosen")), ("MoBA, dense before", (16,), (4,))],
)
def test_the_first_half_is_dense(arm: str, wide: tuple, narrow: tuple, monkeypatch) -> None:
    seen = []

    def spied(model, task, steps, callbacks=(), **given):
        names = ("chosen", "aligned")[: len(wide)]

        def look(_=None):
            seen.append(tuple(getattr(layer_of(model).options, name) for name in names))

        look()
        return fit(model, task, steps, callbacks=[*callbacks, look], **given)

    fit = experiment.by_fit
    monkeypatch.setattr(experiment, "by_fit", spied)
    MAIN.train(arm, 0, steps=4)
    assert seen == [wide, wide, narrow, narrow, narrow]  # before, and after each of four steps


def test_an_untrained_indexer_stays_and_the_rest_learns() -> None:
    before = MAIN.build("untrained indexer", 1)
    after, _ = MAIN.train("untrained indexer", 1, steps=2)
    for name, old in before.state_dict().items():
        same = torch.equal(old, after.state_dict()[name])
        assert same == ("index_" in name), name
    learns, _ = MAIN.train("indexer", 1, steps=2)
    index = [name for name in before.state_dict() if "index_query" in name]
    assert index
    assert not any(torch.equal(before.state_dict()[n], learns.state_dict()[n]) for n in index)


def test_hashes_are_drawn_with_the_seed() -> None:
    one, other = (MAIN.train("LSH", seed, steps=1)[0] for seed in (0, 1))
    assert not torch.equal(layer_of(one).rotations, layer_of(other).rotations)


def test_each_arm_has_the_rate_with_the_lower_loss() -> None:
    rows = stored("18_attend_to_blocks.json", "attend_to_blocks")
    for arm, trained in MAIN.arms.items():
        losses = {r: rows[f"{arm}; {r:g}; loss on other sequences, tried once"] for r in RATES}
        assert losses[trained.training["learning_rate"]] == min(losses.values()), arm
