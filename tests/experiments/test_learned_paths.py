"""The experiment `learned_paths`, small: labels by counting paths, its model, what is stored."""

from collections import Counter

import pytest
import torch

from attnlab.experiments import learned_paths
from attnlab.experiments.learned_paths import (
    FIELDS,
    KINDS,
    PATHS,
    SEEDS,
    VENUES,
    Libraries,
    build,
    libraries,
    path_weight,
    right,
)
from attnlab.mechanisms.structure import gtn

TYPES = ("venue", "paper", "author", "city")


def of(node: int) -> str:
    return TYPES[(node >= VENUES) + (node >= VENUES + 40) + (node >= VENUES + 56)]


@pytest.mark.parametrize("task", PATHS)
def test_labels_by_walking_the_path(task: str) -> None:
    batch = libraries(task, 3, seed=5)
    for row in range(3):
        graph = batch.structure.graph(row)
        follow: dict[tuple[int, int], list[int]] = {}
        for (source, target), kind in zip(graph.edges.tolist(), graph.kinds.tolist(), strict=True):
            assert f"{of(source)} → {of(target)}" == KINDS[kind]
            follow.setdefault((source, kind), []).append(target)
        found: dict[int, Counter[int]] = {}
        for venue in range(VENUES):
            ends = [venue]
            for kind in PATHS[task]:
                ends = [target for node in ends for target in follow.get((node, kind), [])]
            field = int(batch.x[row, venue].argmax())
            for end in ends:
                found.setdefault(end, Counter())[field] += 1
        for node, label in enumerate(batch.labels[row].tolist()):
            most = found.get(node, Counter()).most_common(2) if of(node) == task else []
            tie = len(most) > 1 and most[0][1] == most[1][1]
            assert label == (-100 if tie or not most else most[0][0])


@pytest.mark.parametrize("agree", [0.0, 1.0])
def test_topics_agree_as_often_as_they_should(agree: float) -> None:
    batch = libraries("author", 5, seed=2, agree=agree)
    same = []
    for row in range(5):
        graph = batch.structure.graph(row)
        for (venue, paper), kind in zip(graph.edges.tolist(), graph.kinds.tolist(), strict=True):
            if kind == 3:
                same.append(torch.equal(batch.x[row, venue], batch.x[row, paper]))
    share = sum(same) / len(same)
    assert share == 1 if agree else 0.15 < share < 0.35
    assert (batch.x[:, VENUES + 40 :] == 0).all()


@pytest.mark.parametrize("task", PATHS)
def test_the_path_decides_the_label(task: str) -> None:
    batch = libraries(task, 4, seed=3)
    certain = torch.full((1, len(PATHS[task]), len(KINDS) + 1), -1e4)
    for place, kind in enumerate(reversed(PATHS[task])):
        certain[0, place, kind] = 0
    assert path_weight(certain[0], PATHS[task]) == 1
    out = gtn.edges(batch.x[:, None], certain, structure=batch.structure)[:, 0, :, :FIELDS]
    labelled = batch.labels >= 0
    assert torch.equal(out.argmax(-1)[labelled], batch.labels[labelled])


def test_scores_leave_nodes_without_a_label_out() -> None:
    batch = libraries("author", 2, seed=1)

    class Knows(torch.nn.Module):
        def forward(self, x, structure):
            return torch.nn.functional.one_hot(batch.labels.clamp(min=0), FIELDS)

    assert right(Knows(), batch) == 100  # type: ignore[arg-type]


def test_no_training_has_seen_the_graphs_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def remembered(task: str, size: int, seed: int, agree: float = 0.0) -> Libraries:
        seeds.append(seed)
        return libraries(task, size, seed, agree)

    monkeypatch.setattr(learned_paths, "libraries", remembered)
    for seed in SEEDS:
        learned_paths.train("author", 1, seed, training=2)
    assert len(set(seeds)) == 2 * len(SEEDS)
    learned_paths.unseen("author", 1)
    assert seeds.pop() < min(seeds)


def test_alike_trains_matrices_alone() -> None:
    found = learned_paths.train("author", 2, 0, spread=0.0, training=3)
    assert not found.model.paths.choices.any()
    untrained = build(2, 0)
    assert not torch.equal(found.model.answer.weight, untrained.answer.weight)
    assert len(learned_paths.train("author", 2, 0, training=20).choices) == 3
