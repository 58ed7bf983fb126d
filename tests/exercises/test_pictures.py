"""Lesson 91's checks: the mask of captions, and the loss that compares images with texts."""

import torch
from torch.nn import functional as F

from attnlab.exercises import check_captioning_mask, check_contrastive
from attnlab.systems.blip2 import smoothed
from attnlab.systems.qformer import visible
from tests.exercises.frame import answers_to


def captioning_mask(queries, words):
    """Row by row."""
    mask = torch.zeros(queries + words, queries + words, dtype=torch.bool)
    mask[:, :queries] = True
    for word in range(words):
        mask[queries + word, queries : queries + word + 1] = True
    return mask


def contrastive(z, t, temperature):
    """Pair by pair."""
    b = len(z)
    cosines = [[F.cosine_similarity(z[i], t[j][None], dim=-1).max() for j in range(b)]
               for i in range(b)]  # fmt: skip
    s = torch.stack([torch.stack(row) for row in cosines]) / temperature
    own = s.diagonal()
    return ((s.logsumexp(0) - own).mean() + (s.logsumexp(1) - own).mean()) / 2


TestAnswers = answers_to(
    [(check_captioning_mask, captioning_mask), (check_contrastive, contrastive)]
)


def test_the_mask_is_that_of_the_q_former() -> None:
    """Whose padding is left out."""
    found = visible("captioning", 3, torch.ones(1, 5, dtype=torch.bool))[0, 0]
    assert torch.equal(found, captioning_mask(3, 5))


def test_the_loss_is_that_of_the_first_stage_without_its_smoothing() -> None:
    """0.9 of each label on the own partner, and 0.1 spread over all."""
    generator = torch.Generator().manual_seed(91)
    z, t = (torch.randn(*shape, generator=generator) for shape in ((5, 3, 4), (5, 4)))
    each = torch.einsum("bqw, cw -> bcq", F.normalize(z, dim=-1), F.normalize(t, dim=-1))
    s = each.amax(-1) / 0.5
    none = torch.zeros(5, 5, dtype=torch.bool)
    spread = -(s.log_softmax(1).mean() + s.log_softmax(0).mean()) / 2
    library = (smoothed(s, none) + smoothed(s.T, none)) / 2
    torch.testing.assert_close(library, 0.9 * contrastive(z, t, 0.5) + 0.1 * spread)
