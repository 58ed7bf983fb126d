"""The experiment `unlimited_input`, small: its rows, its shortcut, and what is stored."""

import torch

from attnlab.experiments import unlimited_input
from attnlab.experiments.unlimited_input import (
    ASK,
    Book,
    build,
    memorized,
    with_memory,
)


def test_only_the_last_layer_has_a_memory() -> None:
    layers = [block.attention for block in build("copy", "memory", 0, memory=96).decoder.blocks]
    assert [layer.options.memory for layer in layers] == [0, 96]
    assert [b.attention.options.memory for b in build("copy", "local", 0).decoder.blocks] == [0, 0]


def test_gates_are_shares_of_the_memory() -> None:
    model = build("needle", "memory", 0)
    with torch.no_grad():
        model.decoder.blocks[-1].attention.gate.copy_(torch.tensor([0.0, 3.0]).log1p())
    assert unlimited_input.gates(model) == [0.5, 0.8]  # of 1 : 1 and 4 : 1


def test_scores_are_shares_of_what_is_asked(monkeypatch) -> None:
    batch = Book("copy", 128).batch("validation", 3, seed=0)
    monkeypatch.setattr(Book, "batch", lambda *given, seed: batch)

    class Knows:
        """Right but for the last answers of each text."""

        def advance(self, tokens, state):
            start = state or 0
            answers = batch.targets[:, start : start + tokens.shape[1]].clamp(min=0)
            answers[:, max(0, 120 - start) :] = ASK
            return torch.nn.functional.one_hot(answers, ASK + 1), start + tokens.shape[1]

    monkeypatch.setattr(unlimited_input, "with_memory", lambda *given: Knows())
    wrong, asked = 7, 63  # 120 … 126 of 64 … 126
    found = unlimited_input.score(None, "copy", "local", 128)
    assert found == round(100 * (asked - wrong) / asked, 2)


def test_long_texts_are_scored_a_few_at_a_time(monkeypatch) -> None:
    """And all of them: the share of answers that repeat the token before them, of eleven texts."""
    sizes = []

    class Repeats:
        def advance(self, tokens, state):
            sizes.append(len(tokens))
            return torch.nn.functional.one_hot(tokens, ASK + 1), None

    monkeypatch.setattr(unlimited_input, "with_memory", lambda *given: Repeats())
    monkeypatch.setattr(unlimited_input, "AT_ONCE", 4 * 128)
    batch = Book("copy", 128, first=24).batch("validation", 11, seed=7)
    right = (batch.inputs == batch.targets)[batch.targets != -100].double().mean().item()
    assert unlimited_input.score(None, "copy", "local", 128, texts=11) == round(100 * right, 2) > 0
    assert set(sizes) == {4, 3}


def test_the_needles_of_long_texts_differ() -> None:
    batch = Book("needle", 200_000, first=24).batch("validation", unlimited_input.TEXTS, seed=7)
    keys = batch.targets.amax(1)
    assert len(keys) == 32
    assert len(keys.unique()) > 10


def test_storing_without_queries_is_reading() -> None:
    model = with_memory(build("needle", "memory", 0), "needle", "memory", 500)
    tokens, more = torch.randint(ASK, (2, 96)), torch.randint(ASK, (2, 32))
    _, state = model.advance(tokens)
    expected, _ = model.advance(more, state)
    torch.testing.assert_close(model.advance(more, memorized(model, tokens))[0], expected)
