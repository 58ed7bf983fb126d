"""Lesson 33's checks: the far part, tokens that stand there alone, a standard error, a study."""

import torch

from attnlab.exercises import check_copied, check_far_use, check_standard_error
from attnlab.lens.far_context import CLASSES, token_classes
from tests.exercises.frame import answers_to


def copied(tokens, last, distance):
    found = token_classes(tokens[None], last=last, distance=distance)
    return found[CLASSES.index("far"), 0]


def standard_error(before, after):
    means = [(a - b).sum() / len(b) for b, a in zip(before, after, strict=True)]
    middle = sum(means) / len(means)
    spread = sum((mean - middle) ** 2 for mean in means) / (len(means) - 1)
    return (spread / len(means)) ** 0.5


def far_use(losses_of, tokens, other, last, distances):
    found = []
    for distance in distances:
        far = tokens.shape[1] - last - distance
        changed = torch.cat([other[:, :far], tokens[:, far:]], dim=1)
        member = torch.stack([copied(row, last, distance) for row in tokens])
        found.append((losses_of(changed) - losses_of(tokens))[:, -last:][member].mean())
    return torch.stack(found)


RIGHT = [
    (check_copied, copied),
    (check_standard_error, standard_error),
    (check_far_use, far_use),
]
TestAnswers = answers_to(RIGHT)


def test_a_study_that_changes_the_text_is_told_so():
    def in_place(losses_of, tokens, other, last, distances):
        tokens[:, : tokens.shape[1] - last - distances[-1]] = 0
        return far_use(losses_of, tokens, other, last, distances)

    assert "`tokens` is changed in place" in check_far_use(in_place).message
