"""Images and texts that do not fit: each system answers in a sentence, or as its page says."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.systems.patches import check_brightness, check_finite
from tests.systems.built import SYSTEMS

LOOKS = (
    "Q-Former, first stage", "Q-Former, second stage", "VLMo, images", "VLMo, pairs", "Frozen",
    "KOSMOS", "PaLM-E", "PaLM-E, pictures", "Donut, parsing",
)  # fmt: skip
READS = (
    "Q-Former, first stage", "Q-Former, second stage", "VLMo, texts", "VLMo, pairs", "Frozen",
    "KOSMOS", "PaLM-E", "MetaLM", "Donut, parsing",
)  # fmt: skip
BY_LOSS = ("Q-Former, first stage", "VLMo", "MetaLM")  # are called with a batch

Change = Callable[[Tensor], Any]
Refused = tuple[Change, str]


def answer(name: str, part: str = "", change: Change = lambda x: x, rows: int = 5) -> Tensor:
    """What a system makes of a batch, of which one part is changed."""
    torch.manual_seed(0)
    system = SYSTEMS[name]()
    system.objective.fitted(system.model)
    system.model.eval()
    batch = system.task.batch("train", 5, seed=0)[:rows]
    parts = {n: getattr(batch, n) for n in ("inputs", "padding", "source", "source_padding")}
    if parts["padding"] is None:
        parts["padding"] = torch.ones_like(batch.inputs, dtype=torch.bool)
    if part:
        parts[part] = change(parts[part])
    if name.startswith(BY_LOSS):
        draws = torch.Generator().manual_seed(0)
        loss: Tensor = system.objective(system.model, replace(batch, **parts), draws)[0]
        return loss
    logits: Tensor = system.model(parts.pop("inputs"), parts.pop("padding"), **parts)
    return logits


IMAGES: dict[str, Refused] = {
    "levels of 8 bits": (lambda x: (x * 255).to(torch.uint8), "float"),
    "whole numbers": (lambda x: (x * 16).long(), "float"),
    "complex numbers": (lambda x: x.to(torch.complex64), "float"),
    "NaN": (lambda x: x * torch.nan, "finite numbers|values from nan"),
    "infinity": (lambda x: x + torch.inf, "finite numbers|values from inf"),
    "fewer numbers in a patch": (lambda x: x[..., :-1], "numbers|features=16|expected 15"),
    "one image without a batch": (lambda x: x[0], r"\((3|4|8|16), (6|12|16|144)\)"),
    "an axis too many": (lambda x: x[:, None], r"\(5, 1, \d+, \d+\)|\(b, n\) = \(5, 1\)"),
    "no patches": (lambda x: x[:, :0], r"has no images|sequence is empty|\(5, 0\b"),
    "a list": (lambda x: x.tolist(), "a? ?list"),
    "an array": (lambda x: x.numpy(), "a? ?ndarray"),
    "fewer images than texts": (lambda x: x[:3], r"5 texts|\(3, \d+\)|rows"),
    "more images than texts": (lambda x: torch.cat([x, x[:2]]), r"5 texts|\(7, \d+\)|rows"),
    "no image": (lambda x: None, "no images|batch has none|NoneType|needs the source"),
}


@pytest.mark.parametrize("change", IMAGES)
@pytest.mark.parametrize("name", LOOKS)
def test_images_that_do_not_fit_are_refused_in_a_sentence(name, change):
    spoil, sentence = IMAGES[change]
    with pytest.raises((TypeError, ValueError), match=sentence):
        answer(name, "source", spoil)


@pytest.mark.parametrize("name", ["PaLM-E, pictures", "Donut, parsing"])
def test_brightness_is_from_0_to_1_where_a_page_says_so(name):
    with pytest.raises(ValueError, match="brightness from 0 to 1, got values from 0 to 255"):
        answer(name, "source", lambda x: x * 255)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LOOKS)
def test_images_in_other_floats_are_read_as_the_system_reads_its_own(name, dtype):
    found = answer(name, "source", lambda x: x.to(dtype))
    wanted = answer(name)
    assert found.dtype == wanted.dtype == torch.float32
    torch.testing.assert_close(found, wanted, atol=0.05, rtol=0.02)


TEXTS: dict[str, Refused] = {
    "floats": (lambda t: t.float(), "float32"),
    "true or false": (lambda t: t.bool(), "bool"),
    "words that are not there": (lambda t: t + 10_000, r"\d{5}"),
    "negative numbers": (lambda t: t - 10_000, r"-\d{4}"),
    "no words": (lambda t: t[:, :0], r"empty|n is 0|\(5, 0\)"),
    "a list": (lambda t: t.tolist(), r"list|\[\["),
    "another number of lists": (lambda t: t[:3].tolist(), "list"),
    "nothing": (lambda t: None, "None|nothing"),
}


@pytest.mark.parametrize("change", TEXTS)
@pytest.mark.parametrize("name", READS)
def test_texts_that_do_not_fit_are_refused_in_a_sentence(name, change):
    spoil, sentence = TEXTS[change]
    with pytest.raises((TypeError, ValueError), match=sentence):
        answer(name, "inputs", spoil)


PADDING: dict[str, Change] = {
    "numbers": lambda p: p.long(),
    "too short": lambda p: p[:, :-1],
    "of other texts": lambda p: p[:3],
    "a list": lambda p: p.tolist(),
}


@pytest.mark.parametrize("change", PADDING)
@pytest.mark.parametrize(
    ("name", "part"),
    [(name, "source_padding") for name in LOOKS] + [(name, "padding") for name in READS],
)
def test_padding_that_does_not_fit_is_refused_in_a_sentence(name, part, change):
    def spoil(padding: Tensor | None) -> Any:
        return PADDING[change](torch.ones(5, 8, dtype=torch.bool) if padding is None else padding)

    sentence = rf"^({part}|padding)( of a batch)? should be"
    with pytest.raises((TypeError, ValueError), match=sentence):
        answer(name, part, spoil)


@pytest.mark.parametrize("name", ["Frozen", "KOSMOS", "PaLM-E"])
def test_markers_and_vectors_are_as_many(name):
    for part, change in {
        "source": lambda x: torch.cat([x, x], 1),
        "source_padding": lambda p: torch.zeros_like(p),
        "padding": lambda p: torch.zeros_like(p),  # a caption without a word
    }.items():
        with pytest.raises(
            ValueError, match=r"markers, but its source gives|source_padding should"
        ):
            answer(name, part, change)


@pytest.mark.parametrize("name", sorted({*LOOKS, *READS}))
def test_a_batch_without_rows_is_answered_with_none_or_refused(name):
    if name.startswith(BY_LOSS):
        with pytest.raises(ValueError, match="a batch without rows asks nothing"):
            answer(name, rows=0)
    else:
        assert answer(name, rows=0).shape[0] == 0


def test_padding_of_a_source_that_is_not_given_is_refused():
    model = SYSTEMS["KOSMOS"]().model
    for token in (0, model.marker):
        tokens = torch.full((2, 3), token)
        with pytest.raises(ValueError, match="source_padding needs the source"):
            model(tokens, source_padding=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="3 markers, but its source gives 0 vectors"):
        model(tokens)


def test_an_image_that_is_left_out_may_hold_anything() -> None:
    """One of whose patches is missing, and another is NaN."""
    system = SYSTEMS["KOSMOS"]()
    model, batch = system.model.eval(), system.task.batch("train", 5, seed=0)
    first = batch.source_padding.clone()
    first[:, 1 : model.patches] = False
    marked = batch.inputs == model.marker
    fewer = marked & (marked.cumsum(1) <= model.vectors)  # no marker of the first image
    tokens = batch.inputs.masked_fill(fewer, 0)
    spoiled = batch.source.clone()
    spoiled[:, 0] = torch.nan
    found, wanted = (
        model(tokens, batch.padding, source=each, source_padding=first)
        for each in (spoiled, batch.source)
    )
    torch.testing.assert_close(found, wanted)


def test_a_patch_that_is_not_there_has_no_brightness() -> None:
    system = SYSTEMS["Donut, parsing"]()
    model, batch = system.model.eval(), system.task.batch("train", 2, seed=0)
    real = torch.ones(batch.source.shape[:2], dtype=torch.bool)
    real[:, -2:] = False
    found, wanted = (
        model(batch.inputs, source=batch.source.masked_fill(~real[..., None], value),
              source_padding=real)
        for value in (255.0, 0.5)
    )  # fmt: skip
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("check", [check_finite, partial(check_brightness, "images")])
def test_numbers_that_cannot_be_read_are_not_checked(check: Callable[[Tensor], None]) -> None:
    """Inside vmap and on the meta device."""
    wrong = torch.full((2, 3, 4, 5), torch.nan)
    with pytest.raises(ValueError, match=r"nan|NaN"):
        check(wrong[0])
    check(wrong[0].to("meta"))

    def through(images: Tensor) -> Tensor:
        check(images)
        return images + 1

    assert torch.func.vmap(through)(wrong).isnan().all()


def test_large_numbers_are_finite_though_their_sum_is_not() -> None:
    large = torch.full((1, 2, 3), torch.finfo(torch.float32).max)
    assert large.sum().isinf()
    check_finite(large)


def test_what_is_marked_as_absent_may_hold_anything() -> None:
    source = torch.zeros(2, 3, 4)
    source[1, 2, 0] = torch.nan
    real = torch.tensor([[True] * 3, [True, True, False]])
    check_finite(source, real)
    with pytest.raises(ValueError, match="vector 2 of row 1"):
        check_finite(source, ~real)
