import numpy as np
import pytest
import torch

from attnlab.tasks import UNSCORED
from attnlab.tasks.captions import NUMBERS
from attnlab.tasks.digits import from_patches, images_of_split
from attnlab.tasks.interleaved import (
    LARGEST_STEP,
    MARKER,
    NAMES,
    NEW_NAMES,
    SENTENCES,
    VECTORS,
    Interleaved,
)
from attnlab.tasks.matrix_puzzles import answer_of, draw_matrices


def said_and_answers(task: Interleaved, batch) -> list[tuple[list[str], list[str]]]:
    """Of each row the real tokens, and what is to be answered."""
    rows = zip(batch.inputs, batch.targets, batch.padding, strict=True)
    return [
        (task.tokens(tokens[real]), [name for name in task.tokens(targets) if name])
        for tokens, targets, real in rows
    ]


def digits_of(batch, row: int, patch: int = 2) -> list[int]:
    """The digits that the images of a row show, by looking them up."""
    images, labels = images_of_split("train")
    label_of = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    real = batch.source[row][batch.source_padding[row]].numpy()
    pictures = from_patches(real.reshape(-1, (8 // patch) ** 2, patch**2), patch)
    return [int(label_of[picture.astype("int64").tobytes()]) for picture in pictures]


def answer(kind: str, numbers: list[int], said: list[str]) -> str:
    first = numbers[0]
    if kind == "parity":
        return "even" if first % 2 == 0 else "odd"
    if kind == "named":
        names = [word for word in said if word in NEW_NAMES]
        assert len({*names[:2]}) == 2
        return names[numbers[:2].index(numbers[2])]
    value = {"is": first, "after": first + 1, "before": first - 1, "larger": max(numbers)}
    return NUMBERS[answer_of(numbers) if kind == "next" else value[kind]]


def numbers_said(said: list[str], count: int) -> list[int]:
    """Each is its word, said twice, wherever it stands before the answer."""
    words = [word for word in said[:-1] if word in NUMBERS]
    assert len(words) == VECTORS * count
    assert words[::2] == words[1::2]
    return [NUMBERS.index(word) for word in words[::2]]


@pytest.mark.parametrize("kind", SENTENCES)
@pytest.mark.parametrize("shown", [False, True])
def test_sentences_say_what_is_true_of_their_numbers(kind, shown):
    task = Interleaved(shown=(kind,)) if shown else Interleaved(written=(kind,), shown=())
    batch, answers = task.batch("train", 101, seed=0), set()
    form = SENTENCES[kind].split()
    count = sum(part.isdigit() for part in form)
    for row, (said, asked) in enumerate(said_and_answers(task, batch)):
        if shown:
            assert said.count("image") == VECTORS * count
            numbers = digits_of(batch, row)
        else:
            numbers = numbers_said(said, count)
        assert len(numbers) == count
        words = [part for part in form if not part.isdigit()]
        plain = [word for word in said if word in words]
        assert plain == [word for word in words if word not in "xy"]
        assert said[0] == "start"
        assert said[-1] == asked[-2] == answer(kind, numbers, said[:-1])
        assert said[-len(asked) + 1 :] == asked[:-1]
        after = form[max(i for i, part in enumerate(form) if part.isdigit()) + 1 :]
        assert asked == [*after, said[-1], "."]
        answers.add(asked[-2])
    possible = {"parity": 2, "after": 9, "before": 9, "larger": 9, "named": 4}
    assert len(answers) == possible.get(kind, 10)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("is", 10), ("after", 9), ("before", 9), ("parity", 10), ("larger", 90), ("next", 2456)],
)
def test_written_sentences_are_few(kind, count):
    """As many as the page says; puzzles are counted where they are drawn."""
    if kind == "next":
        drawn = draw_matrices(100_000, LARGEST_STEP, np.random.default_rng(0))[:, :8]
        assert len(np.unique(drawn, axis=0)) == count
    else:
        task = Interleaved(written=(kind,), shown=())
        assert len(task.batch("train", 2000, seed=0).inputs.unique(dim=0)) == count


def test_names_of_a_sentence_belong_to_two_numbers():
    task = Interleaved(written=("named",), shown=())
    for said, _ in said_and_answers(task, task.batch("train", 50, seed=0)):
        first, second, third = numbers_said(said, 3)
        assert first != second
        assert third in (first, second)


def test_a_share_of_the_sentences_is_shown():
    kinds = {"written": ("is", "larger", "next"), "shown": ("is", "larger")}
    for share in (None, 0.2, 0.8):
        batch = Interleaved(**kinds, share=share).batch("train", 1000, seed=0)
        shown = batch.source_padding.any(1).double().mean()
        assert abs(shown - (0.4 if share is None else share)) < 0.05


def test_written_and_shown_sentences_are_mixed_alike():
    task = Interleaved(written=("is", "larger"), shown=("parity", "larger"))
    batch = task.batch("train", 400, seed=3)
    images = batch.source_padding.sum(1) // 16
    assert ((batch.inputs == MARKER).sum(1) == VECTORS * images).all()
    kinds = {}
    for said, _ in said_and_answers(task, batch):
        kind = ("larger" in said, "image" in said)
        kinds[kind] = kinds.get(kind, 0) + 1
    assert len(kinds) == 4
    assert min(kinds.values()) > 70
    assert not batch.source[~batch.source_padding].any()


def test_what_is_no_answer_is_not_scored():
    batch = Interleaved(written=("is",), shown=()).batch("train", 5, seed=0)
    assert (batch.targets[:, :2] == UNSCORED).all()
    assert (batch.targets[:, 2:] != UNSCORED).all()


def test_its_kind_follows_from_whether_something_is_shown():
    text = Interleaved(written=tuple(SENTENCES), shown=())
    assert text.kind == "language_model"
    assert text.batch("train", 2, seed=0).source is None
    assert Interleaved().kind == "encoder_decoder"
    assert text.vocab == len(NAMES) == 28
    assert text.length == 21


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Interleaved(shown=()), "at least one kind of sentence"),
        (lambda: Interleaved(shown=("are",)), "no sentence 'are'"),
        (lambda: Interleaved(written=("is", "is")), "written should name each kind .* once"),
        (lambda: Interleaved(patch=3), "patch should divide 8"),
        (lambda: Interleaved(share=0.5), "needs written and shown sentences"),
        (lambda: Interleaved(written=("is",), share=1.5), "share should lie between 0 and 1"),
    ],
)
def test_what_asks_nothing_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_an_example_shows_its_images():
    task = Interleaved(shown=("larger",))
    example, batch = task.example(3), task.batch("validation", 1, seed=3)
    halves = [example.image[:, :8], example.image[:, 8:]]
    patches = batch.source[0].view(2, 16, 4).numpy()
    for half, own in zip(halves, patches, strict=True):
        assert (half == from_patches(own[None], 2)[0]).all()
    assert example.description.startswith("The sentence is “image image image image the larger is")
    assert Interleaved(written=("is",), shown=()).example(3).image is None


def test_images_of_both_splits_differ():
    one, other = (
        Interleaved().batch(split, 300, seed=0).source for split in ("train", "validation")
    )
    seen = {image.numpy().tobytes() for image in one}
    assert not any(image.numpy().tobytes() in seen for image in other)
    assert not torch.equal(one, other)
