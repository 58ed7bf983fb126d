"""What every task guarantees, and how tasks are found."""

import random
import subprocess
import sys
import time
from dataclasses import fields

import numpy as np
import pytest
import torch

from attnlab.tasks import UNSCORED, Batch, task, tasks

PARTS = ("inputs", "targets", "padding", "source", "source_padding")


OF_IMAGES = (
    "captions",
    "digits",
    "grid_world",
    "interleaved",
    "matrix_puzzles",
    "placed_digits",
    "receipts",
    "scenes",
)
SLOWLY_DRAWN = (
    "agreement",
    "graph_questions",
    "linked_pages",
    "listops",
    "logic",
    "logic_grids",
    "node_labels",
    "pcfg",
)


def same(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, part), getattr(other, part)) for part in PARTS]
    if one.structure is not None:
        pairs += [
            (getattr(one.structure, each.name), getattr(other.structure, each.name))
            for each in fields(one.structure)
        ]
    return all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)


def test_every_task_of_the_folder_is_found_and_tested_here(variant_names):
    assert set(tasks()) == variant_names
    assert all(kind.name == name for name, kind in tasks().items())


def test_a_batch_depends_on_its_arguments_alone(any_task):
    first = any_task.batch("train", 11, seed=3)
    any_task.batch("validation", 2, seed=5)
    any_task.batch("train", 7, seed=4)
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    assert same(any_task.batch("train", 11, seed=3), first)
    assert same(any_task.batch("train", np.int64(11), seed=np.int64(3)), first)


def test_seed_and_split_matter(any_task):
    first = any_task.batch("train", 11, seed=3)
    assert not same(any_task.batch("train", 11, seed=4), first)
    assert not same(any_task.batch("validation", 11, seed=3), first)


