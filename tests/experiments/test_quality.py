"""The experiment `quality`, small: who can be trained on what, and what is stored."""

import json
from pathlib import Path

import pytest
import torch

import attnlab
from attnlab.experiments import quality
from attnlab.experiments.quality import (
    LENGTH,
    NOTHING,
    TASKS,
    build,
    compute,
    figures,
    mechanisms,
    obstacle,
    problem,
    row,
    train,
)

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/72_quality.json"


def test_all_that_mix_are_in_the_grid_and_a_model_that_mixes_nothing() -> None:
    assert set(mechanisms()) == {c.name for c in attnlab.cards() if c.mixes} | {NOTHING}
    names = figures(quick=False)
    assert len(set(names)) == len(names)
    for kind in TASKS:
        for name in mechanisms():
            mine = [f for f in names if f == f"{kind}, {name}" or f.startswith(f"{kind}, {name},")]
            assert len(mine) == (1 if obstacle(name, kind) else 4)


def test_reasons_are_those_of_the_cards() -> None:
    assert obstacle("full", "text") == ""
    assert obstacle("fnet", "digits") == ""
    assert attnlab.card("fnet").causal_reason in obstacle("fnet", "recall")
    assert "tree" in obstacle("tree", "digits")
    assert obstacle(NOTHING, "text") == ""
    found = row("text, fnet", quick=True, threads=1)
    assert found.measured is None
    assert found.note == obstacle("fnet", "text")


@pytest.mark.parametrize("kind", TASKS)
def test_a_causal_task_has_a_causal_model(kind: str) -> None:
    task = problem(kind)
    assert task.length == LENGTH
    model = build("longformer", kind, 0).eval()
    inputs = task.batch("train", 1, seed=0).inputs
    changed = inputs.clone()
    changed[0, -1] = (inputs[0, -1] + 1) % task.vocab
    with torch.no_grad():
        first, second = model(inputs), model(changed)
    if task.kind == "language_model":
        assert torch.equal(first[:, :-1], second[:, :-1])
    assert not torch.equal(first, second)


def test_models_of_one_seed_begin_with_the_same_embedding() -> None:
    full, none, other = (
        build("full", "text", 1),
        build(NOTHING, "text", 1),
        build("full", "text", 2),
    )
    assert torch.equal(full.embedding.weight, none.embedding.weight)
    assert not torch.equal(full.embedding.weight, other.embedding.weight)


def test_nothing_mixes_nothing() -> None:
    model = build(NOTHING, "recall", 0).eval()
    inputs = problem("recall").batch("train", 1, seed=0).inputs
    with torch.no_grad():
        first, second = model(inputs), model(inputs.roll(1, 0).flip(1))
    middle = (inputs == inputs.flip(1))[0]
    assert torch.allclose(first[0, middle], second[0, middle])
    changed = inputs.clone()
    changed[0, 0] = (inputs[0, 0] + 1) % problem("recall").vocab
    with torch.no_grad():
        assert torch.equal(first[:, 1:], model(changed)[:, 1:])


def test_compute_counts_the_mixing_beside_the_rest() -> None:
    rest = compute(NOTHING, "text")
    projections = 3 * 2 * 8 * 32 * 32  # two layers, four matrices; backward is twice as much
    mixing = 2 * 2 * 2 * LENGTH * 32  # two layers, two products of n × n
    assert compute("full", "text") >= rest + projections + 3 * mixing
    assert compute("fnet", "digits") < compute("full", "digits")


def test_training_improves_and_leaves_the_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "UNSEEN", dict.fromkeys(TASKS, (1, 8)))
    state = torch.get_rng_state()
    worse, better = train("full", "text", 0, steps=1)[0], train("full", "text", 0, steps=12)[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert 5 < better < worse < 9  # bits per byte


def test_what_the_lesson_draws() -> None:
    stored = json.loads(STORED.read_text())
    assert not stored["quick"]
    rows = {one["figure"]: one for one in stored["experiments"]["quality"]}
    assert set(rows) <= set(figures(quick=False))
    for kind in TASKS:
        for name in ("full", "linear", "longformer", NOTHING):
            assert 0 < rows[f"{kind}, {name}, seed 0"]["measured"] <= 100
            assert rows[f"{kind}, {name}, compute"]["measured"] == pytest.approx(
                compute(name, kind), rel=0.02
            )
