"""Lesson 69's checks: the divergence of two heads, and maps of words."""

import torch
from torch.nn import functional as F

from attnlab.exercises import check_divergence, check_words_of_pieces
from attnlab.lens.head_distances import head_distances
from attnlab.lens.word_maps import word_map
from tests.exercises.frame import answers_to


def divergence(p, q):
    """By two relative entropies to the mean."""
    middle = (p + q) / 2
    parts = [torch.special.xlogy(x, x) - torch.special.xlogy(x, middle) for x in (p, q)]
    return sum(part.sum(1) for part in parts).mean() / 2


def words_of_pieces(w, words):
    """Sums into places, first of the keys, then of the queries."""
    count = int(words.max()) + 1
    to = torch.zeros(len(w), count, dtype=w.dtype).index_add_(1, words, w)
    read = torch.zeros(count, count, dtype=w.dtype).index_add_(0, words, to)
    return read / F.one_hot(words).sum(0)[:, None]


TestAnswers = answers_to([(check_divergence, divergence), (check_words_of_pieces, words_of_pieces)])


def test_they_are_those_of_the_lens() -> None:
    p, q = torch.randn(2, 5, 7, dtype=torch.float64).softmax(-1)
    found = head_distances({"layer": torch.stack([p, q])[None]}).divergence[0, 1]
    torch.testing.assert_close(check_divergence.right(p, q), torch.tensor(found))
    words = torch.tensor([0, 1, 1, 2, 2])
    w = torch.randn(5, 5, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(check_words_of_pieces.right(w, words), word_map(w, words.tolist()))
