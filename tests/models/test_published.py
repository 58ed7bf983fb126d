"""The paper's base configurations, counted here, beside the printed counts."""

from itertools import permutations

from attnlab.models.published import synthesizer_counts

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
