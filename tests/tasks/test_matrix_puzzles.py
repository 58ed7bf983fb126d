import numpy as np
import pytest

from attnlab.tasks.digits import from_patches, images_of_split
from attnlab.tasks.matrix_puzzles import MatrixPuzzles, answer_of, draw_matrices, square_of


@pytest.mark.parametrize("patch", [2, 8])
def test_panels_show_eight_numbers_and_the_target_is_the_ninth(patch):
    task = MatrixPuzzles(patch=patch, largest_step=3)
    images, labels = images_of_split("train")
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    batch = task.batch("train", 97, seed=2)
    for row, answer in zip(batch.inputs.numpy(), batch.targets.tolist(), strict=True):
        panels = from_patches(row, patch).astype(np.int64)
        assert answer_of([label_of[panel.tobytes()] for panel in panels]) == answer


@pytest.mark.parametrize("largest", [1, 2, 4])
def test_rows_go_on_by_one_step_and_all_steps_occur_alike(largest):
    matrices = draw_matrices(6000, largest, np.random.default_rng(0)).reshape(-1, 3, 3)
    assert matrices.min() == 0
    assert matrices.max() == 9
    steps = np.diff(matrices, axis=2)
    assert (steps == steps[:, :1, :1]).all()
    found, counts = np.unique(steps[:, 0, 0], return_counts=True)
    assert found.tolist() == list(range(-largest, largest + 1))
    assert counts.min() > 0.85 * 6000 / len(found)


def test_first_numbers_use_all_the_room_of_a_step():
    matrices = draw_matrices(6000, 4, np.random.default_rng(0)).reshape(-1, 3, 3)
    for step in range(-4, 5):
        rows = matrices[matrices[:, 0, 1] - matrices[:, 0, 0] == step].reshape(-1, 3)
        ends = np.unique(rows[:, [0, 2]].max(1))
        assert ends.tolist() == list(range(2 * abs(step), 10))


def test_answers_by_hand():
    assert answer_of([1, 2, 3, 4, 5, 6, 7, 8]) == 9
    assert answer_of([5, 3, 1, 9, 7, 5, 4, 2]) == 0
    assert answer_of([7, 7, 7, 0, 0, 0, 3, 3]) == 3


def test_an_example_is_a_square_without_its_last_panel():
    example = MatrixPuzzles().example(4)
    assert example.image.shape == (26, 26)
    assert not example.image[18:, 18:].any()
    assert not example.image[8].any()
    panels = np.arange(8)[:, None, None] + np.ones((8, 8, 8), dtype=np.int64)
    square = square_of(panels)
    assert [square[9 * row, 9 * column] for row in range(3) for column in range(3)] == [
        *range(1, 9),
        0,
    ]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: MatrixPuzzles(patch=3), "patch should divide 8"),
        (lambda: MatrixPuzzles(largest_step=0), "largest_step should be at least 1, got 0"),
        (lambda: MatrixPuzzles(largest_step=5), "a step of at most 4, got largest_step=5"),
        (lambda: answer_of([1, 2, 3]), r"shows 8 numbers, got shape \(3,\)"),
        (lambda: answer_of([1, 2, 3, 4, 5, 7, 7, 8]), "do not go on by one step"),
        (lambda: answer_of([1, 2, 3, 4, 5, 6, 8, 9]), "do not go on by one step from 0 to 9"),
    ],
)
def test_what_is_no_matrix_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
