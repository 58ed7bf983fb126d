"""The topic `budget`, small: every figure is there, and what is lost is what loops say."""

import math
from typing import Any

import pytest
import torch

from attnlab.compression.budget_cache import Quest, Window, budget_cache
from attnlab.measure.benchmarks import budget
from attnlab.measure.report import Row

AFTER, IN_THE_PROMPT = budget.WHEN


@pytest.fixture(scope="module")
def quick() -> dict[str, Row]:
    return {row.figure: row for row in budget.rows(quick=True, threads=1)}


def test_a_quick_run_has_every_figure(quick: dict[str, Row]) -> None:
    assert list(quick) == budget.figures(64)
    assert len(quick) == 19
    assert (quick[budget.copying(64)].measured or 0) > 0
    for name in budget.policies(32):
        time = quick[budget.timed(name, 64)]
        assert time.measured is not None
        assert time.measured > 0
        assert "of 65 tokens read" in time.note
        assert 0 < (quick[budget.told(name, 64, AFTER)].measured or 0) < 150
        assert "of 8 asked tokens read" in quick[budget.told(name, 64, AFTER)].note


def test_what_is_measured_already_is_not_measured_again(monkeypatch: Any) -> None:
    kept = {name: Row(name, 1.0) for name in budget.figures(64)}
    with monkeypatch.context() as patched:
        patched.setattr(budget, "measured", lambda *_, **__: pytest.fail("measured again"))
        assert list(budget.batches(quick=True, threads=1, kept=kept)) == [[*kept.values()]]
    kept.popitem()
    monkeypatch.setattr(budget, "measured", lambda m, **_: iter([Row("new", 2.0)]))
    assert list(budget.batches(quick=True, threads=1, kept=kept)) == [[Row("new", 2.0)]]


@pytest.mark.parametrize("m", [128, 512])
@pytest.mark.parametrize("when", budget.WHEN)
def test_the_asked_token_has_nine_tenths_of_the_weight(m: int, when: str) -> None:
    found = budget.lost(m, {"window": Window(budget=9)}, when, draws=3)["window"]
    assert 0.85 < found.weight < 0.95
    assert found.asked == 24


@pytest.mark.parametrize("when", budget.WHEN)
def test_a_budget_for_the_whole_text_loses_nothing(when: str) -> None:
    for name, found in budget.lost(90, budget.policies(92), when, draws=1).items():
        if name != "Quest":  # it reads whole pages alone
            assert found.lost < 1e-5, name
            assert found.read == 8
    everything = budget.lost(90, {"Quest": Quest(budget=100, page=5)}, when, draws=1)["Quest"]
    assert everything.lost < 1e-5


def test_what_a_window_loses_by_a_loop() -> None:
    """The answer from the last b tokens and the question itself, written out."""
    m, b, seed = 64, 20, 5
    attention, turn = budget.head(seed)
    text = budget.asked(m, turn, seed, in_the_prompt=False)
    whole = budget.answers(attention, text)
    small = budget.answers(budget_cache(attention, Window(budget=b)), text)
    for i, place in enumerate(text.places):
        question, outs = text.questions[0, i], []
        for first in (0, m - b):
            rows = torch.cat((text.tokens[0, first:], question[None]))
            powers = [math.exp(float((turn @ question) @ row) / 8) for row in rows]
            share = [power / sum(powers) for power in powers]
            outs.append(sum(s * row for s, row in zip(share, rows, strict=True)))
            held = whole if first == 0 else small
            weight = share[place - first] if place >= first else 0.0
            assert float(held.weights[i]) == pytest.approx(weight, abs=1e-5)
        torch.testing.assert_close(whole.out[i], outs[0], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(small.out[i], outs[1], rtol=1e-3, atol=1e-4)
    found = budget.compared(small, whole)
    assert found.read == sum(place >= m - b for place in text.places) == 2
    distance = [float((a - c).norm() / c.norm()) for a, c in zip(small.out, whole.out, strict=True)]
    assert found.lost == pytest.approx(sum(distance) / 8)
    assert [x > 0.7 for x in distance] == [place < m - b for place in text.places]


def test_asked_tokens_are_drawn_like_the_others_and_questions_end_the_prompt() -> None:
    _, turn = budget.head(0)
    texts = [budget.asked(100, turn, 0, in_the_prompt=asked) for asked in (False, True)]
    assert texts[0].places == texts[1].places == [5, 17, 28, 40, 51, 63, 74, 86]
    torch.testing.assert_close(texts[0].tokens[:, :92], texts[1].tokens[:, :92])
    torch.testing.assert_close(texts[1].tokens[:, 92:], texts[1].questions)
    pointed = (texts[0].questions @ turn.T)[0]
    for query, place in zip(pointed, texts[0].places, strict=True):
        key = texts[0].tokens[0, place]
        assert float(torch.cosine_similarity(query, key, dim=0)) == pytest.approx(1, abs=1e-5)
    assert not torch.equal(texts[0].tokens, budget.asked(100, turn, 1, in_the_prompt=False).tokens)


def test_snapkv_keeps_what_the_prompt_asks_for_and_nothing_else_does_as_well() -> None:
    given = budget.policies(128)
    before, after = (budget.lost(600, given, when, draws=1) for when in (IN_THE_PROMPT, AFTER))
    assert before["SnapKV"].read == 8
    assert after["SnapKV"].read < 8
    assert before["window"].read == after["window"].read == 2
    assert 2 < after["Quest"].read < 8, "all tokens are there, and bounds find some of them"


def test_tokens_read_and_bytes_held() -> None:
    calls = budget.decoded(100, budget.policies(24))
    read = {name: call.read() for name, call in calls.items()}
    # Quest: 3 whole pages of 6, and 5 tokens of its own
    assert read == {
        "full": 101, "window": 25, "sinks": 25, "H2O": 25, "SnapKV": 25, "Quest": 23, "random": 25,
    }  # fmt: skip
    each = 2 * 512 * 4
    assert calls["full"].held() == 101 * each
    more = 8 * (8 + 4)  # place and score of each token and head
    assert calls["window"].held() == 24 * (each + more)
    assert calls["SnapKV"].held() == 25 * (each + more), "what is written stays"
    assert calls["Quest"].held() == 101 * (each + more)


def test_the_state_that_is_timed_has_the_shape_of_one_that_was_read() -> None:
    for name, policy in budget.policies(24).items():
        small: Any = budget_cache(budget.layer(budget.HEADS), policy)
        made = budget.after(small, 100)
        with torch.no_grad():
            read = small.step(torch.randn(1, 100, budget.HEADS * budget.WIDTH), None)[1]
        assert made.length == read.length == 100
        assert [x.shape for x in made[:4]] == [x.shape for x in read[:4]], name
        if name in ("window", "Quest"):
            assert torch.equal(made.at, read.at)
