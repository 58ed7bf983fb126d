"""Whole topics as documents: nothing is lost, nothing is read twice."""

import pytest
import torch

from attnlab.tasks import UNSCORED, task
from attnlab.tasks.documentation import topics_by_split
from attnlab.tasks.topics import Topics

BPE = Topics("bpe", length=1021, bpe_size=300)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_documents_are_the_topics_in_parts(split: str) -> None:
    """Each part begins with the last token of the part before, so every token is a target."""
    documents = BPE.documents(split)
    assert all(2 <= len(document) <= 1022 for document in documents)
    assert all(document.dtype == torch.int64 for document in documents)
    texts, at = list(topics_by_split()[split].values()), 0
    for text in texts:
        tokens = BPE.encode(text)
        read = [tokens[:1]]
        while sum(map(len, read)) < len(tokens):
            assert documents[at][0] == read[-1][-1]
            read.append(documents[at][1:])
            at += 1
        assert torch.equal(torch.cat(read), tokens)
    assert at == len(documents) > len(texts)


def test_a_batch_holds_whole_documents() -> None:
    batch = BPE.batch("validation", 17, seed=0)
    known = {tuple(document.tolist()) for document in BPE.documents("validation")}
    assert batch.padding is not None
    for row, targets, real in zip(batch.inputs, batch.targets, batch.padding, strict=True):
        assert (targets[~real] == UNSCORED).all()
        assert (*row[real].tolist(), int(targets[real][-1])) in known


def test_documents_are_handed_out_as_copies() -> None:
    BPE.documents("validation")[0].zero_()
    assert BPE.documents("validation")[0].any()


def test_a_vocabulary_and_a_split_are_as_for_windows() -> None:
    windows = task("documentation", unit="bpe", bpe_size=300)
    assert Topics("bpe", vocabulary=windows.vocabulary).vocab == 300
    with pytest.raises(ValueError, match="no split 'test'"):
        BPE.documents("test")
