"""Spans that are cut out: how long, where, and that source and target give the text again."""

from collections import Counter

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.span_corruption import Ids, SpanCorruptionOptions, noise_places
from attnlab.tasks import Batch, task
from attnlab.train import fit, model_options

VOCAB = 31


def corrupted(inputs, padding=None, seed: int = 0, **options):
    objective = attnlab.build("span_corruption", vocab=VOCAB, **options)
    return objective.prepare(
        Batch(inputs, inputs, padding), torch.Generator().manual_seed(seed)
    ), Ids.of(VOCAB, SpanCorruptionOptions(**options))


def text(rows: int, width: int):
    torch.manual_seed(1)
    return torch.randint(VOCAB, (rows, width))


def restored(source: list[int], target: list[int], ids: Ids) -> list[int]:
    """The text, each sentinel of the source replaced by what the target writes after it."""
    spans, here = dict[int, list[int]](), list[int]()
    for token in target:
        if ids.sentinel <= token < ids.end:
            here = spans.setdefault(token, [])
        elif token != ids.end:
            here.append(token)
    return [x for token in source if token != ids.end for x in spans.get(token, [token])]


def test_five_hundred_and_twelve_tokens_come_from_568() -> None:
    asked, ids = corrupted(text(3, 568))
    assert asked.source.shape == (3, 512)
    assert asked.targets.shape == (3, 114)
    assert (asked.source[:, -1] == ids.end).all()
    assert (asked.targets[:, -1] == ids.end).all()


@pytest.mark.parametrize("options", [{}, {"rate": 0.5, "span": 1}, {"rate": 0.9}, {"rate": 0}])
def test_source_and_target_give_the_text_again(options) -> None:
    inputs = text(20, 37)
    length = torch.randint(2, 38, (20,))
    padding = torch.arange(37) < length[:, None]
    asked, ids = corrupted(inputs, padding, **options)
    for row in range(20):
        source = asked.source[row][asked.source_padding[row]].tolist()
        target = asked.targets[row][asked.targets[row] != UNSCORED].tolist()
        assert restored(source, target, ids) == inputs[row, : length[row]].tolist()
        read = asked.inputs[row][asked.padding[row]].tolist()
        assert read == [ids.start, *target[:-1]]
        written = [token for token in target if ids.sentinel <= token < ids.end]
        assert written == [*range(ids.sentinel, ids.sentinel + len(written))]
        assert [token for token in source if ids.sentinel <= token < ids.end] == written


def test_spans_of_bytes_are_as_long_as_words() -> None:
    """As of ByT5: 15 % of 256 bytes are 38, in 2 spans of 20 in the mean; with spans of 3, 13."""
    text = task("documentation", unit="bytes", length=256)
    batch = text.batch("train", 50, 0)
    for options, spans in (({"span": 20}, 2), ({}, 13)):
        objective = attnlab.build("span_corruption", vocab=text.vocab, **options)
        with record() as notes:
            objective.prepare(batch, torch.Generator().manual_seed(0))
        cut = notes.last("hidden")
        assert (cut.sum(-1) == 38).all()
        assert ((cut & ~cut.roll(1, dims=1)).sum(-1) == spans).all()


def test_every_way_to_cut_a_text_is_as_likely_as_another() -> None:
    """6 of 10 tokens are noise, in 2 spans: 3 ways for what is kept, 5 for the noise."""
    options = SpanCorruptionOptions(rate=0.6, span=3)
    real = torch.ones(3000, 10, dtype=torch.bool)
    cut = noise_places(real, options, torch.Generator().manual_seed(0))
    ways = Counter(tuple(row) for row in cut.long().tolist())
    assert len(ways) == 15
    assert all(row[0] == 0 and row[-1] == 1 and sum(row) == 6 for row in ways)
    assert all(abs(count - 200) < 70 for count in ways.values())  # five standard deviations


def test_a_row_too_short_for_a_span_is_not_scored() -> None:
    padding = torch.tensor([[True, False, False], [False] * 3, [True, True, False]])
    asked, _ = corrupted(text(3, 3), padding)
    assert (asked.targets != UNSCORED).sum(-1).tolist() == [0, 0, 3]
    assert asked.source_padding.sum(-1).tolist() == [1, 0, 3]


def test_more_spans_than_sentinels_are_refused() -> None:
    with pytest.raises(ValueError, match="a row has 9 spans, more than sentinels=4"):
        corrupted(text(1, 60), rate=0.3, span=2, sentinels=4)


def test_what_is_hidden_is_noted() -> None:
    with record() as notes:
        asked, ids = corrupted(text(2, 40))
    assert notes.last("hidden").sum(-1).tolist() == [6, 6]
    assert ((asked.source >= ids.sentinel) & (asked.source < ids.end)).sum(-1).tolist() == [2, 2]


@pytest.mark.parametrize("options", [{}, {"rate": 0.5, "span": 1}, {"rate": 0.95}])
def test_no_source_or_target_is_longer_than_stated(options) -> None:
    objective = attnlab.build("span_corruption", vocab=VOCAB, **options)
    for width in (2, 3, 7, 20):
        asked, _ = corrupted(text(2, width), **options)
        longest = max(asked.source.shape[1], asked.inputs.shape[1])
        assert longest <= objective.longest(width)


def test_fit_trains_an_encoder_decoder_by_it() -> None:
    problem = task("copying", symbols=5, items=5)
    torch.manual_seed(0)
    options = model_options(problem, "span_corruption")
    assert (options["kind"], options["vocab"]) == ("encoder_decoder", problem.vocab + 102)
    model = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    rows = fit(
        model, problem, 30, batch_size=16, learning_rate=1e-2, objective="t5_spans", progress=False
    ).rows
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
