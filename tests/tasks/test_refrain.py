"""A passage that comes again and again."""

import pytest
import torch

from attnlab.tasks.refrain import Refrain

SMALL = Refrain(period=7, symbols=11, times=3)


def test_from_the_second_time_on_each_symbol_stood_one_period_before() -> None:
    batch = SMALL.batch("train", 5, seed=0)
    assert batch.inputs.shape == (5, 20)
    assert torch.equal(batch.targets[:, 6:], batch.inputs[:, :14])
    assert (batch.inputs[:, 1:7] != batch.inputs[:, :6]).any()


@pytest.mark.parametrize("split", ["train", "validation"])
def test_documents_are_whole_and_of_their_split(split: str) -> None:
    documents = torch.stack(SMALL.documents(split))
    assert documents.shape == (4096, 21)
    assert torch.equal(documents[:, 7:], documents[:, :14])
    assert torch.equal(torch.stack(SMALL.documents(split)), documents)
    other = torch.stack(SMALL.documents("train" if split == "validation" else "validation"))
    known = {tuple(row) for row in other[:, :7].tolist()}
    assert not any(tuple(row) in known for row in documents[:, :7].tolist())
    with pytest.raises(ValueError, match="no split 'test'"):
        SMALL.documents("test")
