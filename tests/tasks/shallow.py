"""Baselines that do not read the tree: what a task's answer can be guessed from."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attnlab.tasks import Task


def bag_of_tokens(task: Task, rows: int = 4001) -> float:
    """The share of validation rows that a logistic regression on counts of tokens gets right."""

    def counts(split: str, size: int):
        batch = task.batch(split, size, seed=0)
        one_hot = torch.nn.functional.one_hot(batch.inputs, task.vocab)
        return one_hot.sum(dim=1)[:, 1:].double().numpy(), batch.targets.numpy()

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return model.fit(*counts("train", rows)).score(*counts("validation", 2003))


def majority_by(features: Iterable[Hashable], targets: Sequence[int]) -> float:
    """The share of rows that are right if each gets the most frequent class of its feature.

    It is measured on the rows that the classes come from, so it is an upper bound.
    """
    seen: dict[Hashable, Counter[int]] = defaultdict(Counter)
    for feature, target in zip(features, targets, strict=True):
        seen[feature][target] += 1
    return sum(max(counts.values()) for counts in seen.values()) / len(targets)
