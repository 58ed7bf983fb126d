"""The experiment `hops_and_tables`, small: what its models may know, its measures, stored rows."""

from dataclasses import replace

import pytest
import torch

from attnlab.experiments import hops_and_tables as experiment
from attnlab.experiments import stored
from attnlab.experiments.hops_and_tables import PAGES, READERS, SEEDS
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.tasks.tables import Tables


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_layers_follow_as_many_links(layers: int) -> None:
    """The logit of a page changes with the text of pages that are at most so many links before."""
    task = PAGES[2]
    torch.manual_seed(0)
    model, t = experiment.LinkedReader(task, layers), task.page_length
    batch = task.batch("train", 1, 0)
    chain = [(i * t, (i + 1) * t) for i in range(task.pages - 1)]
    links = GraphBatch.of([Graph(task.length, chain)])
    batch = replace(batch, structure=replace(links, padding=batch.padding))
    changed = batch.inputs.clone()
    changed[0, t - task.words - 1] += 1  # a word of page 0
    with torch.no_grad():
        moved = model(replace(batch, inputs=changed)) != model(batch)
    assert moved[0].tolist() == [i <= layers for i in range(task.pages)]


def test_common_words_are_counted() -> None:
    task = Tables()
    for question in task.questions("validation", 20, 1):
        no, yes = experiment.common_words(task.pairs(question)).unbind(1)
        asked = set(question.question.split())
        for row in range(5):
            words = set(question.table.row_text(row).split())
            assert yes[row] == len(words & asked)
        assert (no == 0).all()


def test_a_cell_is_right_if_its_row_and_its_column_are() -> None:
    def of_row(question, wrong=0):
        return 10 * torch.eye(2)[[int(i != question.row + wrong) for i in range(5)]].flip(1)

    def of_column(question):
        count = len(question.table.header)
        return 10 * torch.eye(2)[[int(i != question.column) for i in range(count)]].flip(1)

    assert experiment.right_cells(of_row, of_column, 9) == {"row": 100, "column": 100, "cell": 100}
    found = experiment.right_cells(lambda q: of_row(q, wrong=7), of_column, 9)
    assert found["column"] == 100
    assert found["cell"] == found["row"] < 60


def test_the_right_row_is_counted() -> None:
    def reader(batch):
        return torch.stack([torch.zeros(len(batch)), batch.targets.float()], 1)

    assert experiment.right_rows(reader, "largest", 9) == 100
    assert experiment.right_rows(lambda batch: -reader(batch), "largest", 9) < 50


def test_arms_are_what_they_are_called() -> None:
    task = Tables()
    kinds = [experiment._reader(arm, task) for arm in READERS]
    assert [getattr(kind, "marks", None) is not None for kind in kinds] == [True, False, False]
    assert type(kinds[2]).__name__ == "TwoEncoders"


def test_what_the_lesson_says_of_the_stored_rows() -> None:
    found = stored("55_hops_and_tables.json", "hops_and_tables")
    for seed in SEEDS:
        for hops in PAGES:
            scores = [
                found[f"{hops} hops; {layers} layers; seed {seed}"] for layers in range(hops + 1)
            ]
            assert max(scores[:-1]) < 75 < 95 <= scores[-1]
        for arm in READERS:
            parts = [
                found[f"tables; {arm}; {what}; seed {seed}"] for what in ("row", "column", "cell")
            ]
            assert parts[2] <= min(parts)
        named = found[f"tables; interaction; row; seed {seed}"]
        assert found[f"largest; interaction; rows; seed {seed}"] < named - 20