def test_global_random_state_is_left_alone(any_task):
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    any_task.batch("train", 11, seed=3)
    any_task.example(2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert random.getstate() == before[2]


def test_a_batch_is_what_the_model_options_say(any_task):
    options, batch = any_task.model_options(), any_task.batch("train", 11, seed=0)
    assert len(batch) == 11
    assert options["max_len"] == any_task.length
    if batch.inputs.shape[1] != any_task.length:  # then the longest row fills it
        assert batch.inputs.shape[1] < any_task.length
        assert batch.padding[:, -1].any()
    if options["features"]:
        assert options["vocab"] is None
        assert batch.inputs.dtype == torch.float32
        assert batch.inputs.shape[2] == options["features"]
    else:
        assert batch.inputs.dtype == torch.int64
        assert 0 <= batch.inputs.min() <= batch.inputs.max() < options["vocab"]
    assert batch.targets.dtype == torch.int64
    answers = batch.targets[batch.targets != UNSCORED]
    if "classifier" in options["kind"]:
        shape = (11,) if options["kind"] == "classifier" else batch.inputs.shape
        assert batch.targets.shape == shape
        assert 0 <= answers.min() <= answers.max() < options["classes"]
    else:
        assert options["classes"] is None
        assert batch.targets.shape == batch.inputs.shape
        assert 0 <= answers.min() <= answers.max() < options["vocab"]
        assert (batch.targets != UNSCORED).any(dim=1).all()
    assert (batch.source is not None) == (options["kind"] == "encoder_decoder")


def test_targets_are_the_next_inputs(any_task):
    if "classifier" in any_task.kind:
        pytest.skip("a classifier has no next token")
    batch = any_task.batch("train", 11, seed=1)
    if any_task.name == "needle":
        answers_stand_once_before_their_questions(batch)
        return
    if any_task.name in ("gist", "lookup"):  # nor these: the inputs there are questions alone
        scored = batch.targets != UNSCORED
        assert not torch.isin(batch.inputs[scored], batch.targets[scored]).any()
        return
    if any_task.name == "group_words":  # nor here: the products are asked for, and never read
        assert torch.equal(batch.targets[:, 0], batch.inputs[:, 0])
        assert (batch.targets[:, 1:] != batch.inputs[:, 1:]).any()
        return
    asked, following = batch.targets[:, :-1], batch.inputs[:, 1:]
    scored = asked != UNSCORED
    if batch.padding is not None:  # the last answer of a shorter row is not read
        scored &= batch.padding[:, 1:]
    # Recall with one query has its only answer after the last input.
    assert scored.any() or (batch.targets[:, -1] != UNSCORED).all()
    assert torch.equal(asked[scored], following[scored])


def answers_stand_once_before_their_questions(batch: Batch) -> None:
    """The needle's answers are not read in after the questions, as other answers are.

    The next question would copy the last answer from nearby, and the task, which is to measure who
    reaches the needle, would measure a chain of short steps.
    """
    for row, place in (batch.targets != UNSCORED).nonzero().tolist():
        same_token = batch.inputs[row] == batch.targets[row, place]
        assert same_token[:place].sum() == 1
        assert not same_token[place:].any()


def test_no_row_is_in_both_splits(any_task):
    if any_task.name in ("documentation", "topics"):
        pytest.skip("windows as short as these repeat; its own tests compare runs of words")

    def rows(split: str, size: int) -> set[bytes]:
        batch = any_task.batch(split, size, seed=0)
        whole = batch.inputs if batch.source is None else batch.source
        if any_task.kind == "language_model" and batch.padding is None:
            whole = torch.cat([whole, batch.targets[:, -1:]], dim=1)
        padding = batch.padding if batch.source is None else batch.source_padding
        padding = torch.ones(whole.shape[:2], dtype=torch.bool) if padding is None else padding
        seen = [row[real].numpy().tobytes() for row, real in zip(whole, padding, strict=True)]
        if any_task.name != "graph_questions":
            return set(seen)  # there, the edges are what differs
        ends = torch.stack([batch.structure.sources, batch.structure.targets], 1)
        counts = (batch.structure.targets // whole.shape[1]).bincount(minlength=len(batch))
        graphs = (ends % whole.shape[1]).split(counts.tolist())
        pairs = zip(seen, graphs, strict=True)
        return {row + edges.numpy().tobytes() for row, edges in pairs}

    # Rows of trees and graphs take long, those of validation eight times as long as training's.
    sizes = (2000, 500) if any_task.name in SLOWLY_DRAWN else (1500, 1500)
    train, validation = map(rows, ("train", "validation"), sizes)
    assert len(train) > 100
    assert len(validation) > 100
    assert train.isdisjoint(validation)


def test_examples_say_what_a_picture_needs(any_task):
    example = any_task.example(3)
    assert example.title
    assert example.description.endswith((".", "?")) or any_task.name in ("documentation", "topics")
    row = any_task.batch("validation", 1, seed=3).inputs
    assert len(example.tokens) == (0 if any_task.features else row.shape[1])
    assert len(example.labels) == (1 if any_task.kind == "classifier" else row.shape[1])
    assert all(isinstance(token, str) and token for token in example.tokens)
    assert any(example.labels)
    assert (example.image is not None) == (any_task.name in OF_IMAGES)
    assert bool(example.source) == (
        any_task.kind == "encoder_decoder" and any_task.name not in OF_IMAGES
    )
    again, other = any_task.example(3), any_task.example(4, split="train")
    assert again.labels == example.labels
    assert again.tokens == example.tokens
    said = (other.description, other.tokens) != (example.description, example.tokens)
    assert said or not np.array_equal(other.image, example.image)


def test_tasks_are_values(any_task):
    twin = type(any_task)(**vars(any_task))
    assert twin == any_task
    assert hash(twin) == hash(any_task)
    with pytest.raises(AttributeError):
        any_task.kind = "other"


def test_a_batch_can_be_cut_and_moved():
    batch = task("copying", items=5, kind="encoder_decoder").batch("train", 7, seed=0)
    assert same(batch[0:7], batch)
    assert torch.equal(batch[2:5].inputs, batch.inputs[2:5])
    assert torch.equal(batch[2:5].source, batch.source[2:5])
    assert batch[2:5].padding is None
    assert len(batch[2:5]) == 3
    moved = batch.to("meta")
    assert {moved.inputs.device.type, moved.targets.device.type, moved.source.device.type} == {
        "meta"
    }
    with pytest.raises(TypeError, match=r"batch\[3:4\]"):
        batch[3]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: task("recal"), "no task 'recal'; did you mean 'recall'"),
        (lambda: task("xyz"), "no task 'xyz'; known: addition, agreement, captions, citations"),
        (lambda: task("documentation", unit="byte"), "no unit 'byte'; did you mean 'bytes'"),
        (lambda: task("copying").batch("trian", 1, 0), "no split 'trian'; did you mean 'train'"),
        (lambda: task("copying").batch("train", 0, 0), "size should be at least 1, got 0"),
        (lambda: task("copying").batch("train", 1, -1), "seed should be at least 0, got -1"),
        (lambda: task(["copying"]), r"no task \['copying'\]; did you mean 'copying'"),
        (lambda: task(None), "no task None; known: addition"),
        (lambda: task("documentation", unit=np.array(["a", "b"])), "no unit array"),
        (lambda: task("copying").batch(["train"], 1, 0), "no split"),
        (lambda: task("copying").batch("train", 10**12, 0), "at most 33,554,432 positions in all"),
        (lambda: task("copying", items=5).batch("train", 1, 0).to("nowhere"), "device should name"),
        (lambda: task("copying", items=5).batch("train", 3, 0)[::-1], "cut forwards, got a step"),
        (lambda: task("copying").example(-1), "index should be at least 0, got -1"),
    ],
)
def test_wrong_values_are_refused_in_sentences(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("copying", {"items": 10**9}),
        ("reversing", {"symbols": 10**9}),
        ("sorting", {"items": 10**9, "symbols": 10**9}),
        ("recall", {"pairs": 10**8, "keys": 10**8}),
        ("copy_first", {"levels": 10**9}),
        ("denoising", {"steps": 10**9}),
        ("set_maximum", {"most": 10**9}),
        ("gaussian_mixtures", {"points": 10**9}),
        ("induction", {"length": 10**9, "symbols": 10**9}),
        ("needle", {"length": 10**9}),
        ("gist", {"length": 10**9}),
        ("graph_questions", {"nodes": 10**9}),
        ("lookup", {"length": 10**9}),
        ("listops", {"leaves": 10**9}),
        ("logic", {"leaves": 10**9}),
        ("python_types", {"deepest": 10**9}),
        ("digits", {"unit": "patches", "patch": 10**9}),
        ("documentation", {"length": 10**9}),
        ("topics", {"length": 10**9}),
        ("refrain", {"period": 10**9}),
        ("tables", {"rows": 10**9}),
        ("documentation", {"unit": "bpe", "bpe_size": 10**9}),
    ],
)
def test_sizes_out_of_all_proportion_are_refused_at_once(name, options):
    began = time.perf_counter()
    with pytest.raises(ValueError, match=r"should be at most 1,048,576, got 1\d+"):
        task(name, **options)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("name", ["copying", "recall", "induction", "needle", "gist", "lookup"])
