"""The row of two timings: its ratio round by round, and the words about both."""

from pathlib import Path

import pytest

from attnlab.measure import benchmarks
from attnlab.measure.comparison import Keys, all_keys, ratio
from attnlab.measure.timing import Timing


def timing(name, *seconds, user=0.0, system=0.0, processor=()):
    middle = sorted(seconds)[len(seconds) // 2]
    return Timing(name, seconds, middle, (middle, middle), 1, (1, 1), user, system, processor)


THEIRS = timing("package", 6.0, 4.0, 20.0, user=0.7, system=0.11)
OURS = timing("ours", 2.0, 4.0, 4.0, user=0.013, system=0.0017)


def test_ratios_are_taken_round_by_round():
    row = ratio("package / ours", THEIRS, OURS, work="nothing", at_least=2.5)
    assert row.measured == 3  # of 3, 1, 5; the ratio of the medians is 1.5
    assert row.quartiles == (2, 4)
    assert (row.figure, row.unit, row.at_most, row.met) == ("package / ours", "×", None, True)
    other = ratio("ours / package", OURS, THEIRS, work="nothing", at_most=0.3)
    assert other.measured == pytest.approx(1 / 3)
    assert other.met is False


def test_ratios_may_be_those_of_the_processor():
    """Of 2 s, the first call waited 4 s for another program in its second round."""
    ours = timing("ours", 2.0, 6.0, 2.0, processor=(2.0, 2.0, 2.0))
    theirs = timing("package", 3.0, 3.0, 9.0, processor=(3.0, 3.0, 5.0))
    row = ratio("package / ours", theirs, ours, work="nothing", at_least=1.5, of_processor=True)
    assert (row.measured, row.quartiles, row.met) == (1.5, (1.5, 2), True)
    assert ratio("package / ours", theirs, ours, work="nothing").quartiles == (1, 3)


def test_rounds_of_two_runs_are_not_paired():
    with pytest.raises(ValueError, match="shorter"):
        ratio("a / b", THEIRS, timing("b", 1.0, 1.0), work="nothing")


def test_the_note_says_what_each_took_and_computed():
    row = ratio("package / ours", THEIRS, OURS, work=(Keys(129, 192), Keys(129, 260)))
    clock, own, keys, computed = row.note.split("; ")
    assert clock == "package: 6e+03 ms (user 700, system 110)"
    assert own == "ours: 4e+03 ms (user 13, system 1.7)"
    assert keys == "keys of a query: 129 seen in both"
    assert computed == "192 computed by package, 260 by ours"


def test_what_does_not_differ_is_said_once():
    row = ratio("package / ours", THEIRS, OURS, work=Keys(1000.4, 2000))
    assert row.note.endswith("keys of a query: 1,000 seen in both; 2,000 computed in both")
    row = ratio("package / ours", THEIRS, OURS, work="one transform in both")
    assert row.note.endswith("; one transform in both")


def test_every_topic_with_peers_has_its_ratios_from_here():
    """So that each of them states times of the processor and what both compute."""
    (folder,) = benchmarks.__path__
    sources = {path.stem: path.read_text() for path in Path(folder).rglob("*.py")}
    signs = ("find_spec", "measure import peers", "cannot be imported")
    with_peers = {stem: text for stem, text in sources.items() if any(s in text for s in signs)}
    assert {"patterns", "lowrank", "kernelized", "reformer", "sinkhorn"} <= set(with_peers)
    for stem, text in with_peers.items():
        assert "ratio_quartiles" not in text, stem
        assert "from attnlab.measure.comparison import" in text, stem


def test_fused_causal_attention_computes_whole_blocks():
    assert all_keys(1024) == (1024, 1024)
    assert all_keys(1024, causal=True) == (512.5, 640)  # blocks of 256 queries
    assert all_keys(256, causal=True) == (128.5, 160)
    assert all_keys(16, causal=True) == (8.5, 16)
