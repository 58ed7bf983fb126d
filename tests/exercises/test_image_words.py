"""Lesson 90's checks: an image as words, and a map of the class token against the ink."""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.exercises import check_as_words, check_ink_overlap
from attnlab.lens.class_token_maps import class_token_maps, jaccard, kept
from attnlab.systems.patches import as_convolution, into_patches
from tests.exercises.frame import answers_to


def as_words(image: Tensor, p: int, E: Tensor, class_token: Tensor, positions: Tensor) -> Tensor:
    return torch.cat([class_token[None], into_patches(image[None], p)[0] @ E]) + positions


def by_convolution(
    image: Tensor, p: int, E: Tensor, class_token: Tensor, positions: Tensor
) -> Tensor:
    vectors = F.conv2d(image[None], as_convolution(E.T, p), stride=p)[0].flatten(1).T
    return torch.cat([class_token[None], vectors]) + positions


def ink_overlap(weights: Tensor, ink: Tensor, share: float) -> Tensor:
    found = kept(class_token_maps(weights[None, None], (1, len(ink))), share)
    return jaccard(found, ink[None, None, None])[0, 0]


def by_one_after_the_other(weights: Tensor, ink: Tensor, share: float) -> float:
    seen = (weights[0, 1:] / weights[0, 1:].sum()).tolist()
    found, held = set(), 0.0
    while held < share:
        largest = max(set(range(len(seen))) - found, key=seen.__getitem__)
        found.add(largest)
        held += seen[largest]
    drawn = set(ink.nonzero()[:, 0].tolist())
    return len(found & drawn) / len(found | drawn)


TestAnswers = answers_to(
    [
        (check_as_words, as_words),
        (check_as_words, by_convolution),
        (check_ink_overlap, ink_overlap),
        (check_ink_overlap, by_one_after_the_other),
    ]
)