def test_the_largest_sizes_are_built_at_once(name):
    sizes = {field.name for field in fields(tasks()[name])} - {"kind", "questions", "queries"}
    began = time.perf_counter()
    task(name, **dict.fromkeys(sizes, 2**20) | ({"stretch": 2**19 - 1} if name == "gist" else {}))
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: task("copying", item=3), "no option 'item'; did you mean 'items'"),
        (lambda: task("digits", name="x"), "multiple values|no option"),
        (lambda: task("copying", items="8"), "items should be a whole number, got '8'"),
        (lambda: task("copying", items=True), "items should be a whole number, got True"),
        (lambda: task("gist", stretch=31.0), "stretch should be a whole number, got 31.0"),
        (lambda: task("needle", every=float("nan")), "every should be a whole number, got nan"),
        (lambda: task("documentation", vocabulary=3), "vocabulary is the JSON text .*, got a int"),
        (lambda: task("copying").batch("train", 2, 0)["a":], "slice of whole numbers"),
        (
            lambda: Batch(None, torch.zeros(3)),
            "inputs of a batch should be a tensor, got a NoneType",
        ),
        (lambda: Batch(torch.zeros(3), torch.zeros(3), [True]), "padding of a batch should be"),
        (lambda: task("copying").batch("train", 1.5, 0), "size should be a whole number, got 1.5"),
    ],
)
def test_wrong_kinds_are_refused_in_sentences(call, sentence):
    with pytest.raises(TypeError, match=sentence):
        call()


def test_importing_tasks_needs_neither_tokenizers_nor_scikit_learn():
    program = (
        "import sys; from attnlab.tasks import tasks; tasks();"
        "assert not {'tokenizers', 'sklearn', 'plotly'} & set(sys.modules), 'too much is imported'"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_integers_of_numpy_are_welcome():
    built = task("copying", items=np.int64(5), symbols=np.uint8(7))
    assert built == task("copying", items=5, symbols=7)
    assert type(built.items) is type(built.symbols) is int
