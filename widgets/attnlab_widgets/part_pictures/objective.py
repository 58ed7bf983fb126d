"""An objective: one text as the model reads it, and below each token what it has to answer."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.catalog import build
from attnlab.core.card import Card
from attnlab.core.options import parameters_of
from attnlab.figures.drawing import Drawing
from attnlab.figures.layout import text_width
from attnlab.figures.theme import SERIES, Theme
from attnlab.objectives.batches import UNSCORED
from attnlab.tasks import Batch
from attnlab_widgets.part_pictures.sketch import SMALL, WIDE, Sketch, counted, sheet

TEXT = "the old cat saw the dog and the dog ran to the old cat ."
_TOP, _TALL, _LINE, _GAP = 28, 18, 44, 4
HIDDEN, REPLACED, SHOWN = "hidden", "replaced", "shown"


@dataclass(frozen=True)
class Place:
    """A token as the model reads it, and what it has to answer there; "" for nothing."""

    word: str
    answer: str
    kind: str


@dataclass(frozen=True)
class Example:
    """What an encoder reads, if there is one, what stands where answers are asked, and the answer
    for the whole text, if it is one."""

    source: list[Place]
    asked: list[Place]
    whole: str


def draw(card: Card, theme: Theme) -> Sketch:
    found = look(card)
    lines = _lines(found.source) + _lines(found.asked)
    drawing = sheet(_TOP + lines * _LINE + 18, theme, "What is read, and what is asked")
    line = _strip(drawing, found.source, 0)
    line = _strip(drawing, found.asked, line)
    scored = sum(bool(place.answer) for place in found.asked)
    said = f"▾ the answer wanted, at {scored} of {len(found.asked)} places"
    if found.whole:
        said = f"▾ one answer for the whole text: {found.whole}"
    drawing.text(said, 8, _TOP + line * _LINE + 6, size=SMALL, quiet=True)
    return Sketch(drawing, _words(card, found, scored))


def look(card: Card) -> Example:
    """The example as the objective hands it to a model."""
    words = TEXT.split()
    vocabulary = sorted({*words})
    tokens = torch.tensor([[vocabulary.index(word) for word in words]])
    objective: Any = build(card.name, **_given(card, len(vocabulary)))
    given = Batch(tokens[:, :-1], tokens[:, 1:], torch.ones(1, len(words) - 1, dtype=torch.bool))
    asked = objective.prepare(given, torch.Generator().manual_seed(1))
    own = given.inputs[0]
    targets = asked.targets[0] if asked.targets.dim() > 1 else None
    whole = "" if targets is not None else f"class {int(asked.targets[0])}"
    source = (
        []
        if asked.source is None
        else _places(asked.source, asked.source_padding, None, own, vocabulary)
    )
    return Example(source, _places(asked.inputs, asked.padding, targets, own, vocabulary), whole)


def _given(card: Card, vocab: int) -> dict[str, Any]:
    return {"vocab": vocab} if "vocab" in parameters_of(card.build) else {}


def _places(
    inputs: Tensor, padding: Tensor | None, targets: Tensor | None, own: Tensor, words: list[str]
) -> list[Place]:
    """The real tokens of the first row. Another token at the place of the text's own was replaced,
    where the text kept its length and most of its tokens; one beyond the vocabulary hides it."""
    row = inputs[0].tolist()
    compared = len(row) == len(own) and int((inputs[0] == own).sum()) > len(own) / 2
    real = [True] * len(row) if padding is None else padding[0].tolist()
    specials = sorted({token for token in row if token >= len(words)})
    found = []
    for at, token in enumerate(row):
        if not real[at]:
            continue
        target = UNSCORED if targets is None else int(targets[at])
        kind = SHOWN
        if token >= len(words):
            kind = HIDDEN
        elif compared and token != int(own[at]):
            kind = REPLACED
        word = _word(token, words, one=len(specials) == 1)
        answer = "" if target == UNSCORED else _word(target, words, one=False)
        found.append(Place(word, answer, kind))
    return found


def _word(token: int, words: list[str], *, one: bool) -> str:
    """A token beyond the vocabulary is blank, or numbered where there are several."""
    if token < len(words):
        return words[token]
    return "" if one else f"⟨{token - len(words) + 1}⟩"


def _words(card: Card, found: Example, scored: int) -> str:
    read = found.source or found.asked
    hidden = sum(place.kind == HIDDEN for place in read)
    replaced = sum(place.kind == REPLACED for place in read)
    said = counted(hidden, "is hidden", "are hidden").capitalize()
    said += f" and {replaced} replaced" if replaced else ""
    asked = f"the text has one answer, {found.whole}"
    if not found.whole:
        asked = f"{counted(scored, 'is', 'are')} scored"
    hides = f"Hidden from the model: {card.claims.hidden}."
    return f"A text of {len(read)} tokens as it is read. {said}; {asked}. {hides}"


def _placed(places: list[Place]) -> list[tuple[float, int, float]]:
    """Left, line and width of each box, wrapped like text."""
    found, left, line = [], 8.0, 0
    for place in places:
        wide = max(22, text_width(place.word, 11) + 8, text_width(place.answer, 11) + 4)
        if left + wide > WIDE - 8:
            left, line = 8.0, line + 1
        found.append((left, line, wide))
        left += wide + _GAP
    return found


def _lines(places: list[Place]) -> int:
    return _placed(places)[-1][1] + 1 if places else 0


def _strip(drawing: Drawing, places: list[Place], first: int) -> int:
    """Boxes from a line on; the line after them."""
    theme = drawing.theme
    for place, (x, line, wide) in zip(places, _placed(places), strict=True):
        y, middle = _TOP + (first + line) * _LINE, x + wide / 2
        fill = theme.quiet if place.kind == HIDDEN else theme.panel
        edge, width = (SERIES[1], 2) if place.kind == REPLACED else (theme.grid, 1)
        drawing.box(x, y, wide, _TALL, fill, edge, width)
        if place.word:
            ink = theme.paper if place.kind == HIDDEN else ""
            drawing.text(place.word, middle, y + _TALL / 2, size=11, anchor="middle", colour=ink)
        if place.answer:
            low = y + _TALL
            drawing.patch(
                [(middle - 4, low + 2), (middle + 4, low + 2), (middle, low + 6)], SERIES[0]
            )
            drawing.text(place.answer, middle, low + 13, size=11, anchor="middle", bold=True)
    return first + _lines(places)
