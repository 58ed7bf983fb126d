"""The experiment `subwords`, small: the task, the arms, and what is stored."""

import pytest
import torch

from attnlab.experiments import stored, subwords
from attnlab.experiments.subwords import (
    ARMS,
    SEEDS,
    TOPICS,
    TYPOS,
    build,
)

UNITS = ("words", "pieces", "bytes")


@pytest.mark.parametrize("name", ARMS)
def test_padding_changes_no_answer(name: str) -> None:
    model = build(name, 0).eval()
    texts = ["def f(x): return x", "for each of the items in a list or a tuple, do this"]
    tokens, padding = subwords.tokenized(ARMS[name].unit, texts)
    alone, _ = subwords.tokenized(ARMS[name].unit, texts[:1])
    with torch.no_grad():
        together = model(tokens, padding)
        torch.testing.assert_close(together[:1], model(alone), rtol=1e-4, atol=1e-5)
    assert together.shape == (2, len(TOPICS))


def test_what_the_arms_are() -> None:
    frozen = {name: {n for n, p in build(name, 0).named_parameters() if not p.requires_grad}
              for name in ARMS}  # fmt: skip
    assert [name for name, parts in frozen.items() if parts] == ["every 4 bytes", "GBST, no choice"]
    sizes = {name: sum(p.numel() for p in build(name, 0).parameters()) for name in ARMS}
    assert sizes["GBST"] == sizes["GBST, no choice"] == sizes["every 4 bytes"]
    assert sizes["words, rank 2"] < sizes["words, rank 8"] < sizes["words"]


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    found = stored("43_subwords.json", "subwords")
    for seed in SEEDS:
        for name in ARMS:
            shares = [found[f"{name}, {typos} % typos, seed {seed}"] for typos in TYPOS]
            assert all(100 / len(TOPICS) < share < 100 for share in shares)
        assert found[f"words, 0 % typos, seed {seed}"] > found[f"words, 20 % typos, seed {seed}"]
