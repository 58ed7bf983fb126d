"""The experiment `carried_memory`, small: its rows, what it scores, and what is stored."""

import torch

from attnlab.experiments import carried_memory
from attnlab.experiments.carried_memory import ARMS, build, with_memory

LONGER = [f"{arm}, 1000 updates" for arm in ARMS if "rate" in ARMS[arm]]
NAMES = [*ARMS, *LONGER, "memory 16, scored with 32"]


def test_what_is_scored_begins_with_the_third_segment(monkeypatch) -> None:
    """A model that knows the last passage would err in the first two segments alone."""
    kept = []

    def told(logits, targets, reduction):
        kept.append(targets)
        late = torch.full(targets.shape, float(len(kept) < 3))
        return late  # 1 in the first two batches, 0 later

    monkeypatch.setattr(carried_memory.F, "cross_entropy", told)
    losses = carried_memory.losses_by_place(build("no memory"), batches=5)
    assert (losses == 0).all()


def test_the_same_parameters_with_another_memory() -> None:
    model = build("memory 16", seed=1)
    other = with_memory(model, 32)
    assert other.decoder.blocks[0].attention.options.memory == 32
    assert torch.equal(other.embedding.weight, model.embedding.weight)


def test_queries_alone_are_told_their_place() -> None:
    """The queries of equal tokens differ by the vectors of their places, their keys do not."""
    heads = build("mean, told").decoder.blocks[0].attention.heads
    q, k, _ = heads.project(torch.ones(1, 5, 64))
    place = heads.split(build("mean, told").place[None, :5], heads.head_dim)
    torch.testing.assert_close(q - q[:, :, :1], place - place[:, :, :1])
    assert (q[:, :, 1:] != q[:, :, :1]).any()
    torch.testing.assert_close(k, k[:, :, :1].expand_as(k))
