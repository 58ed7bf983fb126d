"""The experiment `subwords`, small: the task, the arms, and what is stored."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnlab.experiments import subwords
from attnlab.experiments.subwords import (
    ARMS,
    SEEDS,
    TOPICS,
    TYPOS,
    WINDOW,
    Topics,
    build,
    mistyped,
    pieces,
    vocabulary,
)

STORED = Path(__file__).parents[2] / "attnlab/experiments/assets/43_subwords.json"
UNITS = ("words", "pieces", "bytes")


def test_no_window_of_validation_stands_in_training() -> None:
    parts = subwords._parts()
    for seed in range(3):
        texts, answers = Topics().texts("validation", 64, seed)
        for text, answer in zip(texts, answers, strict=True):
            assert len(text) == WINDOW
            assert text in parts["validation"][answer]
        assert not any(text in part for text in texts for part in parts["train"])


def test_windows_are_a_function_of_the_arguments() -> None:
    task = Topics("words", typos=10)
    first, again = (task.batch("train", 7, 3) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(task.batch("train", 7, 4).targets, first.targets)
    plain = [Topics(unit).texts("validation", 9, 1) for unit in UNITS]
    assert plain[0] == plain[1] == plain[2]


def test_typing_errors_are_as_many_as_asked_for() -> None:
    text = "abcdefghij " * 400
    draw = np.random.default_rng(0)
    assert mistyped(text, 0, draw) == text
    typed = mistyped(text, 0.2, draw)
    assert typed.count(" ") == text.count(" ")  # letters change places with spaces, none is lost
    right = sum(word in ("abcdefghij",) for word in typed.split()) / 400
    assert right == pytest.approx(0.8**10, abs=0.06)
    assert mistyped("1 2, 3", 1, draw) == "1 2, 3"
    assert {mistyped("ab", 1, np.random.default_rng(seed))[:2] for seed in range(40)} >= {
        "aa",  # doubled
        "ba",  # exchanged
    }


@pytest.mark.parametrize("unit", UNITS)
def test_pieces_are_the_text(unit: str) -> None:
    text = "for item in zyxwv: print(item)"
    found = pieces(unit, text)
    tokens, padding = subwords.tokenized(unit, [text, "for"])
    assert padding[0].sum() == len(found) == tokens.shape[1]
    assert int(tokens.max()) < vocabulary(unit)
    assert 0 < padding[1].sum() < len(found)
    assert ("[zyxwv]" in found) == (unit == "words")


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


def test_rows_of_the_quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subwords, "TYPOS", (0,))
    monkeypatch.setattr(subwords, "ARMS", {name: ARMS[name] for name in ("pieces", "GBST")})
    torch.manual_seed(3)
    state = torch.get_rng_state()
    rows = list(subwords.rows(quick=True, threads=torch.get_num_threads()))
    assert torch.equal(torch.get_rng_state(), state)
    figures = [row.figure for row in rows]
    assert figures[:2] == [f"{name}, 0 % typos, seed 0" for name in ("pieces", "GBST")]
    chosen = subwords.choices(subwords.build("GBST", 0))
    assert figures[2:] == [
        f"{x}, {what}, seed 0" for x in ("untrained", "trained") for what in chosen
    ]


def test_what_the_lesson_draws_is_whole() -> None:
    rows = json.loads(STORED.read_text())["experiments"]["subwords"]
    found = {row["figure"]: row["measured"] for row in rows}
    for seed in SEEDS:
        for name in ARMS:
            shares = [found[f"{name}, {typos} % typos, seed {seed}"] for typos in TYPOS]
            assert all(100 / len(TOPICS) < share < 100 for share in shares)
        assert found[f"words, 0 % typos, seed {seed}"] > found[f"words, 20 % typos, seed {seed}"]
