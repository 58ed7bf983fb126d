"""The papers' configurations, counted here, beside the printed counts."""

from itertools import permutations

from attnlab.models.published import (
    albert_counts,
    evolved_counts,
    mobilebert_counts,
    synthesizer_counts,
)
from attnlab.models.published_experts import switch_counts

ROWS = synthesizer_counts()
OURS = {row.model: row.parameters for row in ROWS}


def test_printed_order_is_ours_but_for_dense_plus_vanilla() -> None:
    """Wherever the paper prints two different numbers, ours differ in the same direction.

    Two pairs are the exception, both with Dense + Vanilla, whose printed 74 million are seven more
    than the Transformer's although Dense alone adds one: no F gives both.
    """
    different = [(a, b) for a, b in permutations(ROWS, 2) if a.published < b.published]
    assert len(different) == 18
    wrong = {(a.model, b.model) for a, b in different if a.parameters >= b.parameters}
    assert wrong == {("random_dense", "dense_vanilla"), ("random_vanilla", "dense_vanilla")}


def test_rows_without_dense_are_the_printed_ones() -> None:
    agree = {row.model for row in ROWS if round(row.parameters / 1e6) == row.published}
    names = {"transformer", "fixed_random", "random", "random_vanilla"}
    assert agree == names


def test_differences_are_the_formulas() -> None:
    """12 self-attention layers, dim = 512, 8 heads, L = 256; the vocabulary plays no part."""
    base = OURS["fixed_random"]
    biases = 12 * (512 + 8 * 256)
    assert OURS["transformer"] - base == 12 * 2 * 512**2
    assert OURS["random"] == OURS["transformer"]  # 8 · 256² = 2 · 512²
    assert OURS["dense"] - base == 12 * (512**2 + 512 * 256) + biases
    assert OURS["random_vanilla"] - OURS["transformer"] == 12 * (8 * 256**2 + 2)
    smaller = {row.model: row.parameters for row in synthesizer_counts(vocab=32_000)}
    assert {OURS[name] - smaller[name] for name in OURS} == {13_000 * 512}


def test_albert_is_as_printed_but_for_one_rounding() -> None:
    rows = {row.model: row for row in albert_counts()}
    assert [row.parameters for row in rows.values()] == [
        11_683_584,
        63_647_232,
        37_686_528,
        89_650_176,
        11_683_584 - 64 * (30_516 + 768),
        11_683_584 + 128 * (30_516 + 768),
    ]
    different = {name for name, row in rows.items() if round(row.parameters / 1e6) != row.published}
    assert different == {"nothing shared"}


def test_mobilebert_is_24_layers_and_an_embedding() -> None:
    mobile, tiny, teacher = (row.parameters for row in mobilebert_counts())
    embedding = 30_522 * 128 + (384 + 1) * 512 + 512 * 512 + 2 * 512 + 2 * 512
    assert mobile == 24 * 842_240 + embedding == 24_581_888
    assert tiny == 24 * 463_232 + embedding
    assert teacher == 24 * 12_076_544 + embedding


def test_what_is_said_of_mobileberts_differences() -> None:
    mobile, tiny, teacher = mobilebert_counts()
    pooler = output = 512 * 513
    named = pooler + output + 2 * 512 + 30_522 + 2 * 513
    assert round(named / 1e6, 2) == 0.56
    assert round(mobile.published - (mobile.parameters + named) / 1e6, 2) == 0.16
    assert round(tiny.parameters / 1e6 - 24 * 128 * 129 / 1e6, 2) == 15.09
    not_listed = 24 * (10_752 + 7_168) + 514 * 512 + 3 * 512
    assert round(not_listed / 1e6, 1) == 0.7
    assert round(teacher.parameters / 1e6 - teacher.published, 1) == 1.2


def test_numbers_that_nobody_here_has_read_are_marked() -> None:
    rows = [*synthesizer_counts(), *albert_counts(), *mobilebert_counts(), *evolved_counts()]
    unread = {row.model for row in rows if row.source.startswith("not verified")}
    assert {"IB-BERT", "Evolved Transformer big", "dense"} <= unread
    assert not unread & {"MobileBERT", "MobileBERT-tiny", "all shared"}
    assert all(row.source for row in (*rows, *switch_counts()))


def test_the_evolved_transformer_is_as_printed() -> None:
    """With the norm inside its decoder's feed-forward layer: 2 · 2,048 numbers in each cell."""
    rows = evolved_counts()
    assert all(round(row.parameters / 1e6, 1) == row.published for row in rows)
    base = rows[1]
    assert round((base.parameters - 4 * 2 * 2048) / 1e6, 1) == 64.0
