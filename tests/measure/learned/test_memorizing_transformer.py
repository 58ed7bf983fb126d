"""The rows of `learned/memorizing_transformer`, small."""

import pytest
import torch

from attnlab.measure.topics.learned import memorizing_transformer


@pytest.fixture(scope="module")
def quick():
    before = torch.get_num_threads()
    found = list(memorizing_transformer.rows(quick=True, threads=1))
    assert torch.get_num_threads() == before
    return {row.figure: row for row in found}


def test_a_quick_run_has_every_figure(quick):
    assert sum(figure.startswith("search of 20,000 keys") for figure in quick) == 3
    assert sum(figure.startswith("one token with a memory") for figure in quick) == 2
    assert sum(figure.startswith("peak memory / claim") for figure in quick) == 2


def test_recall_is_that_of_the_true_neighbours(quick):
    exact = [row for figure, row in quick.items() if figure.endswith(": faiss, exact")]
    assert exact[0].note.startswith("recall 1.000")
    (share,) = (row for figure, row in quick.items() if figure.startswith("recall of"))
    assert share.met
    assert share.measured < 1
