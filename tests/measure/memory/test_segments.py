"""The topic of memory, for what reads in segments: every row comes, and states do not grow."""

from attnlab.measure.benchmarks.memory import block_recurrent, transformer_xl


def test_quick_rows_of_transformer_xl() -> None:
    per_token, per_segment = transformer_xl.rows(quick=True, threads=1)
    assert per_token.at_least == 5
    assert per_token.measured == per_segment.measured * 8
    assert "M = 32, c = 8" in per_token.figure


def test_quick_rows_of_block_recurrence() -> None:
    kept, time = block_recurrent.rows(quick=True, threads=1)
    assert kept.measured == 1
    assert kept.met
    assert "after 64 tokens / after 16" in time.figure
    assert time.measured > 0
