"""Counts of published mixtures of experts, on the meta device."""

from attnlab.models.published_experts import DIM, HIDDEN, LAYERS, switch_counts


def test_every_row_is_the_printed_one() -> None:
    for row in switch_counts():
        assert round(row.parameters / 1e8) == row.published / 100, row


def test_each_expert_adds_two_matrices_their_biases_and_a_row_of_the_router() -> None:
    one = 2 * DIM * HIDDEN + HIDDEN + DIM + DIM
    sizes = [row.parameters for row in switch_counts()]
    assert sizes[1] - sizes[0] == LAYERS * 16 * one
