"""The experiment `interleaved_texts`, small: what an arm reads, and what is hidden of a puzzle."""

import numpy as np
import pytest
import torch

from attnlab.experiments import interleaved_texts as experiment
from attnlab.experiments import stored
from attnlab.experiments.words_for_images import KINDS, asked
from attnlab.tasks.interleaved import LARGEST_STEP, MARKER
from attnlab.tasks.matrix_puzzles import draw_matrices


@pytest.mark.parametrize(
    ("arm", "texts", "shown"),
    [
        ("text, captions, interleaved", True, {1, 2}),
        ("text and captions", True, {1}),
        ("captions and interleaved", False, {1, 2}),
        ("black images", True, {1, 2}),
        ("puzzles too", True, {1, 2, 8}),
    ],
)
def test_what_an_arm_reads(arm: str, texts: bool, shown: set[int]) -> None:
    batch = experiment.GRID.arms[arm].task.batch("train", 200, seed=0)
    images = (batch.inputs == MARKER).sum(1) // 2
    assert {*images.tolist()} == shown | ({0} if texts else set())
    if texts:
        assert 0.5 < (images > 0).double().mean() < 0.7


def test_arms_differ_in_what_they_read_alone() -> None:
    models = [experiment.GRID.build(arm, 1) for arm in experiment.GRID.arms]
    first = models[0].state_dict()
    for model in models:
        assert not model.freeze
        assert model.language_model.embedding.weight.requires_grad
        assert all(torch.equal(first[name], value) for name, value in model.state_dict().items())
    assert [model.blind for model in models] == [False, False, False, True, False]


@pytest.mark.parametrize("name", experiment.HIDDEN)
def test_hidden_panels_are_black_and_the_others_as_they_were(name: str) -> None:
    puzzles, panels = asked("next"), experiment.HIDDEN[name]
    found = experiment.hidden(puzzles, panels, 16).source.unflatten(1, (8, 16))
    before = puzzles.source.unflatten(1, (8, 16))
    for panel in range(8):
        same = torch.equal(found[:, panel], before[:, panel])
        assert same == (panel not in panels)
        assert found[:, panel].any() == (panel not in panels)


@pytest.mark.parametrize(("name", "known"), [("first rows", True), ("last row", False)])
def test_the_last_row_alone_gives_the_answer_and_the_others_never_do(
    name: str, known: bool
) -> None:
    """Of puzzles that look alike with some panels black, no two or at least six end differently."""
    matrices = draw_matrices(100_000, LARGEST_STEP, np.random.default_rng(0))
    seen = [panel for panel in range(8) if panel not in experiment.HIDDEN[name]]
    answers: dict[tuple[int, ...], set[int]] = {}
    for matrix in np.unique(matrices, axis=0).tolist():
        answers.setdefault(tuple(matrix[panel] for panel in seen), set()).add(matrix[8])
    counts = [len(each) for each in answers.values()]
    assert (max(counts) == 1) if known else (min(counts) >= 6)


def test_every_kind_is_scored_both_ways() -> None:
    model = experiment.GRID.build("text and captions", 0).eval()
    trained = experiment.Trained(model, experiment.GRID.arms["text and captions"], "", 0, True)
    found = experiment.score(trained)
    wanted = {f"{kind} {how}" for kind in KINDS for how in ("shown", "written")}
    assert {*found} == wanted | {"next, first rows hidden", "next, last row hidden"}


def test_stored_puzzles_are_solved_where_they_were_read_and_their_last_row_is_seen() -> None:
    """And two images are compared more often by an arm that has read such sentences."""
    rows = stored("91_interleaved_texts.json", "interleaved_texts")
    arms = list(experiment.GRID.arms)
    for seed in experiment.GRID.seeds:
        shown, written, covered, larger, named = (
            {arm: rows[f"{arm}, {what}, seed {seed}"] for arm in arms}
            for what in (
                "next shown", "next written", "next, last row hidden", "larger shown", "is shown"
            )
        )  # fmt: skip
        assert shown.pop("puzzles too") > 40 > 20 > covered["puzzles too"]
        assert max(shown.values()) < 20
        assert written.pop("captions and interleaved") < 20
        assert min(written.values()) > 90
        both, captions = arms[:2]
        assert larger[both] > larger[captions] + 10
        assert larger[captions] > larger["black images"] + 10
        assert named[captions] > named[both] > 70 > 20 > named["black images"]
