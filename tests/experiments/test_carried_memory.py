"""The experiment `carried_memory`, small: its rows, what it scores, and what is stored."""

import json
from pathlib import Path

import torch

from attnlab.experiments import carried_memory
from attnlab.experiments.carried_memory import ARMS, SEEDS, SEGMENT, build, with_memory

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/30_carried_memory.json"
LONGER = [f"{arm}, 1000 updates" for arm in ARMS if "rate" in ARMS[arm]]
NAMES = [*ARMS, *LONGER, "memory 16, scored with 32"]


def test_rows_of_the_quick_run() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    rows = list(carried_memory.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    assert {row.figure for row in rows} == {
        f"{name}, place {place}, seed 0" for name in NAMES for place in range(SEGMENT)
    }


def test_what_is_scored_begins_with_the_third_segment(monkeypatch) -> None:
    """A model that knows the last passage would err in the first two segments alone."""
    kept = []

    def told(logits, targets, reduction):
        kept.append(targets)
        late = torch.full(targets.shape, float(len(kept) < 3))
        return late  # 1 in the first two batches, 0 later

    monkeypatch.setattr(carried_memory.F, "cross_entropy", told)
    losses = carried_memory.losses_by_place(build("no memory"), batches=5)
    assert (losses == 0).all()


def test_the_same_parameters_with_another_memory() -> None:
    model = build("memory 16", seed=1)
    other = with_memory(model, 32)
    assert other.decoder.blocks[0].attention.options.memory == 32
    assert torch.equal(other.embedding.weight, model.embedding.weight)


def test_a_token_is_told_its_place() -> None:
    """Equal tokens at two places differ, and at one place of two segments they do not."""
    model, token = build("mean, told"), torch.zeros(1, SEGMENT, dtype=torch.int64)
    first, again = model.embedding(token)[0], model.embedding(token[:, :5])[0]
    assert (first[0] != first[1]).any()
    assert torch.equal(first[:5], again)
    torch.testing.assert_close(first - first[:1], model.place - model.place[:1])
    plain = build("mean").embedding(token)[0]
    assert torch.equal(plain[0], plain[1])


def test_what_the_lesson_draws_is_whole() -> None:
    rows = json.loads(STORED.read_text())["experiments"]["carried_memory"]
    found = {row["figure"]: row["measured"] for row in rows}
    for name in NAMES:
        for seed in SEEDS:
            for place in range(SEGMENT):
                assert f"{name}, place {place}, seed {seed}" in found
